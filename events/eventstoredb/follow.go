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

// errFollowings is the answer to more than one Following.
var errFollowings = errors.New("follow: there is more than one Following: give one, or none")

// Follow is events.Store's. It outlives the connection: when the server goes
// away it waits for it, without end, and goes on where it was. The server
// filters. With a Filter and CaughtUp both, records that are passed over while
// it waits are told of within a second.
func (s *Store) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	return s.loop(ctx, func(ctx context.Context, yield func(events.Entry) bool) error {
		following := events.Following{}
		switch len(options) {
		case 0:
		case 1:
			following = options[0]
		default:
			return errFollowings
		}
		if err := following.Filter.Valid(); err != nil {
			return err
		}
		f := &follower{store: s, following: following, place: after, seen: after, yield: yield}
		if err := f.run(ctx); err != nil {
			return told(ctx, "follow", err)
		}
		return nil
	})
}

// A follower is a loop over a subscription that is taken up again and again.
type follower struct {
	store     *Store
	following events.Following
	yield     func(events.Entry) bool
	pace      pace

	place events.Position // of the last entry that is known to be yielded or passed over, or where it began
	seen  events.Position // all that stands before or at it has been yielded or passed over

	live  bool            // the server has sent what there was when the subscription began
	check bool            // CaughtUp may be due
	told  bool            // CaughtUp was called
	at    events.Position // with this
}

// errLeft says that the body left the loop.
var errLeft = errors.New("loop was left")

// run follows until its context ends, the loop is left or an error is final.
func (f *follower) run(ctx context.Context) error {
	for {
		err := f.subscribe(ctx)
		var stop *stopped
		switch {
		case errors.Is(err, errLeft):
			return nil
		case context.Cause(ctx) != nil:
			return ended(ctx, f.pace.last)
		case errors.As(err, &stop):
			return stop.error
		case errors.Is(err, errRenew):
			continue
		}
		if verdict, err := judge(err); verdict == final {
			return err
		}
		if err := f.pace.failed(ctx, err, 0); err != nil {
			return err
		}
	}
}

// errRenew says that a subscription has lived long enough.
var errRenew = errors.New("subscription is renewed")

// subscribe follows one subscription to its end.
func (f *follower) subscribe(ctx context.Context) error {
	feed := f.store.feed(ctx, subscribing(f.seen, f.store.narrowed(f.following.Filter)))
	defer feed.stop()
	f.live = false
	renew := time.NewTimer(f.store.lifetime)
	defer renew.Stop()
	for {
		select {
		case m := <-feed.messages:
			if err := f.take(ctx, m); err != nil {
				return err
			}
			continue
		default:
		}
		if f.live && f.check && f.following.CaughtUp != nil {
			if err := f.tell(ctx); err != nil {
				return err
			}
			continue
		}
		m, err := f.wait(ctx, feed, renew.C)
		if err != nil {
			return err
		}
		if err := f.take(ctx, m); err != nil {
			return err
		}
	}
}

// wait waits for a message. It returns an empty one when CaughtUp may be due.
func (f *follower) wait(ctx context.Context, feed *feed, renew <-chan time.Time) (message, error) {
	var due <-chan time.Time
	if f.live && f.following.CaughtUp != nil && !f.following.Filter.IsZero() {
		timer := time.NewTimer(f.store.recheck)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case m := <-feed.messages:
		return m, nil
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	case <-renew:
		return message{}, errRenew
	case <-due:
		f.check = true
		return message{}, nil
	}
}

// take takes in a message.
func (f *follower) take(ctx context.Context, m message) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	switch {
	case errors.Is(m.err, io.EOF):
		return errDropped
	case m.err != nil:
		return m.err
	case m.caughtUp:
		f.live, f.check = true, true
	case m.place != nil && place(*m.place).Compare(f.seen) > 0:
		f.seen = place(*m.place)
	}
	f.pace.progressed()
	if m.event == nil {
		return nil
	}
	at := place(m.event.Position)
	stream, ours := f.store.owner(m.event)
	if at.Compare(f.seen) <= 0 {
		return nil // it was sent before
	}
	f.seen, f.check = at, true
	if !ours {
		return nil
	}
	e, err := f.store.entry(stream, m.event)
	if err != nil {
		return &stopped{err}
	}
	f.place = at
	if f.following.Filter.Matches(e.Header()) && !f.yield(e) {
		return errLeft
	}
	return nil
}

// tell calls CaughtUp if nothing stands behind what was seen that is still to
// come, and something was seen since it was called last. The subscription does
// not say so while it is live: the end of the log does.
func (f *follower) tell(ctx context.Context) error {
	f.check = false
	behind, err := f.behind(ctx)
	if err != nil {
		return err
	}
	if behind.coming {
		return nil
	}
	f.seen = later(f.seen, behind.end)
	f.place = later(f.place, behind.last)
	if f.told && f.place == f.at {
		return nil
	}
	f.told, f.at = true, f.place
	f.following.CaughtUp(f.place)
	// What was appended meanwhile and is filtered out sends no message.
	f.check = !f.following.Filter.IsZero()
	return context.Cause(ctx)
}

func later(p, q events.Position) events.Position {
	if p.Compare(q) < 0 {
		return q
	}
	return p
}

// What stands behind what a follower has seen.
type behind struct {
	end    events.Position // of the log
	last   events.Position // of the last record of the ledger, if one was found
	coming bool            // there is one that the filter lets through
}

// farthest is how many records of others a follower looks back through for the
// place of the last one that it passed over. Behind so many, the place of one
// of theirs serves as well.
const farthest = 256

// behind looks at the log from its end to what was seen and, because of what
// was passed over, to the last record of the ledger.
func (f *follower) behind(ctx context.Context) (b behind, err error) {
	next, count, theirs := esdb.AllPosition(esdb.End{}), uint64(1), 0
	for {
		reached := true // all that matters, or the beginning
		start := func() source { return reading("", esdb.Backwards, nil, next, count) }
		err := f.store.drain(ctx, start, func(m message) (bool, error) {
			at := place(m.event.Position)
			b.end = later(b.end, at)
			next = m.event.Position
			known := at.Compare(f.seen) <= 0
			if reached = known && (at.Compare(f.place) <= 0 || f.following.Filter.IsZero() || !b.last.IsZero()); reached {
				return false, nil
			}
			stream, ours := f.store.owner(m.event)
			if !ours {
				theirs++
				if reached = known && theirs > farthest; reached {
					b.last = f.seen
				}
				return !reached, nil
			}
			b.last = later(b.last, at)
			if reached = known; reached {
				return false, nil
			}
			e, err := f.store.entry(stream, m.event)
			// One that is damaged comes as well, and is told of then.
			b.coming = err != nil || f.following.Filter.Matches(e.Header())
			return !b.coming, nil
		})
		if err != nil {
			return b, fmt.Errorf("find the end: %w", err)
		}
		if reached || b.coming {
			return b, nil
		}
		count = 64
	}
}
