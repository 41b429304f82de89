package eventstoredb_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// onDisk serves an embedded store in a folder on the disk, and returns it with a
// client of the server.
func onDisk(b *testing.B) (*embedded.Store, *eventstoredb.Store) {
	b.Helper()
	local, err := embedded.Open(b.Context(), b.TempDir(), embedded.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = local.Close() })
	return local, served(b, local)
}

// served serves a store, and returns a store that is its client.
func served(b *testing.B, local events.Store) *eventstoredb.Store {
	b.Helper()
	server, err := server.New(local, server.Config{Anonymous: auth.Ledger})
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
	b.Cleanup(func() { _ = remote.Close(); server.Close(); serving.Wait() })
	return remote
}

// An appender appends one record to a stream after a revision.
type appender func(events.Stream, events.Revision, events.Record) error

func into(b *testing.B, s events.Store) appender {
	return func(stream events.Stream, after events.Revision, r events.Record) error {
		return s.Append(b.Context(), stream, after, r)
	}
}

// BenchmarkAppend measures appends by a number of concurrent writers, in turns: to
// the embedded store alone, through the adapter and the server, and with the bare
// official client over one and over two connections to a server that responds from
// memory.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			local, remote := onDisk(b)
			_, clients := startNopServer(b, 3)
			names := []string{"embedded", "served", "bare", "bare-2-connections"}
			times, rounds := make([][]time.Duration, len(names)), make([][]float64, len(names))
			for b.Loop() {
				for i, to := range []appender{into(b, local), into(b, remote), officialAppender(b, clients[:1]), officialAppender(b, clients[1:])} {
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

// ratios returns the smallest, the median and the greatest quotient of the rounds.
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

// appends makes each writer append each times to a stream of its own, and returns the
// times of the single appends and of all together.
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

// A subscribers measures when each of many subscribers received a record.
type subscribers struct {
	many    int
	ready   chan struct{}  // each, once it is current
	arrived chan time.Time // at each
	size    float64        // KiB that each takes, on both sides of the wire
}

// begin starts many subscribers, each of which calls ready when it is current and
// arrive for each record, and measures their memory.
func begin(b *testing.B, many int, run func(ready, arrive func())) *subscribers {
	s := &subscribers{many: many, ready: make(chan struct{}, many), arrived: make(chan time.Time, many)}
	before := memory()
	var running sync.WaitGroup
	for range many {
		running.Go(func() {
			run(sync.OnceFunc(func() { s.ready <- struct{}{} }), func() { s.arrived <- time.Now() })
		})
	}
	b.Cleanup(running.Wait)
	for range many {
		<-s.ready
	}
	s.size = float64(memory()-before) / float64(many) / 1024
	return s
}

// delays returns the time from a moment until each subscriber received the record.
func (s *subscribers) delays(from time.Time) (all []time.Duration) {
	for range s.many {
		all = append(all, (<-s.arrived).Sub(from))
	}
	return all
}

// BenchmarkSubscribers measures the time from the begin of an append until each of
// many followers of one store has the record. In turn with it, as many bare official
// clients receive the same bytes from memory. LEDGER_BENCH_SUBSCRIBERS is their
// number.
func BenchmarkSubscribers(b *testing.B) {
	many := 1000
	if n, err := strconv.Atoi(os.Getenv("LEDGER_BENCH_SUBSCRIBERS")); err == nil {
		many = n
	}
	_, remote := onDisk(b)
	floor, clients := startNopServer(b, 1)
	ctx, cancel := context.WithCancel(b.Context())
	mint := newMint()
	if err := remote.Append(ctx, "bench-begin", 0, record(mint, "Kind", 0)); err != nil {
		b.Fatal(err)
	}
	followers := begin(b, many, func(ready, arrive func()) {
		for e, err := range remote.Follow(ctx, events.Position{}) {
			if err != nil {
				return
			}
			if e.Stream == "bench-begin" {
				ready()
				continue
			}
			arrive()
		}
	})
	bare := begin(b, many, func(ready, arrive func()) {
		sub, err := clients[0].SubscribeToAll(ctx, esdb.SubscribeToAllOptions{From: esdb.Start{}})
		if err != nil {
			return
		}
		ready()
		for sub.Recv().EventAppeared != nil {
			arrive()
		}
	})
	b.Cleanup(cancel)
	var appended, delivered, sent []time.Duration
	for n := 0; b.Loop(); n++ {
		start := time.Now()
		if err := remote.Append(ctx, "bench-1", events.Revision(n), record(mint, "Kind", n)); err != nil {
			b.Fatal(err)
		}
		appended = append(appended, time.Since(start))
		delivered = append(delivered, followers.delays(start)...)
		start = time.Now()
		floor.publish()
		sent = append(sent, bare.delays(start)...)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(quantile(appended, 50).Microseconds()), "append-p50-µs")
	for name, times := range map[string][]time.Duration{"served": delivered, "bare": sent} {
		b.ReportMetric(float64(quantile(times, 50).Microseconds()), name+"-p50-µs")
		b.ReportMetric(float64(quantile(times, 99).Microseconds()), name+"-p99-µs")
	}
	b.ReportMetric(followers.size, "served-KiB/subscriber")
	b.ReportMetric(bare.size, "bare-KiB/subscriber")
}

// BenchmarkRare measures the catch-up of a follower with 200,000 records of which 20
// pass its filter: once the store applies the filter, and once the server does,
// because its store has no filter.
func BenchmarkRare(b *testing.B) {
	local, pushed := onDisk(b)
	plain := served(b, struct{ events.Store }{local})
	mint := newMint()
	for n := 0; n < 200_000; n += 500 {
		var records []events.Record
		for i := range 500 {
			r := record(mint, "Common", n+i)
			r.Data = fmt.Appendf(nil, `{"n":%d,"text":%q}`, n+i, strings.Repeat("x", 380))
			if (n+i)%10_000 == 0 {
				r.Kind = "Rare"
			}
			records = append(records, r)
		}
		if err := local.Append(b.Context(), "bench-1", events.Revision(n), records...); err != nil {
			b.Fatal(err)
		}
	}
	var rounds [2][]float64
	for b.Loop() {
		for i, s := range []events.Store{pushed, plain} {
			start, found := time.Now(), 0
			ctx, cancel := context.WithCancel(b.Context())
			for _, err := range s.Follow(ctx, events.Position{}, events.Following{Filter: events.Filter{Kinds: []string{"Rare"}}, CaughtUp: func(events.Position) { cancel() }}) {
				if err != nil {
					break
				}
				found++
			}
			if cancel(); found != 20 {
				b.Fatalf("found %d records, want 20", found)
			}
			rounds[i] = append(rounds[i], time.Since(start).Seconds())
		}
	}
	least, middle, most := ratios(rounds[1], rounds[0])
	b.ReportMetric(median(rounds[0])*1e3, "pushed-ms")
	b.ReportMetric(median(rounds[1])*1e3, "plain-ms")
	b.ReportMetric(least, "plain/pushed-least")
	b.ReportMetric(middle, "plain/pushed")
	b.ReportMetric(most, "plain/pushed-most")
	b.ReportMetric(0, "ns/op")
}

// memory returns the bytes of heap and stacks in use.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}
