package embedded

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
)

// roundTime is the time for which each contender of a round appends.
const roundTime = 500 * time.Millisecond

// BenchmarkAppend has many writers append records of about 400 bytes. Each writer
// waits until its record is durable. In each round a plain file is written in the
// same way, as the floor: with one writer one write and one sync for each record,
// with several writers one for all waiting records. An iteration is a round, so
// -benchtime=5x measures five. It reports the medians of these metrics:
//
//	x-floor      appends in the time, divided by the appends of the floor
//	x-p99        99th percentile of the time of an append, divided by that of the floor
//	x-cpu        CPU of an append, divided by that of a bare Pebble batch of the same bytes
//	group        appends that share a sync
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			dir := b.TempDir()
			s, err := Open(b.Context(), filepath.Join(dir, "store"), Config{})
			must(b, err)
			bare, err := pebble.Open(filepath.Join(dir, "bare"), s.options(nil))
			must(b, err)
			size := len(layout.Encode("session-01", 1, newRecordWriter(1).records(1, 350)[0])) + layout.SumLen
			lengths := make([]events.Revision, writers)
			var rates, tails, costs, groups, times []float64
			for round := range b.N {
				floor := newPlain(b, filepath.Join(dir, fmt.Sprint("plain", round)))
				low := load(writers, func(int) func() error { return floor.appending(writers, size) })
				floor.close(b)
				before := s.Stats()
				high := load(writers, func(w int) func() error { return appending(b, s, w, &lengths[w]) })
				after := s.Stats()
				group := float64(after.Appends-before.Appends) / float64(after.Groups-before.Groups)
				times = append(times, float64(high.quantile(0.5).Microseconds()))
				rates = append(rates, high.rate()/low.rate())
				tails = append(tails, float64(high.quantile(0.99))/float64(low.quantile(0.99)))
				groups = append(groups, group)
				costs = append(costs, float64(high.cpu)/bareCost(b, bare, max(int(group), 1)))
				b.Logf("round %d: floor %.0f/s p50 %v p99 %v; store %.0f/s p50 %v p99 %v cpu %v", round, low.rate(), low.quantile(0.5), low.quantile(0.99), high.rate(), high.quantile(0.5), high.quantile(0.99), high.cpu)
			}
			must(b, s.Close())
			must(b, bare.Close())
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(rates), "x-floor")
			b.ReportMetric(median(tails), "x-p99")
			b.ReportMetric(median(costs), "x-cpu")
			b.ReportMetric(median(groups), "group")
			b.ReportMetric(median(times), "p50-µs")
		})
	}
}

// appending returns a function that appends one record to the stream of writer w.
func appending(b *testing.B, s *Store, w int, length *events.Revision) func() error {
	p := newRecordWriter(byte(w))
	stream := events.Stream(fmt.Sprintf("session-%d", w))
	record := p.records(1, 350)
	return func() error {
		record[0].ID = p.Event()
		err := s.Append(b.Context(), stream, *length, record...)
		*length++
		return err
	}
}

// A measure is the result of one load.
type measure struct {
	took time.Duration
	each []time.Duration // of each append, ascending
	cpu  time.Duration   // for each append
}

func (m measure) rate() float64 { return float64(len(m.each)) / m.took.Seconds() }

func (m measure) quantile(q float64) time.Duration { return m.each[int(q*float64(len(m.each)-1))] }

// load runs the writers for the time of a round and returns their measure.
func load(writers int, writer func(w int) func() error) (m measure) {
	var mu sync.Mutex
	var appending sync.WaitGroup
	used, start := cpu(), time.Now()
	for w := range writers {
		appending.Go(func() {
			var each []time.Duration
			do := writer(w)
			for begun := start; begun.Sub(start) < roundTime; {
				if err := do(); err != nil {
					panic(err)
				}
				now := time.Now()
				each = append(each, now.Sub(begun))
				begun = now
			}
			mu.Lock()
			defer mu.Unlock()
			m.each = append(m.each, each...)
		})
	}
	appending.Wait()
	m.took = time.Since(start)
	m.cpu = (cpu() - used) / time.Duration(len(m.each))
	slices.Sort(m.each)
	return m
}

// cpu returns the processor time of this process so far.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// A plain is a file with group commit: events that arrive during a sync share the
// next write and sync.
type plain struct {
	file *os.File
	wake chan struct{}
	done chan error
	mu   struct {
		sync.Mutex
		bytes   []byte
		waiting []chan error
	}
}

func newPlain(b *testing.B, name string) *plain {
	f, err := os.Create(name)
	must(b, err)
	p := &plain{file: f, wake: make(chan struct{}, 1), done: make(chan error)}
	go p.commit()
	return p
}

func (p *plain) close(b *testing.B) {
	close(p.wake)
	must(b, <-p.done)
	must(b, p.file.Close())
	must(b, os.Remove(p.file.Name()))
}

func (p *plain) commit() {
	var bytes []byte
	var waiting []chan error
	for range p.wake {
		runtime.Gosched() // writers that the last group woke come now
		p.mu.Lock()
		bytes, p.mu.bytes = p.mu.bytes, bytes[:0]
		waiting, p.mu.waiting = p.mu.waiting, waiting[:0]
		p.mu.Unlock()
		if len(waiting) == 0 {
			continue
		}
		_, err := p.file.Write(bytes)
		if err == nil {
			err = syscall.Fdatasync(int(p.file.Fd()))
		}
		for _, w := range waiting {
			w <- err
		}
	}
	p.done <- nil
}

// appending returns a function that appends size bytes, as one of many writers.
func (p *plain) appending(writers, size int) func() error {
	record := make([]byte, size)
	if writers == 1 {
		return func() error {
			if _, err := p.file.Write(record); err != nil {
				return err
			}
			return syscall.Fdatasync(int(p.file.Fd()))
		}
	}
	done := make(chan error, 1)
	return func() error {
		p.mu.Lock()
		p.mu.bytes = append(p.mu.bytes, record...)
		p.mu.waiting = append(p.mu.waiting, done)
		p.mu.Unlock()
		select {
		case p.wake <- struct{}{}:
		default:
		}
		return <-done
	}
}

// BenchmarkOpen opens stores of several sizes, after a clean close and after a kill
// during appends. It also reports the bytes on the disk for each byte of the records.
func BenchmarkOpen(b *testing.B) {
	for _, count := range []int{50_000, 1_000_000} {
		b.Run(fmt.Sprintf("records=%d", count), func(b *testing.B) {
			dir := b.TempDir()
			s, err := Open(b.Context(), dir, Config{Durability: Interval(10 * time.Millisecond)})
			must(b, err)
			p := newRecordWriter(1)
			for at := 0; at < count; at += 500 {
				must(b, s.Append(b.Context(), events.Stream(fmt.Sprintf("session-%d", at/500%64)), events.Revision(at/500/64*500), p.records(500, 350)...))
			}
			killed := b.TempDir()
			must(b, s.Sync(b.Context()))
			must(b, s.db.Checkpoint(filepath.Join(killed, storedir.LogName))) // with the log as it stands, as a kill leaves it
			must(b, (&storedir.Dir{FS: vfs.Default, Path: killed}).WriteFormat(storedir.FormatName))
			for m := s.db.Metrics(); m.Compact.NumInProgress > 0; m = s.db.Metrics() {
				runtime.Gosched()
			}
			size := int64(s.Stats().Bytes)
			must(b, s.Close())
			b.ReportMetric(float64(bytesIn(b, dir))/float64(size), "x-bytes")
			var clean, dead []float64
			for range b.N {
				clean = append(clean, opening(b, dir))
				again := b.TempDir()
				must(b, os.CopyFS(again, os.DirFS(killed)))
				dead = append(dead, opening(b, again))
				must(b, os.RemoveAll(again))
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(clean), "clean-ms")
			b.ReportMetric(median(dead), "killed-ms")
		})
	}
}

func opening(b *testing.B, dir string) float64 {
	begun := time.Now()
	s, err := Open(b.Context(), dir, Config{})
	must(b, err)
	took := time.Since(begun)
	must(b, s.Close())
	return float64(took.Microseconds()) / 1000
}

// bytesIn returns the total size of the files below a folder.
func bytesIn(b *testing.B, dir string) (size int64) {
	must(b, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	}))
	return size
}

// bareCost returns the CPU that Pebble takes for each record in synced batches of
// group records. It writes only the keys and values of the store.
func bareCost(b *testing.B, db *pebble.DB, group int) float64 {
	const rounds = 200
	values := make([][]byte, group)
	for i, r := range newRecordWriter(1).records(group, 350) {
		values[i] = append(layout.Encode("session-01", 1, r), 0, 0, 0, 0)
	}
	used := cpu()
	for round := range rounds {
		batch := db.NewBatch()
		for i, value := range values {
			seq := uint64(round*group + i)
			must(b, batch.Set(layout.EntryKey(seq), value, nil))
			must(b, batch.Set(layout.IndexKey("session-01", events.Revision(seq)), layout.EntryKey(seq)[2:], nil))
		}
		must(b, batch.Commit(pebble.Sync))
	}
	return float64(cpu()-used) / float64(rounds*group)
}

// BenchmarkReadAll reads a hundred thousand records in order.
func BenchmarkReadAll(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir(), Config{})
	must(b, err)
	defer s.Close()
	p := newRecordWriter(1)
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
