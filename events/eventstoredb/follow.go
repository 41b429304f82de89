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

// errManyFollowings is the answer to more than one Following.
var errManyFollowings = errors.New("follow: there is more than one Following: give one, or none")

// Follow is events.Store's. It outlives the connection: when the server goes
// away it waits for it, without end, and goes on where it was. The server
// filters. With a Filter and CaughtUp both, records that are passed over while
// it waits are told of within a second.
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

// A logFollower is a loop over a subscription that is taken up again and again.
type logFollower struct {
	store     *Store
	following events.Following
	yield     func(events.Entry) bool
	backoff   retryBackoff

	delivered events.Position // of the last entry that is known to be yielded or passed over, or where it began
	seen      events.Position // all that stands before or at it has been yielded or passed over

	live       bool            // the server has sent what there was when the subscription began
	checkEnd   bool            // CaughtUp may be due
	reported   bool            // CaughtUp was called
	reportedAt events.Position // with this
}

// errLoopLeft says that the body left the loop.
var errLoopLeft = errors.New("loop was left")

// run follows until its context ends, the loop is left or an error is final.
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

// errLifetimeOver says that a subscription has lived long enough.
var errLifetimeOver = errors.New("subscription is renewed")

// subscribe follows one subscription to its end.
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

// wait waits for a message. It returns an empty one when CaughtUp may be due.
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

// handle takes in a message.
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
		return nil // it was sent before
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

// reportCaughtUp calls CaughtUp if nothing stands behind what was seen that is still to
// come, and something was seen since it was called last. The subscription does
// not say so while it is live: the end of the log does.
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
	// What was appended meanwhile and is filtered out sends no message.
	f.checkEnd = !f.following.Filter.IsZero()
	return context.Cause(ctx)
}

func laterPosition(p, q events.Position) events.Position {
	if p.Compare(q) < 0 {
		return q
	}
	return p
}

// What stands behind what a follower has seen.
type logTail struct {
	end     events.Position // of the log
	last    events.Position // of the last record of the ledger, if one was found
	pending bool            // there is one that the filter lets through
}

// maxLookback is how many records of others a follower looks back through for the
// place of the last one that it passed over. Behind so many, the place of one
// of theirs serves as well.
const maxLookback = 256

// scanTail looks at the log from its end to what was seen and, because of what
// was passed over, to the last record of the ledger.
func (f *logFollower) scanTail(ctx context.Context) (tail logTail, err error) {
	next, count, foreign := esdb.AllPosition(esdb.End{}), uint64(1), 0
	for {
		done := true // all that matters, or the beginning
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
			// One that is damaged comes as well, and is told of then.
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
