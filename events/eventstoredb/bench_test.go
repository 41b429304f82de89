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

// An appender appends a record to a stream.
type appender func(events.Stream, events.Revision, events.Record) error

func into(b *testing.B, s events.Store) appender {
	return func(stream events.Stream, after events.Revision, r events.Record) error {
		return s.Append(b.Context(), stream, after, r)
	}
}

// BenchmarkAppend appends by so many writers at once, in turns: to the embedded
// store alone, through the adapter and the server, and with the bare official
// client, over one connection and over two, to a server that answers from memory.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			local, remote := onDisk(b)
			_, clients := onFloor(b, 3)
			names := []string{"embedded", "served", "bare", "bare-2-connections"}
			times, rounds := make([][]time.Duration, len(names)), make([][]float64, len(names))
			for b.Loop() {
				for i, to := range []appender{into(b, local), into(b, remote), official(b, clients[:1]), official(b, clients[1:])} {
					took, all := appends(b, to, writers, 200)
					times[i], rounds[i] = append(times[i], took...), append(rounds[i], all.Seconds())
				}
			}
			n := float64(200 * writers)
			for i, name := range names {
				b.ReportMetric(n/median(rounds[i]), name+"/s")
				b.ReportMetric(float64(quantile(times[i], 99).Microseconds()), name+"-p99-µs")
			}
			for i, name := range map[int]string{0: "of-embedded", 2: "of-bare"} {
				least, middle, most := ratios(rounds[i], rounds[1])
				b.ReportMetric(least, name+"-least")
				b.ReportMetric(middle, name)
				b.ReportMetric(most, name+"-most")
			}
			b.ReportMetric(0, "ns/op") // of all four together
		})
	}
}

// ratios returns the least, the middle and the greatest quotient of rounds.
func ratios(of, by []float64) (least, middle, most float64) {
	quotients := make([]float64, len(of))
	for i := range of {
		quotients[i] = of[i] / by[i]
	}
	return slices.Min(quotients), median(quotients), slices.Max(quotients)
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// appends has each writer append so often to a stream of its own.
func appends(b *testing.B, to appender, writers, each int) (times []time.Duration, all time.Duration) {
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
				if err := to(stream, events.Revision(i), record(mint, "Kind", i)); err != nil {
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
