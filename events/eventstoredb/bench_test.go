package eventstoredb_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/protocol"
)

// onDisk serves an embedded store in a folder on the disk.
func onDisk(b *testing.B) (*embedded.Store, *eventstoredb.Store) {
	b.Helper()
	local, err := embedded.Open(b.Context(), b.TempDir(), embedded.Config{})
	if err != nil {
		b.Fatal(err)
	}
	server, err := protocol.New(local, protocol.Config{Anonymous: protocol.Ledger})
	if err != nil {
		b.Fatal(err)
	}
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(at) })
	remote, err := eventstoredb.Open(b.Context(), "esdb://"+at.Addr().String()+"?tls=false", eventstoredb.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = remote.Close(); server.Close(); serving.Wait(); _ = local.Close() })
	return local, remote
}

// BenchmarkAppend appends by so many writers at once through the adapter and
// the server, and to the embedded store alone, in turns.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			local, remote := onDisk(b)
			var times [2][]time.Duration
			var spent [2]time.Duration
			n := 0
			for b.Loop() {
				for i, s := range []events.Store{local, remote} {
					took, all := appends(b, s, writers, 200)
					times[i], spent[i] = append(times[i], took...), spent[i]+all
				}
				n += 200 * writers
			}
			for i, name := range []string{"embedded", "served"} {
				b.ReportMetric(float64(n)/spent[i].Seconds(), name+"-appends/s")
				b.ReportMetric(float64(quantile(times[i], 50).Microseconds()), name+"-p50-µs")
				b.ReportMetric(float64(quantile(times[i], 99).Microseconds()), name+"-p99-µs")
			}
			b.ReportMetric(spent[1].Seconds()/spent[0].Seconds(), "x-embedded")
		})
	}
}

// appends has each writer append so often to a stream of its own.
func appends(b *testing.B, s events.Store, writers, each int) (times []time.Duration, all time.Duration) {
	var mu sync.Mutex
	var running sync.WaitGroup
	begin := time.Now()
	for range writers {
		running.Go(func() {
			mint := newMint()
			stream := events.Stream("bench-" + mint.Event().String())
			took := make([]time.Duration, 0, each)
			for i := range each {
				start := time.Now()
				if err := s.Append(b.Context(), stream, events.Revision(i), record(mint, "Kind", i)); err != nil {
					b.Error(err)
					return
				}
				took = append(took, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, took...)
		})
	}
	running.Wait()
	return times, time.Since(begin)
}

func quantile(times []time.Duration, percent int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)*percent/100, len(times)-1)]
}

// BenchmarkSubscribers has many follow one server at once through one store
// and tells when each was given a record, from the moment that its append
// began. LEDGER_BENCH_SUBSCRIBERS is how many.
func BenchmarkSubscribers(b *testing.B) {
	many := 1000
	if n, err := strconv.Atoi(os.Getenv("LEDGER_BENCH_SUBSCRIBERS")); err == nil {
		many = n
	}
	_, remote := onDisk(b)
	mint := newMint()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	before := memory()
	var following sync.WaitGroup
	arrived := make(chan time.Time, many)
	ready := make(chan struct{}, many)
	for range many {
		following.Go(func() {
			tell := sync.OnceFunc(func() { ready <- struct{}{} })
			for e, err := range remote.Follow(ctx, events.Position{}) {
				if err != nil {
					return
				}
				if e.Stream == "bench-begin" {
					tell()
					continue
				}
				arrived <- time.Now()
			}
		})
	}
	if err := remote.Append(ctx, "bench-begin", 0, record(mint, "Kind", 0)); err != nil {
		b.Fatal(err)
	}
	for range many {
		<-ready
	}
	perSubscriber := float64(memory()-before) / float64(many)
	var delays, appended []time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		if err := remote.Append(ctx, "bench-1", events.Revision(n), record(mint, "Kind", n)); err != nil {
			b.Fatal(err)
		}
		appended = append(appended, time.Since(start))
		n++
		for range many {
			delays = append(delays, (<-arrived).Sub(start))
		}
	}
	cancel()
	following.Wait()
	b.ReportMetric(float64(quantile(appended, 50).Microseconds()), "append-p50-µs")
	b.ReportMetric(float64(quantile(delays, 50).Microseconds()), "delivery-p50-µs")
	b.ReportMetric(float64(quantile(delays, 99).Microseconds()), "delivery-p99-µs")
	b.ReportMetric(perSubscriber/1024, "KiB/subscriber")
}

// memory returns what is in use, stacks and all.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
