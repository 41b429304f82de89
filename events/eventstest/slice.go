package eventstest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/events"
)

// A Slice is a Store in memory: the simplest implementation that keeps the
// laws. It is safe for concurrent use.
type Slice struct {
	mu struct {
		sync.Mutex
		entries []events.Entry                   // in order of position
		streams map[events.Stream][]events.Entry // the same, by stream
		changed chan struct{}                    // closed when entries grow or the store closes
		closed  bool
	}
}

// NewSlice returns an empty store.
func NewSlice() *Slice {
	s := &Slice{}
	s.mu.changed = make(chan struct{})
	s.mu.streams = map[events.Stream][]events.Entry{}
	return s
}

// SliceHarness returns a Harness over a new [Slice]. A simulated power cut
// loses nothing, because its memory is its storage.
func SliceHarness() Harness {
	s := NewSlice()
	return Harness{
		Open:     func(context.Context) (events.Store, error) { return s.reopen(), nil },
		Close:    func(events.Store) error { s.Close(); return nil },
		CutPower: func(events.Store) error { s.Close(); return nil },
	}
}

// Close makes every current and later operation return ErrClosed.
func (s *Slice) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	s.notifyLocked()
}

// reopen makes a closed store usable again, with its entries.
func (s *Slice) reopen() *Slice {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = false
	return s
}

// notifyLocked wakes the followers. The caller holds mu.
func (s *Slice) notifyLocked() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// truncate drops all entries after the first n, as storage that lost unsynced
// writes does.
func (s *Slice) truncate(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.mu.entries[:min(n, len(s.mu.entries))]
	s.mu.entries, s.mu.streams = nil, map[events.Stream][]events.Entry{}
	for _, e := range kept {
		s.addLocked(e)
	}
}

// Append implements events.Store.
func (s *Slice) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := validate(stream, records); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return events.ErrClosed
	}
	held := s.mu.streams[stream]
	if int(after) != len(held) {
		if isRepeat(held, after, records) {
			return nil
		}
		return &events.Conflict{Stream: stream, After: after}
	}
	for i, r := range records {
		seq := uint64(len(s.mu.entries) + 1)
		s.addLocked(events.Entry{
			Record: cloneRecord(r), Stream: stream, Revision: after + events.Revision(i+1), Position: events.NewPosition(seq, seq),
		})
	}
	s.notifyLocked()
	return nil
}

// Read implements events.Store.
func (s *Slice) Read(ctx context.Context, stream events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return s.yield(ctx, func() []events.Entry {
		held := s.mu.streams[stream]
		return held[min(uint64(after), uint64(len(held))):]
	})
}

// ReadAll implements events.Store.
func (s *Slice) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return s.yield(ctx, func() []events.Entry { return s.afterLocked(after) })
}

// Follow implements events.Store.
func (s *Slice) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		var filter events.Filter
		if len(options) > 0 {
			filter = options[0].Filter
		}
		if err := filter.Valid(); err != nil {
			yield(events.Entry{}, err)
			return
		}
		caughtUp := false
		for {
			entries, changed, err := s.snapshot(ctx, func() []events.Entry {
				next := s.afterLocked(after)
				return next[:min(1, len(next))]
			})
			if err != nil {
				yield(events.Entry{}, err)
				return
			}
			if len(entries) > 0 {
				after, caughtUp = entries[0].Position, false
				e := entries[0]
				if !filter.Matches(e.Header()) {
					continue
				}
				e.Record = cloneRecord(e.Record)
				if !yield(e, nil) {
					return
				}
				continue
			}
			if !caughtUp && len(options) > 0 && options[0].CaughtUp != nil {
				caughtUp = true
				options[0].CaughtUp(after)
				continue
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// yield yields copies of the entries that find selects at the start of the
// loop, until ctx ends.
func (s *Slice) yield(ctx context.Context, find func() []events.Entry) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		entries, _, err := s.snapshot(ctx, find)
		for _, e := range entries {
			if err = context.Cause(ctx); err != nil {
				break
			}
			e.Record = cloneRecord(e.Record)
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(events.Entry{}, err)
		}
	}
}

// snapshot returns the entries that find selects and the channel that is closed
// when there are more. The entries share the store's bytes: the caller copies
// each before it yields it.
func (s *Slice) snapshot(ctx context.Context, find func() []events.Entry) ([]events.Entry, <-chan struct{}, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, nil, events.ErrClosed
	}
	return find(), s.mu.changed, nil
}

// addLocked appends an entry. The caller holds mu.
func (s *Slice) addLocked(e events.Entry) {
	s.mu.entries = append(s.mu.entries, e)
	s.mu.streams[e.Stream] = append(s.mu.streams[e.Stream], e)
}

// afterLocked returns the entries after a position. The caller holds mu.
func (s *Slice) afterLocked(p events.Position) []events.Entry {
	seq, _ := p.Parts()
	return s.mu.entries[min(seq, uint64(len(s.mu.entries))):]
}

// validate returns an ErrBadRecord for an empty stream name, an empty list or
// invalid records, and otherwise nil.
func validate(stream events.Stream, records []events.Record) error {
	if stream == "" {
		return fmt.Errorf("%w: it has no stream", events.ErrBadRecord)
	}
	if len(records) == 0 {
		return fmt.Errorf("%w: there are no records", events.ErrBadRecord)
	}
	var faults []error
	for _, r := range records {
		faults = append(faults, r.Valid())
	}
	return errors.Join(faults...)
}

// isRepeat reports whether the records are equal to the stored ones after a
// revision.
func isRepeat(held []events.Entry, after events.Revision, records []events.Record) bool {
	if int(after)+len(records) > len(held) {
		return false
	}
	for i, r := range records {
		if !sameRecord(held[int(after)+i].Record, r) {
			return false
		}
	}
	return true
}

// sameRecord reports whether two records are equal in all fields.
func sameRecord(a, b events.Record) bool {
	return a.ID == b.ID && a.Kind == b.Kind && a.Version == b.Version && a.Time.Equal(b.Time) &&
		string(a.Data) == string(b.Data) && string(a.Metadata) == string(b.Metadata)
}

// cloneRecord returns r with its own copies of data and metadata.
func cloneRecord(r events.Record) events.Record {
	r.Data, r.Metadata = slices.Clone(r.Data), slices.Clone(r.Metadata)
	return r
}
