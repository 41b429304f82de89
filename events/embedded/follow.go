package embedded

import (
	"context"
	"errors"
	"iter"

	"github.com/settlement-ledger/ledger/events"
)

// errFollowings is the answer to more than one Following.
var errFollowings = errors.New("follow: there is more than one Following; give one, or none")

// Follow is events.Store's. In a store that stopped at a failed write, it ends
// with that failure when it has yielded all that is durable. A follower that is
// at the end holds no memory but its own goroutine's; one that is behind reads
// in its own time, and nobody waits for it.
func (s *Store) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		following := events.Following{}
		switch len(options) {
		case 0:
		case 1:
			following = options[0]
		default:
			yield(events.Entry{}, errFollowings)
			return
		}
		if err := following.Filter.Valid(); err != nil {
			yield(events.Entry{}, err)
			return
		}
		err := s.use(func() error {
			s.mark.herald.Do(func() { s.joined.Go(s.proclaim) })
			return nil
		})
		if err == nil {
			err = newFollower(ctx, s, after, following).run(ctx, yield)
		}
		if err != errLeft {
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
}

func newFollower(ctx context.Context, s *Store, after events.Position, f events.Following) *follower {
	all := spanOf(events.Query{After: after}, limit)
	return &follower{store: s, match: newMatcher(f.Filter), caughtUp: f.CaughtUp, start: after, after: all.first - 1, ended: ctx.Done()}
}

// run yields what there is, says so, and waits for more. It does not return
// nil.
func (f *follower) run(ctx context.Context, yield func(events.Entry, error) bool) error {
	f.store.mark.followers.Add(1)
	defer f.store.mark.followers.Add(-1)
	bell := make(chan struct{}, 1)
	defer context.AfterFunc(ctx, (&waiter{bell: bell}).ring)()
	for {
		if err := f.catchUp(ctx, yield); err != nil {
			return err
		}
		if f.caughtUp != nil {
			f.caughtUp(f.place())
		}
		if err := f.store.await(ctx, f.after, bell); err != nil {
			return err
		}
	}
}

// place is that of the last entry yielded or passed over, or the start.
func (f *follower) place() events.Position {
	if !f.moved {
		return f.start
	}
	return events.NewPosition(f.after, f.after)
}

// catchUp yields what there is: from the groups that the mark keeps, and what
// became durable before those from the database.
func (f *follower) catchUp(ctx context.Context, yield func(events.Entry, error) bool) error {
	var late *backlog
	for {
		if isClosed(f.store.closing) {
			return events.ErrClosed
		}
		if isClosed(f.ended) {
			return context.Cause(ctx)
		}
		end, _ := f.store.mark.now()
		if f.after >= end {
			return nil
		}
		var err error
		if recent := f.store.mark.holding(f.after); recent != nil {
			late, err = nil, f.fromMark(ctx, recent, yield)
		} else {
			if late == nil {
				late = &backlog{haul: newOwned(), names: &names{}, chunk: firstChunk()}
			}
			err = f.fromDatabase(ctx, late, end, yield)
		}
		if err != nil {
			return err
		}
	}
}

// fromMark yields what follows in a group.
func (f *follower) fromMark(ctx context.Context, group *published, yield func(events.Entry, error) bool) error {
	for _, value := range group.values[f.after-group.after:] {
		if isClosed(f.ended) {
			return context.Cause(ctx)
		}
		at := f.after - group.after
		f.passed(f.after + 1)
		if r := raw(value[:len(value)-sumLen]); !f.match.match(r) {
			continue
		}
		if !yield(group.entry(at), nil) {
			return errLeft
		}
	}
	return nil
}

// A backlog is what a follower needs that reads the database.
type backlog struct {
	haul  *haul
	names *names
	chunk chunk
}

// fromDatabase yields what follows in a chunk.
func (f *follower) fromDatabase(ctx context.Context, late *backlog, end uint64, yield func(events.Entry, error) bool) error {
	r := &logReader{store: f.store, match: f.match, left: span{f.after + 1, end}}
	failed := f.store.fetch(ctx, r, late.haul, late.chunk)
	late.chunk = late.chunk.grown().modest()
	for _, found := range late.haul.found {
		if isClosed(f.ended) {
			return context.Cause(ctx)
		}
		f.passed(found.seq)
		if !yield(found.raw.entry(found.seq, late.names), nil) {
			return errLeft
		}
	}
	f.passed(r.left.first - 1)
	return failed
}

// passed says that everything through a sequence was yielded or passed over.
func (f *follower) passed(seq uint64) {
	if seq > f.after {
		f.after, f.moved = seq, true
	}
}
