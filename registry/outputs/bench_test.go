package outputs

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// BenchmarkKeep stores blobs, and alternately writes and syncs plain files with the
// same bytes. "of-file" is the ratio of the medians; both share the run, so that a slow
// disk slows both.
func BenchmarkKeep(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 2 << 20, 4 << 20, 16 << 20, 256 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			dir, content, ref := b.TempDir(), prose(size), refs(1)
			s, err := Open(filepath.Join(dir, "outputs"), Config{Reserve: 1})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var keep, file []time.Duration
			for n := 0; b.Loop(); n++ {
				begin := time.Now()
				if _, err := s.Keep(b.Context(), ref(), "", bytes.NewReader(content)); err != nil {
					b.Fatal(err)
				}
				between := time.Now()
				if err := plain(dir, n, content); err != nil {
					b.Fatal(err)
				}
				after := time.Now()
				if n >= 10 { // so that the disk does not fill up
					if err := os.Remove(filepath.Join(dir, fmt.Sprint(n-10))); err != nil {
						b.Fatal(err)
					}
				}
				keep, file = append(keep, between.Sub(begin)), append(file, after.Sub(between))
			}
			b.ReportMetric(float64(median(keep).Microseconds()), "µs/keep")
			b.ReportMetric(float64(median(file).Microseconds()), "µs/file")
			b.ReportMetric(float64(median(file))/float64(median(keep)), "of-file")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// prose returns bytes that compress like the output of programs.
func prose(size int) []byte {
	var b bytes.Buffer
	for line := 0; b.Len() < size; line++ {
		fmt.Fprintf(&b, "%06d src/module_%d/file_%x.go:%d: found %d of %d matches in %v\n", line, line%13, line*7919, line%997, line*31%101, line, time.Duration(line*line))
	}
	return b.Bytes()[:size]
}

// plain writes a file as durably as Keep.
func plain(dir string, n int, content []byte) error {
	f, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// BenchmarkSmallAppendsBesideALongOutput measures the latency of small durable appends
// during a Keep of 256 MiB on the same disk. "of-alone" is the ratio of the p99 to that
// without the Keep.
func BenchmarkSmallAppendsBesideALongOutput(b *testing.B) {
	dir, content, ref := b.TempDir(), prose(256<<20), refs(1)
	log, err := embedded.Open(b.Context(), filepath.Join(dir, "store"), embedded.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	s, err := Open(filepath.Join(dir, "outputs"), Config{Reserve: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	mint, length := domain.NewMint(time.Now, rand.Reader), events.Revision(0)
	appending := func(until func() bool) (took []time.Duration) {
		for !until() {
			r := events.Record{ID: mint.Event(), Kind: "A", Version: 1, Time: time.Now().UTC().Truncate(time.Microsecond), Data: content[:400]}
			begin := time.Now()
			if err := log.Append(b.Context(), "s-1", length, r); err != nil {
				b.Fatal(err)
			}
			took, length = append(took, time.Since(begin)), length+1
		}
		slices.Sort(took)
		return took
	}
	thousand := func() func() bool {
		n := 0
		return func() bool { n++; return n > 1000 }
	}
	var alone, beside time.Duration
	for b.Loop() {
		took := appending(thousand())
		kept := make(chan error, 1)
		go func() {
			_, err := s.Keep(context.WithoutCancel(b.Context()), ref(), "", bytes.NewReader(content))
			kept <- err
		}()
		var broke error
		busy := appending(func() bool {
			select {
			case broke = <-kept:
				return true
			default:
				return false
			}
		})
		if broke != nil || len(busy) < 10 {
			b.Fatalf("keep: %v, beside %d appends", broke, len(busy))
		}
		took = append(took, appending(thousand())...)
		slices.Sort(took)
		alone, beside = took[len(took)*99/100], busy[len(busy)*99/100]
	}
	b.ReportMetric(float64(alone.Microseconds()), "µs/alone")
	b.ReportMetric(float64(beside.Microseconds()), "µs/beside")
	b.ReportMetric(float64(beside)/float64(alone), "of-alone")
}
