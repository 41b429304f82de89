package main

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

// A meter is a store that counts what is asked of it.
type meter struct {
	*embedded.Store
	appends atomic.Int64 // that succeeded
	records atomic.Int64 // of those
	failed  atomic.Int64 // appends with an error that is no conflict
	mu      struct {
		sync.Mutex
		followers map[*follower]struct{}
	}
}

func newMeter(store *embedded.Store) *meter {
	m := &meter{Store: store}
	m.mu.followers = map[*follower]struct{}{}
	return m
}

// A follower is one who is kept current.
type follower struct{ at atomic.Uint64 } // the sequence of the last record that it was given or that was passed over for it

// Append is embedded.Store's.
func (m *meter) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	_, err := m.Place(ctx, s, after, records...)
	return err
}

// Place is embedded.Store's.
func (m *meter) Place(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) (events.Position, error) {
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

// Follow is embedded.Store's.
func (m *meter) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	return m.followed(after, func(f *follower) iter.Seq2[events.Entry, error] {
		return m.Store.Follow(ctx, after, observed(options, f)...)
	})
}

// FollowEvery is embedded.Store's.
func (m *meter) FollowEvery(ctx context.Context, after events.Position, o events.Following, every uint64, passed func(events.Position)) iter.Seq2[events.Entry, error] {
	return m.followed(after, func(f *follower) iter.Seq2[events.Entry, error] {
		return m.Store.FollowEvery(ctx, after, observed([]events.Following{o}, f)[0], every, passed)
	})
}

// followed is a loop whose follower is counted while it runs.
func (m *meter) followed(after events.Position, loop func(*follower) iter.Seq2[events.Entry, error]) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		f := &follower{}
		f.at.Store(stores.Sequence(after))
		m.enlist(f)
		defer m.dismiss(f)
		for e, err := range loop(f) {
			// One that takes a record has room for it: until then it lags.
			if !yield(e, err) {
				return
			}
			if err == nil {
				f.at.Store(stores.Sequence(e.Position))
			}
		}
	}
}

// observed returns options with which a follower notes what it has caught up
// with.
func observed(options []events.Following, f *follower) []events.Following {
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

func (m *meter) enlist(f *follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.followers[f] = struct{}{}
}

func (m *meter) dismiss(f *follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.followers, f)
}

// A reading is what a meter shows.
type reading struct {
	Head        events.Position `json:"position"`
	Appends     int64           `json:"appends"`
	Records     int64           `json:"records"`
	Failed      int64           `json:"failed_appends"`
	Subscribers int             `json:"subscribers"`
	Lag         uint64          `json:"lag"` // records that the one furthest behind has before it
}

func (m *meter) read() reading {
	r := reading{Head: m.Head(), Appends: m.appends.Load(), Records: m.records.Load(), Failed: m.failed.Load()}
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
