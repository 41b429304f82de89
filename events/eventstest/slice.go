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

// A Slice is a Store in memory: the simplest implementation that keeps every law. It
// is safe for concurrent use. It copies the bytes of a record on Append and again
// when a loop yields it, so that the store and its callers never share bytes.
type Slice struct {
	mu struct {
		sync.Mutex
		entries []events.Entry                   // in order of position; entry i has position i+1
		streams map[events.Stream][]events.Entry // the same entries by stream, in order of revision
		changed chan struct{}                    // closed and replaced when entries grow or the store closes
		closed  bool                             // every operation returns ErrClosed
	}
}

// NewSlice returns an open store without records. The garbage collector frees it;
// Close only ends its operations.
func NewSlice() *Slice {
	s := &Slice{}
	s.mu.changed = make(chan struct{})
	s.mu.streams = map[events.Stream][]events.Entry{}
	return s
}

// SliceHarness returns a Harness over a new [Slice]. Open returns the same Slice each
// time. CutPower closes it and keeps every record, because a Slice has no storage
// besides its memory.
func SliceHarness() Harness {
	s := NewSlice()
	return Harness{
		Open:     func(context.Context) (events.Store, error) { return s.reopen(), nil },
		Close:    func(events.Store) error { s.Close(); return nil },
		CutPower: func(events.Store) error { s.Close(); return nil },
	}
}

// Close ends the operations of the store. Each waiting follower and each later
// operation returns ErrClosed. A loop of Read or ReadAll that has begun still yields
// its entries. Close may be called again.
func (s *Slice) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	s.notifyLocked()
}

// reopen makes a closed store usable again, with its entries. It returns s.
func (s *Slice) reopen() *Slice {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = false
	return s
}

// notifyLocked wakes the waiting followers: it closes the changed channel and makes a
// new one for the next wait. The caller holds mu.
func (s *Slice) notifyLocked() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// truncate drops all entries after the first n. It simulates storage that lost its
// unsynced writes. The store must be closed: a waiting follower is not woken.
func (s *Slice) truncate(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.mu.entries[:min(n, len(s.mu.entries))]
	s.mu.entries, s.mu.streams = nil, map[events.Stream][]events.Entry{}
	for _, e := range kept {
		s.addLocked(e)
	}
}

// Append implements events.Store. It holds mu from the check of the length to the
// last record, so a reader never sees a part of an append. It returns the cause of an
// ended ctx, ErrBadRecord, ErrClosed or a Conflict; after an error the store is
// unchanged.
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

// Read implements events.Store. It yields the entries that the stream has when the
// loop begins.
func (s *Slice) Read(ctx context.Context, stream events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return s.yield(ctx, func() []events.Entry {
		held := s.mu.streams[stream]
		return held[min(uint64(after), uint64(len(held))):]
	})
}

// ReadAll implements events.Store. It yields the entries that the store has when the
// loop begins.
func (s *Slice) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return s.yield(ctx, func() []events.Entry { return s.afterLocked(after) })
}

// Follow implements events.Store. Each step takes one entry and the changed channel
// in one critical section. An append after that section closes the channel, so a
// follower that then waits on it misses no entry. Follow counts an entry that the
// filter rejects as seen: it advances the position and is not yielded.
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

// yield returns a loop over copies of the entries that find selects. It calls find
// once, when the loop begins, with mu held. The loop ends with the cause of ctx if
// ctx ends first, and with ErrClosed if the store is closed when the loop begins.
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

// snapshot calls find with mu held. It returns the entries that find returned, and the
// channel that the next append or Close closes. The entries share the bytes of the
// store: the caller must copy each one before it yields it. The error is the cause of
// ctx or ErrClosed.
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

// addLocked adds an entry at the end of the log and of its stream. It retains the
// bytes of e. The caller holds mu.
func (s *Slice) addLocked(e events.Entry) {
	s.mu.entries = append(s.mu.entries, e)
	s.mu.streams[e.Stream] = append(s.mu.streams[e.Stream], e)
}

// afterLocked returns the entries after a position. For a position at or after the
// end it returns an empty slice. The caller holds mu.
func (s *Slice) afterLocked(p events.Position) []events.Entry {
	seq, _ := p.Parts()
	return s.mu.entries[min(seq, uint64(len(s.mu.entries))):]
}

// validate checks the arguments of an append. It returns ErrBadRecord for an empty
// stream name, an empty list or an invalid record, and otherwise nil. Faults of
// several records are joined.
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

// isRepeat reports whether an append repeats an earlier one. It does if held, the
// entries of the stream, has exactly these records at the revisions after+1, after+2 and
// so on. Later entries do not matter.
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

// sameRecord reports whether two records are equal in all fields. Times are compared
// as instants, and nil data is equal to empty data.
func sameRecord(a, b events.Record) bool {
	return a.ID == b.ID && a.Kind == b.Kind && a.Version == b.Version && a.Time.Equal(b.Time) &&
		string(a.Data) == string(b.Data) && string(a.Metadata) == string(b.Metadata)
}

// cloneRecord returns r with its own copies of data and metadata.
func cloneRecord(r events.Record) events.Record {
	r.Data, r.Metadata = slices.Clone(r.Data), slices.Clone(r.Metadata)
	return r
}
