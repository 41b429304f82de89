package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// BenchmarkAppend appends records of about 400 bytes, each durable before the
// next of its writer. Beside it in the same run, the same bytes are written to
// a plain file and synced one by one; x-file is how many times as long an
// append takes.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s, err := Open(b.Context(), b.TempDir(), Config{})
			must(b, err)
			p := newPen(1)
			size := len(encode("s-10", 1, p.records(1, 350)[0]))
			b.SetBytes(int64(size))
			b.ResetTimer()
			appendAll(b, s, writers)
			b.StopTimer()
			must(b, s.Close())
			b.ReportMetric(float64(b.Elapsed())/float64(floor(b, size, b.N)), "x-file")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}

// appendAll makes b.N appends, by many writers at once.
func appendAll(b *testing.B, s *Store, writers int) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var appending sync.WaitGroup
	for w := range writers {
		p := newPen(byte(w))
		appending.Go(func() {
			stream := events.Stream(fmt.Sprintf("s-%d", w))
			for at := events.Revision(0); left.Add(-1) >= 0; at++ {
				if err := s.Append(b.Context(), stream, at, p.records(1, 350)...); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	appending.Wait()
}

// floor is how long it takes to write and sync n runs of bytes, measured on
// some of them.
func floor(b *testing.B, size, n int) time.Duration {
	f, err := os.Create(filepath.Join(b.TempDir(), "plain"))
	must(b, err)
	defer f.Close()
	bytes, sample := make([]byte, size), min(n, 2000)
	start := time.Now()
	for range sample {
		_, err := f.Write(bytes)
		must(b, err)
		must(b, syscall.Fdatasync(int(f.Fd())))
	}
	return time.Since(start) * time.Duration(n) / time.Duration(sample)
}

// BenchmarkReadAll reads a hundred thousand records in order.
func BenchmarkReadAll(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir(), Config{})
	must(b, err)
	defer s.Close()
	p := newPen(1)
	const count = 100_000
	for at := 0; at < count; at += 1000 {
		must(b, s.Append(b.Context(), "s-1", events.Revision(at), p.records(1000, 350)...))
	}
	for b.Loop() {
		n := 0
		for _, err := range s.ReadAll(b.Context(), events.Position{}) {
			must(b, err)
			n++
		}
		if n != count {
			b.Fatalf("ReadAll yields %d records, want %d", n, count)
		}
	}
	b.ReportMetric(float64(count*b.N)/b.Elapsed().Seconds(), "records/s")
}
