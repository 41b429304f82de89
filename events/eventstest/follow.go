package eventstest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/settlement-ledger/ledger/events"
)

// followerMissesNothing checks a follower in three situations: while it starts to
// wait, from every position of the log, and during concurrent appends.
func followerMissesNothing(ctx context.Context, h Harness) error {
	b, err := begin(ctx, h)
	if err != nil {
		return err
	}
	return b.end(func() error {
		if err := b.checkCatchUp(ctx); err != nil {
			return err
		}
		if err := b.checkResume(ctx); err != nil {
			return err
		}
		return b.checkLiveAppends(ctx)
	}())
}

// checkCatchUp follows an empty store and appends from inside CaughtUp, in five
// rounds. The records arrive exactly between the last read of the follower and its
// wait, where a lost wake-up would show. It also checks that CaughtUp is called once
// for each round, with the position of the last yielded entry.
func (b *fixture) checkCatchUp(ctx context.Context) error {
	const stream, rounds = "follow-1", 5
	var held []events.Record
	var failed error
	caughtUp, seen, last := 0, 0, events.Position{}
	following := events.Following{CaughtUp: func(p events.Position) {
		if p != last || seen != len(held) {
			failed = fmt.Errorf("CaughtUp(%s) after %d of %d entries, the last at %s", p, seen, len(held), last)
		}
		if caughtUp++; caughtUp <= rounds && failed == nil {
			for range 2 { // two appends, so that a missing one is seen by the next
				if failed == nil {
					held, failed = b.extend(ctx, stream, held, caughtUp)
				}
			}
		}
	}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for e, err := range b.Follow(ctx, events.Position{}, following) {
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		if err := checkEntries([]events.Entry{e}, stream, events.Revision(seen), held[seen:seen+1]); err != nil {
			return fmt.Errorf("follower after it caught up %d times: %w", caughtUp, err)
		}
		if seen, last = seen+1, e.Position; seen == rounds*(rounds+1) {
			break
		}
	}
	if caughtUp != rounds {
		return fmt.Errorf("CaughtUp was called %d times, want %d", caughtUp, rounds)
	}
	return failed
}

// checkResume starts a follower at the position of every entry and lets it run until it
// has caught up. It expects the entries after that position, in order, and a call of
// CaughtUp with the last position of the log.
func (b *fixture) checkResume(ctx context.Context) error {
	all, err := collect(b.ReadAll(ctx, events.Position{}))
	if err != nil {
		return err
	}
	for i, from := range all {
		dying, cancel := context.WithCancelCause(ctx)
		caught := events.Position{}
		rest, err := collect(b.Follow(dying, from.Position, events.Following{CaughtUp: func(p events.Position) {
			caught = p
			cancel(errStop)
		}}))
		if err == nil {
			return fmt.Errorf("Follow(%s) ends without an error, want it to wait", from.Position)
		}
		if len(rest) != len(all)-i-1 || caught != all[len(all)-1].Position {
			return fmt.Errorf("Follow(%s) yields %d entries and catches up at %s, want %d and %s",
				from.Position, len(rest), caught, len(all)-i-1, all[len(all)-1].Position)
		}
		for k, e := range rest {
			if !sameLocation(e, all[i+1+k]) {
				return fmt.Errorf("Follow(%s) yields %s, want %s", from.Position, formatEntry(e), formatEntry(all[i+1+k]))
			}
		}
	}
	return nil
}

// checkLiveAppends follows while four goroutines append, each to its own stream. The
// order of the appends varies, so it compares the followed entries with ReadAll of
// the finished log. It joins the goroutines before it returns.
func (b *fixture) checkLiveAppends(ctx context.Context) error {
	const writers, appends = 4, 15
	before, err := collect(b.ReadAll(ctx, events.Position{}))
	if err != nil {
		return err
	}
	start := before[len(before)-1].Position
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var writing sync.WaitGroup
	defer writing.Wait()
	for w := range writers {
		batches := make([][]events.Record, appends)
		for i := range batches {
			batches[i] = b.records(1 + w%2)
		}
		writing.Go(func() {
			at := events.Revision(0)
			for _, batch := range batches {
				if err := b.Append(ctx, events.Stream(fmt.Sprintf("writer-%d", w)), at, batch...); err != nil {
					cancel(err)
					return
				}
				at += events.Revision(len(batch))
			}
		})
	}
	total := writers / 2 * appends * (1 + 2)
	followed, err := collect(limit(b.Follow(ctx, start), total))
	if err != nil {
		return err
	}
	all, err := collect(b.ReadAll(ctx, start))
	if err != nil || len(all) != total {
		return fmt.Errorf("ReadAll yields %d entries and the error %v, want %d", len(all), err, total)
	}
	for i, e := range followed {
		if !sameLocation(e, all[i]) {
			return fmt.Errorf("entry %d followed is %s, want %s", i+1, formatEntry(e), formatEntry(all[i]))
		}
	}
	return nil
}
