package serve

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// A meteredStore wraps the embedded store of a served folder and counts its appends and
// its followers for the metrics and the status endpoint. All methods are safe for
// concurrent use.
type meteredStore struct {
	*embedded.Store
	appends atomic.Int64 // successful appends
	records atomic.Int64 // records of the successful appends
	failed  atomic.Int64 // appends that failed with an error other than a conflict
	mu      struct {
		sync.Mutex
		followers map[*trackedFollower]struct{} // the loops of Follow and FollowEvery that run now
	}
}

// newMeteredStore returns a meteredStore over store with all counters at zero. It does
// not close store; the caller does.
func newMeteredStore(store *embedded.Store) *meteredStore {
	m := &meteredStore{Store: store}
	m.mu.followers = map[*trackedFollower]struct{}{}
	return m
}

// A trackedFollower is one running Follow or FollowEvery loop. The field at is the
// sequence number of the last record that the loop yielded or that its filter excluded.
type trackedFollower struct{ at atomic.Uint64 } // written by the loop, read by counters

// Append appends like embedded.Store.Append and counts the result.
func (m *meteredStore) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	_, err := m.Place(ctx, s, after, records...)
	return err
}

// Place appends like embedded.Store.Place and counts the result. A conflict counts
// neither as an append nor as a failure.
func (m *meteredStore) Place(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) (events.Position, error) {
	at, err := m.Store.Place(ctx, s, after, records...)
	switch {
	case err == nil:
		m.appends.Add(1)
		m.records.Add(int64(len(records)))
	case !errors.Is(err, events.ErrConflict):
		m.failed.Add(1)
	}
	return at, err
}

// Follow follows like embedded.Store.Follow. The metrics count the loop as a follower
// while it runs.
func (m *meteredStore) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	return m.trackFollow(after, func(f *trackedFollower) iter.Seq2[events.Entry, error] {
		return m.Store.Follow(ctx, after, observeCaughtUp(options, f)...)
	})
}

// FollowEvery follows like embedded.Store.FollowEvery. The metrics count the loop as a
// follower while it runs.
func (m *meteredStore) FollowEvery(ctx context.Context, after events.Position, o events.Following, every uint64, passed func(events.Position)) iter.Seq2[events.Entry, error] {
	return m.trackFollow(after, func(f *trackedFollower) iter.Seq2[events.Entry, error] {
		return m.Store.FollowEvery(ctx, after, observeCaughtUp([]events.Following{o}, f)[0], every, passed)
	})
}

// trackFollow returns loop with tracking. It registers a trackedFollower when the caller
// starts the loop, advances that follower after each record, and removes it when the
// loop ends.
func (m *meteredStore) trackFollow(after events.Position, loop func(*trackedFollower) iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		f := &trackedFollower{}
		f.at.Store(stores.Sequence(after))
		m.addFollower(f)
		defer m.removeFollower(f)
		for e, err := range loop(f) {
			// The position advances only after yield returns: until then
			// the consumer is still busy with the record, and the record
			// counts as lag.
			if !yield(e, err) {
				return
			}
			if err == nil {
				f.at.Store(stores.Sequence(e.Position))
			}
		}
	}
}

// observeCaughtUp returns a copy of options whose CaughtUp callbacks first set the
// position of f and then call the callback that the option had. If options is empty, the
// result has one option with such a callback.
func observeCaughtUp(options []events.Following, f *trackedFollower) []events.Following {
	noted := func(told func(events.Position)) func(events.Position) {
		return func(p events.Position) {
			f.at.Store(max(f.at.Load(), stores.Sequence(p)))
			if told != nil {
				told(p)
			}
		}
	}
	if len(options) == 0 {
		return []events.Following{{CaughtUp: noted(nil)}}
	}
	all := make([]events.Following, len(options))
	for i, o := range options {
		all[i] = o
		all[i].CaughtUp = noted(o.CaughtUp)
	}
	return all
}

// addFollower adds f to the followers whose number and lag the method counters returns.
func (m *meteredStore) addFollower(f *trackedFollower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.followers[f] = struct{}{}
}

// removeFollower removes f from the followers that addFollower added.
func (m *meteredStore) removeFollower(f *trackedFollower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.followers, f)
}

// A storeCounters is a snapshot of the counters of a meteredStore. Its JSON is part of
// the status of a served store.
type storeCounters struct {
	Head        events.Position `json:"position"`       // position of the last record
	Appends     int64           `json:"appends"`        // successful appends since the store was opened
	Records     int64           `json:"records"`        // records of these appends
	Failed      int64           `json:"failed_appends"` // appends that failed with an error other than a conflict
	Subscribers int             `json:"subscribers"`    // running follow loops
	Lag         uint64          `json:"lag"`            // records between Head and the slowest follower
}

// counters returns a snapshot of the counters. It reads one counter after another, so an
// append during the call may be in some counters and not in others.
func (m *meteredStore) counters() storeCounters {
	r := storeCounters{Head: m.Head(), Appends: m.appends.Load(), Records: m.records.Load(), Failed: m.failed.Load()}
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Subscribers = len(m.mu.followers)
	for f := range m.mu.followers {
		if end, at := stores.Sequence(r.Head), f.at.Load(); at < end {
			r.Lag = max(r.Lag, end-at)
		}
	}
	return r
}
