package calls_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/spill"
)

// BenchmarkChecker reports the rate of a check over a temporary database as a multiple of
// the rate of a scan of owned entries, and the greatest live heap of the check beyond that
// of the log, which is in memory.
func BenchmarkChecker(b *testing.B) {
	w := newBench(b)
	var ratios, heaps []float64
	for b.Loop() {
		began := time.Now()
		for _, err := range w.store.ReadAll(b.Context(), events.Position{}) {
			if err != nil {
				b.Fatal(err)
			}
		}
		scan := time.Since(began).Seconds()
		base := liveHeap()
		memory, err := spill.Open()
		if err != nil {
			b.Fatal(err)
		}
		c, most, n := calls.NewChecker(memory, 120_000), uint64(0), 0
		began = time.Now()
		paused := time.Duration(0)
		for v, err := range events.DecodeAhead(b.Context(), events.Lend(b.Context(), w.store, events.Query{})) {
			if err != nil {
				b.Fatal(err)
			}
			c.Apply(v)
			if n++; n%100_000 == 0 {
				at := time.Now()
				now := liveHeap()
				most = max(most, now-min(base, now))
				paused += time.Since(at)
			}
		}
		if found := c.Exceptions(); len(found) > 0 {
			b.Fatal("the history breaks a law: ", found[0])
		}
		ratios = append(ratios, scan/(time.Since(began)-paused).Seconds())
		heaps = append(heaps, float64(most)/(1<<20))
		if err := memory.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(median(ratios), "check/scan")
	b.ReportMetric(median(heaps), "heap-MiB")
	b.ReportMetric(float64(w.bytes)/(1<<20), "log-MiB")
	b.ReportMetric(float64(len(w.payloads)), "events")
}

// liveHeap returns the bytes of the reachable heap.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
