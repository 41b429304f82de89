package embedded

import (
	"context"
	"errors"
	"iter"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// errFollowings is the error for more than one Following.
var errFollowings = errors.New("follow: there is more than one Following; give one, or none")

// Follow implements events.Store. More than one Following is an error. In a store
// that has stopped for good, the loop yields all durable entries and then ends with
// the failure. In a paused store it waits.
//
// A follower that has caught up keeps no buffer, and gets new entries from memory. A
// slow follower reads the database and does not delay other followers or appends.
func (s *Store) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	switch len(options) {
	case 0:
		return s.FollowEvery(ctx, after, events.Following{}, 0, nil)
	case 1:
		return s.FollowEvery(ctx, after, options[0], 0, nil)
	}
	return func(yield func(events.Entry, error) bool) { yield(events.Entry{}, errFollowings) }
}

// FollowEvery does what Follow does and reports progress. Each time the loop has handled
// a further number of entries, the argument every, FollowEvery calls passed with the
// position of the last handled entry, on the goroutine of the loop. An entry is handled
// when the loop has yielded it or the filter has rejected it. FollowEvery calls passed
// before it yields the next entry and before it calls CaughtUp. While a filter rejects
// every entry, the calls come in bursts, after each read of a few thousand entries. If
// every is 0, FollowEvery does not call passed.
func (s *Store) FollowEvery(ctx context.Context, after events.Position, following events.Following, every uint64, passed func(events.Position)) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		if err := following.Filter.Valid(); err != nil {
			yield(events.Entry{}, err)
			return
		}
		err := s.use(func() error {
			s.watermark.notifier.Do(func() { s.joined.Go(s.notifyLoop) })
			return nil
		})
		if err == nil {
			f := newFollower(ctx, s, after, following)
			f.every, f.due, f.onPassed = every, f.after+every, passed
			err = f.run(ctx, yield)
		}
		if err != errLoopLeft {
			yield(events.Entry{}, err)
		}
	}
}

// A follower is one running loop of FollowEvery. It belongs to the goroutine of the
// loop.
type follower struct {
	store    *Store
	match    matcher               // of the filter
	caughtUp func(events.Position) // of the Following; may be nil
	start    events.Position       // the position that the caller gave
	after    uint64                // the last sequence yielded or filtered out
	moved    bool                  // after is no longer the start
	ended    <-chan struct{}       // closed when the context ends

	every    uint64                // entries between two calls of onPassed; 0: it is not called
	due      uint64                // the sequence of the next call
	onPassed func(events.Position) // of FollowEvery
}

// newFollower returns a follower that yields the entries after a position until ctx
// ends.
func newFollower(ctx context.Context, s *Store, after events.Position, f events.Following) *follower {
	all := rangeOf(events.Query{After: after}, layout.MaxSequence)
	return &follower{store: s, match: newMatcher(f.Filter), caughtUp: f.CaughtUp, start: after, after: all.first - 1, ended: ctx.Done()}
}

// run yields entries until an error and returns it; it never returns nil. In each
// round it catches up with the watermark, calls caughtUp, and waits. When the
// watermark advances or ctx ends, a value is sent to ch, so run waits for one channel
// only.
func (f *follower) run(ctx context.Context, yield func(events.Entry, error) bool) error {
	f.store.watermark.followers.Add(1)
	defer f.store.watermark.followers.Add(-1)
	ch := make(chan struct{}, 1)
	defer context.AfterFunc(ctx, (&subscription{ch: ch}).notify)()
	for {
		if err := f.catchUp(ctx, yield); err != nil {
			return err
		}
		if f.caughtUp != nil {
			f.caughtUp(f.position())
		}
		if err := f.store.await(ctx, f.after, ch); err != nil {
			return err
		}
	}
}

// position returns the position of the last entry yielded or filtered out, or the
// start.
func (f *follower) position() events.Position {
	if !f.moved {
		return f.start
	}
	return events.NewPosition(f.after, f.after)
}

// catchUp yields all entries up to the watermark. If the watermark keeps the group of
// the record after f.after in memory, catchUp takes the group from there. Otherwise
// it reads a batch from the database. It drops the buffers for the database as soon
// as it finds a group in memory.
func (f *follower) catchUp(ctx context.Context, yield func(events.Entry, error) bool) error {
	var late *catchUpReader
	for {
		if isClosed(f.store.closing) {
			return events.ErrClosed
		}
		if isClosed(f.ended) {
			return context.Cause(ctx)
		}
		end, _ := f.store.watermark.load()
		if f.after >= end {
			return nil
		}
		var err error
		if recent := f.store.watermark.groupAfter(f.after); recent != nil {
			late, err = nil, f.yieldRecent(ctx, recent, yield)
		} else {
			if late == nil {
				late = &catchUpReader{batch: newOwnedBatch(), interner: &layout.Interner{}, readLimits: initialLimits()}
			}
			err = f.yieldStored(ctx, late, end, yield)
		}
		if err != nil {
			return err
		}
	}
}

// yieldRecent yields the entries of a recent group that come after the follower's
// sequence. Each entry is a copy that the caller owns.
func (f *follower) yieldRecent(ctx context.Context, group *recentGroup, yield func(events.Entry, error) bool) error {
	for _, value := range group.values[f.after-group.after:] {
		if isClosed(f.ended) {
			return context.Cause(ctx)
		}
		r := layout.RawRecord(value[:len(value)-layout.SumLen])
		if f.match.match(r) && !yield(group.entry(f.after-group.after), nil) {
			return errLoopLeft
		}
		f.advance(f.after + 1)
	}
	return nil
}

// A catchUpReader holds the buffers of a follower that reads the database.
type catchUpReader struct {
	batch      *readBatch
	interner   *layout.Interner
	readLimits readLimits // of the next read
}

// yieldStored reads one batch of records from the database, up to the sequence end, and
// yields them. The entries that the filter rejects advance the follower as well. If the
// read fails, yieldStored yields the records before the error and returns the error.
func (f *follower) yieldStored(ctx context.Context, late *catchUpReader, end uint64, yield func(events.Entry, error) bool) error {
	r := &logReader{store: f.store, match: f.match, left: seqRange{f.after + 1, end}}
	failed := f.store.readNext(ctx, r, late.batch, late.readLimits)
	late.readLimits = late.readLimits.grown().forFollower()
	for _, found := range late.batch.records {
		if isClosed(f.ended) {
			return context.Cause(ctx)
		}
		f.advance(found.seq - 1)
		if !yield(found.raw.Entry(found.seq, late.interner), nil) {
			return errLoopLeft
		}
		f.advance(found.seq)
	}
	f.advance(r.left.first - 1)
	return failed
}

// advance records that all entries through a sequence were yielded or filtered out,
// and calls onPassed when it is due.
func (f *follower) advance(seq uint64) {
	if seq <= f.after {
		return
	}
	f.after, f.moved = seq, true
	for ; f.every > 0 && f.due <= f.after; f.due += f.every {
		f.onPassed(events.NewPosition(f.due, f.due))
	}
}
