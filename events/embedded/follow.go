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

// Follow implements events.Store. In a store that stopped for good it ends with the
// failure after it has yielded all durable entries; in a paused store it waits. A
// follower at the end uses no memory but its goroutine; a slow one reads from the
// database and delays no other.
func (s *Store) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	switch len(options) {
	case 0:
		return s.FollowEvery(ctx, after, events.Following{}, 0, nil)
	case 1:
		return s.FollowEvery(ctx, after, options[0], 0, nil)
	}
	return func(yield func(events.Entry, error) bool) { yield(events.Entry{}, errFollowings) }
}

// FollowEvery is Follow with progress: it calls passed after every so many entries that
// were yielded or filtered out, with the position of the last of them, on the goroutine
// of the loop. The call comes before the next entry and before CaughtUp. Where a filter
// rejects every entry, progress advances in steps of a few thousand entries. If every
// is 0, passed is not called.
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

// A follower yields the records of all streams and waits for more.
type follower struct {
	store    *Store
	match    matcher
	caughtUp func(events.Position)
	start    events.Position
	after    uint64          // the last sequence yielded or filtered out
	moved    bool            // after is no longer the start
	ended    <-chan struct{} // closed when the context ends

	every    uint64                // entries between two calls of onPassed; 0: it is not called
	due      uint64                // the sequence of the next call
	onPassed func(events.Position) // of FollowEvery
}

func newFollower(ctx context.Context, s *Store, after events.Position, f events.Following) *follower {
	all := rangeOf(events.Query{After: after}, layout.MaxSequence)
	return &follower{store: s, match: newMatcher(f.Filter), caughtUp: f.CaughtUp, start: after, after: all.first - 1, ended: ctx.Done()}
}

// run yields entries until an error, calls caughtUp at the end, and waits for more. It
// does not return nil.
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

// catchUp yields all entries up to the watermark: recent ones from memory, earlier ones
// from the database.
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

// yieldRecent yields the entries of a recent group after the follower's sequence.
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
	readLimits readLimits
}

// yieldStored reads the next records from the database and yields them.
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
