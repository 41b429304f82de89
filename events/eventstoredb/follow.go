package eventstoredb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// errManyFollowings is the error for more than one Following in a call of Follow.
var errManyFollowings = errors.New("follow: more than one Following: pass at most one")

// Follow implements events.Store. It reconnects without a time limit and continues
// behind the last entry. The server applies the Filter. After excluded records are
// appended, Follow calls CaughtUp within about a second.
func (s *Store) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	return s.iterate(ctx, func(ctx context.Context, yield func(events.Entry) bool) error {
		following := events.Following{}
		switch len(options) {
		case 0:
		case 1:
			following = options[0]
		default:
			return errManyFollowings
		}
		if err := following.Filter.Valid(); err != nil {
			return err
		}
		f := &logFollower{store: s, following: following, delivered: after, seen: after, yield: yield}
		if err := f.run(ctx); err != nil {
			return wrapUnlessCancelled(ctx, "follow", err)
		}
		return nil
	})
}

// A logFollower is one Follow loop. It replaces its subscription when the connection
// breaks and when the lifetime of the subscription is over. The goroutine of the loop
// owns it.
//
// Invariant: every event up to the position seen was yielded or excluded, and no event
// behind seen was yielded. Each new subscription begins behind seen, so no entry is
// lost or yielded twice.
//
// The server's message that a subscription has caught up is not enough to call
// CaughtUp: it says only that the subscription reached the end of the log once. When no
// message is waiting, the follower reads the log backward from its end to seen
// (scanTail). If it finds no entry that it must still yield, it has caught up.
type logFollower struct {
	store     *Store
	following events.Following
	yield     func(events.Entry) bool
	backoff   retryBackoff

	// delivered is the position of the last record that was yielded or excluded, and
	// before the first one the position where the follower began. It is the argument of
	// CaughtUp.
	delivered events.Position
	// seen is the position up to which every event was yielded or excluded, events of
	// other streams included.
	seen events.Position

	// live is set when the current subscription has caught up.
	live bool
	// checkEnd is set if the follower must look for the end of the log before it
	// waits again.
	checkEnd bool
	// reported is set when CaughtUp was called.
	reported bool
	// reportedAt is the position that CaughtUp was called with last.
	reportedAt events.Position
}

// errLoopLeft ends a follower whose loop body has left the loop.
var errLoopLeft = errors.New("the caller left the loop")

// run follows until ctx ends, the body leaves the loop or an error is permanent. It
// returns nil if the body left the loop.
func (f *logFollower) run(ctx context.Context) error {
	for {
		err := f.subscribe(ctx)
		var failure *consumerError
		switch {
		case errors.Is(err, errLoopLeft):
			return nil
		case context.Cause(ctx) != nil:
			return contextError(ctx, f.backoff.lastErr)
		case errors.As(err, &failure):
			return failure.error
		case errors.Is(err, errLifetimeOver):
			continue
		}
		if class, err := classify(err); class == permanent {
			return err
		}
		if err := f.backoff.wait(ctx, err, 0); err != nil {
			return err
		}
	}
}

// errLifetimeOver ends a subscription whose lifetime is over. It is not a failure:
// the follower subscribes again at once.
var errLifetimeOver = errors.New("subscription is renewed")

// subscribe handles the messages of one subscription until the subscription ends, and
// returns the reason of the end, which is never nil. Whenever the subscription has
// caught up and no message is waiting, it calls reportCaughtUp.
func (f *logFollower) subscribe(ctx context.Context) error {
	fetch := f.store.startFetch(ctx, subscribeAll(f.seen, f.store.serverFilter(f.following.Filter)))
	defer fetch.stop()
	f.live = false
	lifetime := time.NewTimer(f.store.subscriptionLifetime)
	defer lifetime.Stop()
	for {
		select {
		case m := <-fetch.messages:
			if err := f.handle(ctx, m); err != nil {
				return err
			}
			continue
		default:
		}
		if f.live && f.checkEnd && f.following.CaughtUp != nil {
			if err := f.reportCaughtUp(ctx); err != nil {
				return err
			}
			continue
		}
		m, err := f.wait(ctx, fetch, lifetime.C)
		if err != nil {
			return err
		}
		if err := f.handle(ctx, m); err != nil {
			return err
		}
	}
}

// wait returns the next message, or the reason to end the subscription. For a
// filtered follower it returns an empty message after the recheck interval, because
// excluded records may have been appended without a message.
func (f *logFollower) wait(ctx context.Context, fetch *fetch, expired <-chan time.Time) (serverMessage, error) {
	var recheck <-chan time.Time
	if f.live && f.following.CaughtUp != nil && !f.following.Filter.IsZero() {
		timer := time.NewTimer(f.store.recheckInterval)
		defer timer.Stop()
		recheck = timer.C
	}
	select {
	case m := <-fetch.messages:
		return m, nil
	case <-ctx.Done():
		return serverMessage{}, context.Cause(ctx)
	case <-expired:
		return serverMessage{}, errLifetimeOver
	case <-recheck:
		f.checkEnd = true
		return serverMessage{}, nil
	}
}

// handle processes one message: it advances seen, ignores an event that an earlier
// subscription delivered, and yields a record that passes the filter. It returns
// errDropped if the server ended the subscription, errLoopLeft if the body left the
// loop, and a consumerError for a damaged record.
func (f *logFollower) handle(ctx context.Context, m serverMessage) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	switch {
	case errors.Is(m.err, io.EOF):
		return errDropped
	case m.err != nil:
		return m.err
	case m.caughtUp:
		f.live, f.checkEnd = true, true
	case m.checkpoint != nil && positionOf(*m.checkpoint).Compare(f.seen) > 0:
		f.seen = positionOf(*m.checkpoint)
	}
	f.backoff.reset()
	if m.event == nil {
		return nil
	}
	at := positionOf(m.event.Position)
	stream, ours := f.store.ledgerStreamOf(m.event)
	if at.Compare(f.seen) <= 0 {
		return nil // an earlier subscription delivered it
	}
	f.seen, f.checkEnd = at, true
	if !ours {
		return nil
	}
	e, err := f.store.entry(stream, m.event)
	if err != nil {
		return &consumerError{err}
	}
	f.delivered = at
	if f.following.Filter.Matches(e.Header()) && !f.yield(e) {
		return errLoopLeft
	}
	return nil
}

// reportCaughtUp calls CaughtUp if no entry behind seen passes the filter, and the
// position has changed since the last CaughtUp. It reads the end of the log to find
// out, because a subscription that has caught up sends no message for excluded records.
func (f *logFollower) reportCaughtUp(ctx context.Context) error {
	f.checkEnd = false
	tail, err := f.scanTail(ctx)
	if err != nil {
		return err
	}
	if tail.pending {
		return nil
	}
	f.seen = laterPosition(f.seen, tail.end)
	f.delivered = laterPosition(f.delivered, tail.last)
	if f.reported && f.delivered == f.reportedAt {
		return nil
	}
	f.reported, f.reportedAt = true, f.delivered
	f.following.CaughtUp(f.delivered)
	// The server sends no message for excluded records appended meanwhile.
	f.checkEnd = !f.following.Filter.IsZero()
	return context.Cause(ctx)
}

// laterPosition returns the greater position.
func laterPosition(p, q events.Position) events.Position {
	if p.Compare(q) < 0 {
		return q
	}
	return p
}

// A logTail describes the log behind the events that a follower has seen.
type logTail struct {
	// end is the position of the last event of the log.
	end events.Position
	// last is the position of the last record of the ledger. Zero: the search found
	// no record.
	last events.Position
	// pending is set if an entry that passes the filter is still to come.
	pending bool
}

// maxLookback is the number of foreign events through which scanTail searches for the
// last record of the ledger. Beyond them it uses the position of the last event seen.
const maxLookback = 256

// scanTail reads the log backward from its end to the last event seen. If the follower
// excludes records, scanTail continues to the last record of the ledger, whose position
// is the argument of CaughtUp. It first reads one event, which suffices if the log has
// not grown, and then 64 at a time.
func (f *logFollower) scanTail(ctx context.Context) (tail logTail, err error) {
	next, count, foreign := esdb.AllPosition(esdb.End{}), uint64(1), 0
	for {
		done := true // found all of the tail, or the start of the log
		open := func() fetchFunc { return readEvents("", esdb.Backwards, nil, next, count) }
		err := f.store.consume(ctx, open, func(m serverMessage) (bool, error) {
			at := positionOf(m.event.Position)
			tail.end = laterPosition(tail.end, at)
			next = m.event.Position
			known := at.Compare(f.seen) <= 0
			if done = known && (at.Compare(f.delivered) <= 0 || f.following.Filter.IsZero() || !tail.last.IsZero()); done {
				return false, nil
			}
			stream, ours := f.store.ledgerStreamOf(m.event)
			if !ours {
				foreign++
				if done = known && foreign > maxLookback; done {
					tail.last = f.seen
				}
				return !done, nil
			}
			tail.last = laterPosition(tail.last, at)
			if done = known; done {
				return false, nil
			}
			e, err := f.store.entry(stream, m.event)
			// A damaged record is pending too: the follower ends with its error.
			tail.pending = err != nil || f.following.Filter.Matches(e.Header())
			return !tail.pending, nil
		})
		if err != nil {
			return tail, fmt.Errorf("find the end: %w", err)
		}
		if done || tail.pending {
			return tail, nil
		}
		count = 64
	}
}
