package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// BenchmarkFollow appends records one by one, each after every follower has received
// the previous one. The metrics are the times from the start of an append to its
// delivery, divided by the median time of an append without followers in the same
// run.
func BenchmarkFollow(b *testing.B) {
	for _, followers := range []int{1, 1000} {
		b.Run(fmt.Sprintf("followers=%d", followers), func(b *testing.B) {
			s, err := Open(b.Context(), b.TempDir(), Config{})
			must(b, err)
			defer func() { must(b, s.Close()) }()
			p, alone := newRecordWriter(1), make([]time.Duration, 500)
			for i := range alone {
				r, start := p.records(1, 350), time.Now()
				must(b, s.Append(b.Context(), "s-alone", events.Revision(i), r...))
				alone[i] = time.Since(start)
			}
			slices.Sort(alone)
			b.ResetTimer()
			delivered := deliver(b, s, followers)
			slices.Sort(delivered)
			floor := float64(alone[len(alone)/2])
			b.ReportMetric(float64(delivered[len(delivered)/2])/floor, "x-p50")
			b.ReportMetric(float64(delivered[len(delivered)*99/100])/floor, "x-p99")
			b.ReportMetric(floor, "ns/append")
		})
	}
}

// deliver returns the duration of each delivery of b.N appends.
func deliver(b *testing.B, s *Store, followers int) []time.Duration {
	ctx, cancel := context.WithCancel(b.Context())
	var following, got sync.WaitGroup
	defer following.Wait()
	defer cancel()
	var start time.Time
	delivered := make([]time.Duration, b.N*followers)
	got.Add(followers)
	for f := range followers {
		following.Go(func() {
			n, ready := 0, sync.OnceFunc(got.Done)
			live := events.Following{CaughtUp: func(events.Position) { ready() }}
			for _, err := range s.Follow(ctx, s.Head(), live) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						b.Error(err)
					}
					return
				}
				delivered[f*b.N+n] = time.Since(start)
				n++
				got.Done()
			}
		})
	}
	got.Wait()
	p := newRecordWriter(2)
	for i := range b.N {
		r := p.records(1, 350)
		got.Add(followers)
		start = time.Now()
		must(b, s.Append(ctx, "s-followed", events.Revision(i), r...))
		got.Wait()
	}
	return delivered
}
