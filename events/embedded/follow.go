package embedded

import (
	"context"
	"errors"
	"iter"

	"github.com/settlement-ledger/ledger/events"
)

// errFollowings is the answer to more than one Following.
var errFollowings = errors.New("follow: there is more than one Following; give one, or none")

// Follow is events.Store's. In a store that stopped for good at a failed write, it
// ends with that failure when it has yielded all that is durable; in one that is
// paused it waits. A follower that is
// at the end holds no memory but its own goroutine's; one that is behind reads
// in its own time, and nobody waits for it.
func (s *Store) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	switch len(options) {
	case 0:
		return s.FollowEvery(ctx, after, events.Following{}, 0, nil)
	case 1:
		return s.FollowEvery(ctx, after, options[0], 0, nil)
	}
	return func(yield func(events.Entry, error) bool) { yield(events.Entry{}, errFollowings) }
}

// FollowEvery is Follow, and calls passed on the goroutine of the loop each time
// that so many more entries have been yielded or passed over, with the position
// of the last of them. It does so before the next one is yielded and before
// CaughtUp is called, and goes on to where there is nothing to yield in steps of
// a few thousand entries. If every is 0 it never does.
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

// A follower goes through the records of all streams and waits for more.
type follower struct {
	store    *Store
	match    matcher
	caughtUp func(events.Position)
	start    events.Position
	after    uint64          // the sequence that the next one follows
	moved    bool            // from the start
	ended    <-chan struct{} // of the context

	every    uint64                // entries, from one call of tell to the next; 0: never
	due      uint64                // the sequence at which it is called next
	onPassed func(events.Position) // of FollowEvery
}

func newFollower(ctx context.Context, s *Store, after events.Position, f events.Following) *follower {
	all := rangeOf(events.Query{After: after}, maxSequence)
	return &follower{store: s, match: newMatcher(f.Filter), caughtUp: f.CaughtUp, start: after, after: all.first - 1, ended: ctx.Done()}
}

// run yields what there is, says so, and waits for more. It does not return
// nil.
func (f *follower) run(ctx context.Context, yield func(events.Entry, error) bool) error {
	f.store.watermark.followers.Add(1)
	defer f.store.watermark.followers.Add(-1)
	ch := make(chan struct{}, 1)
	defer context.AfterFunc(ctx, (&waiter{ch: ch}).notify)()
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

// place is that of the last entry yielded or passed over, or the start.
func (f *follower) position() events.Position {
	if !f.moved {
		return f.start
	}
	return events.NewPosition(f.after, f.after)
}

// catchUp yields what there is: from the groups that the mark keeps, and what
// became durable before those from the database.
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
				late = &catchUpReader{batch: newOwnedBatch(), interner: &interner{}, readLimits: initialLimits()}
			}
			err = f.yieldStored(ctx, late, end, yield)
		}
		if err != nil {
			return err
		}
	}
}

// yieldRecent yields what follows in a group.
func (f *follower) yieldRecent(ctx context.Context, group *recentGroup, yield func(events.Entry, error) bool) error {
	for _, value := range group.values[f.after-group.after:] {
		if isClosed(f.ended) {
			return context.Cause(ctx)
		}
		r := raw(value[:len(value)-sumLen])
		if f.match.match(r) && !yield(group.entry(f.after-group.after), nil) {
			return errLoopLeft
		}
		f.advance(f.after + 1)
	}
	return nil
}

// A catchUpReader is what a follower needs that reads the database.
type catchUpReader struct {
	batch      *readBatch
	interner   *interner
	readLimits readLimits
}

// yieldStored yields what follows in a chunk.
func (f *follower) yieldStored(ctx context.Context, late *catchUpReader, end uint64, yield func(events.Entry, error) bool) error {
	r := &logReader{store: f.store, match: f.match, left: seqRange{f.after + 1, end}}
	failed := f.store.readNext(ctx, r, late.batch, late.readLimits)
	late.readLimits = late.readLimits.grown().forFollower()
	for _, found := range late.batch.records {
		if isClosed(f.ended) {
			return context.Cause(ctx)
		}
		f.advance(found.seq - 1)
		if !yield(found.raw.entry(found.seq, late.interner), nil) {
			return errLoopLeft
		}
		f.advance(found.seq)
	}
	f.advance(r.left.first - 1)
	return failed
}

// passed says that everything through a sequence was yielded or passed over.
func (f *follower) advance(seq uint64) {
	if seq <= f.after {
		return
	}
	f.after, f.moved = seq, true
	for ; f.every > 0 && f.due <= f.after; f.due += f.every {
		f.onPassed(events.NewPosition(f.due, f.due))
	}
}
