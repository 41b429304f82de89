package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// following returns the Open function of a contestant with one writer and the given
// number of followers. The writer appends an event after every follower has received the
// previous event, so all followers are waiting at each append. The latency is the time
// from an append to its delivery. Without followers it is the time of the append itself.
func following(followers int) func(context.Context, *Ground) (Rig, error) {
	return func(ctx context.Context, g *Ground) (Rig, error) {
		l, err := openLedger(ctx, g, 1)
		if err != nil {
			return nil, err
		}
		f := &followerGroup{ledger: l, all: make(chan struct{}, 1), measured: make([]followerLatencies, g.followers(followers))}
		f.open(ctx)
		run := func(ctx context.Context) (Sample, error) { return f.run(ctx, timed(g.span(time.Second))) }
		return NewRig(run, f.close), nil
	}
}

// followers returns g.Count(n), but n itself for 0 and 1.
func (g *Ground) followers(n int) int {
	if n <= 1 {
		return n
	}
	return g.Count(n)
}

// A followerGroup is the followers of a ledger and the writer that they follow.
type followerGroup struct {
	ledger   *ledger
	length   int                     // of the stream of the writer
	cancel   context.CancelCauseFunc // ends the followers
	joined   sync.WaitGroup          // the follower goroutines
	began    time.Time               // when the current append began; written by the writer before the append
	left     atomic.Int64            // followers that have not received the current event
	all      chan struct{}           // capacity 1: the last follower received the current event
	measured []followerLatencies
}

// A followerLatencies has the latencies of one follower.
type followerLatencies struct {
	latencies []time.Duration // appended by the follower; the writer reads them once left is 0
	err       error           // set by the follower goroutine; read after it is joined
}

// errOver is the cause with which close cancels the followers.
var errOver = errors.New("the measurement is over")

// open starts the followers and returns once all have caught up or failed.
func (f *followerGroup) open(ctx context.Context) {
	ctx, f.cancel = context.WithCancelCause(ctx)
	var waiting sync.WaitGroup
	waiting.Add(len(f.measured))
	for i := range f.measured {
		f.joined.Go(func() {
			caughtUp := sync.OnceFunc(waiting.Done)
			defer caughtUp()
			f.measured[i].err = f.listen(ctx, &f.measured[i], caughtUp)
		})
	}
	waiting.Wait()
}

// listen follows the log from its end and measures each delivery. It calls caughtUp when
// the follower has reached the end of the log.
func (f *followerGroup) listen(ctx context.Context, e *followerLatencies, caughtUp func()) error {
	for _, err := range f.ledger.store.Follow(ctx, f.ledger.store.Head(), events.Following{CaughtUp: func(events.Position) { caughtUp() }}) {
		if err != nil {
			return err
		}
		e.latencies = append(e.latencies, time.Since(f.began))
		if f.left.Add(-1) == 0 {
			f.all <- struct{}{}
		}
	}
	return nil
}

// run appends one event, and further ones while goOn reports true, and waits after
// each until all followers have received it.
func (f *followerGroup) run(ctx context.Context, goOn func() bool) (Sample, error) {
	for i := range f.measured {
		f.measured[i].latencies = f.measured[i].latencies[:0]
	}
	var appends []time.Duration
	usage, begun := processorTime(), time.Now()
	for first := true; first || goOn(); first = false {
		f.length++
		f.left.Store(int64(len(f.measured)))
		f.began = time.Now()
		if err := f.ledger.Append(ctx, 0, f.length, Event(0, f.length)); err != nil {
			return nil, err
		}
		appends = append(appends, time.Since(f.began))
		if len(f.measured) == 0 {
			continue
		}
		select {
		case <-f.all:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	elapsed, used := time.Since(begun), processorTime()-usage
	if len(f.measured) == 0 {
		return sampled(appends, elapsed, used), nil
	}
	var deliveries []time.Duration
	for _, e := range f.measured {
		deliveries = append(deliveries, e.latencies...)
	}
	return sampled(deliveries, elapsed, used), nil
}

// close ends and joins the followers, closes the ledger and returns all errors.
func (f *followerGroup) close() error {
	f.cancel(errOver)
	f.joined.Wait()
	var faults []error
	for _, e := range f.measured {
		if !errors.Is(e.err, errOver) {
			faults = append(faults, e.err)
		}
	}
	return errors.Join(append(faults, f.ledger.Close())...)
}
