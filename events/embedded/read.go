package embedded

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
)

// errFollowings is the answer to more than one Following.
var errFollowings = errors.New("follow: there is more than one Following; give one, or none")

// A chunk bounds how much is read from the database at once. A loop body never
// runs while a database iterator is open, so a slow one pins nothing.
type chunk struct{ records, bytes int }

const chunkBytes = 1 << 20

// first is small, as many loops want little; grown is for those that go on.
func firstChunk() chunk { return chunk{records: 16, bytes: chunkBytes} }

func (c chunk) grown() chunk { return chunk{records: min(c.records*4, 1024), bytes: c.bytes} }

// A cursor yields the entries that follow a place, up to a sequence. It
// returns none when there are none.
type cursor interface {
	next(end uint64, c chunk) ([]events.Entry, error)
}

// Read is events.Store's.
func (s *Store) Read(ctx context.Context, stream events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		s.drain(ctx, &streamCursor{store: s, stream: stream, after: after}, yield)
	}
}

// ReadAll is events.Store's.
func (s *Store) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		s.drain(ctx, newLogCursor(s, after), yield)
	}
}

// Follow is events.Store's. In a store that stopped at a failed write, it ends
// with that failure when it has yielded all that is durable.
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
		matching := func(e events.Entry, err error) bool {
			return err == nil && !following.Filter.Matches(e.Header()) || yield(e, err)
		}
		at := newLogCursor(s, after)
		for s.drain(ctx, at, matching) {
			if following.CaughtUp != nil {
				following.CaughtUp(at.place)
			}
			if err := s.await(ctx, at.after); err != nil {
				yield(events.Entry{}, err)
				return
			}
		}
	}
}

// drain yields what the cursor finds until it finds no more, and then returns
// true. It returns false if the loop was left, or ended with an error.
func (s *Store) drain(ctx context.Context, at cursor, yield func(events.Entry, error) bool) bool {
	for c := firstChunk(); ; c = c.grown() {
		// What was read before an error is yielded before it.
		entries, failed := s.fetch(ctx, at, c)
		for _, e := range entries {
			if err := context.Cause(ctx); err != nil {
				yield(events.Entry{}, err)
				return false
			}
			if !yield(e, nil) {
				return false
			}
		}
		if failed != nil {
			yield(events.Entry{}, failed)
			return false
		}
		if len(entries) == 0 {
			return true
		}
	}
}

// fetch reads a chunk of what is durable now.
func (s *Store) fetch(ctx context.Context, at cursor, c chunk) (entries []events.Entry, err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	err = s.use(func() (err error) {
		end, _ := s.mark.now()
		entries, err = at.next(end, c)
		return err
	})
	return entries, err
}

// await returns nil when there is a durable record behind a sequence.
func (s *Store) await(ctx context.Context, after uint64) error {
	for {
		end, at := s.mark.now()
		if end > after {
			return nil
		}
		moved := at.moved()
		if s.mark.left(at) {
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.closing:
			return events.ErrClosed
		case <-s.guard.stopped:
			return s.guard.failure()
		}
	}
}

// A logCursor goes through all records.
type logCursor struct {
	store *Store
	after uint64          // the sequence that the next one follows
	place events.Position // of the last entry, or where it began
}

func newLogCursor(s *Store, after events.Position) *logCursor {
	seq, _ := after.Parts()
	return &logCursor{store: s, after: seq, place: after}
}

func (l *logCursor) next(end uint64, c chunk) (entries []events.Entry, err error) {
	if l.after >= end {
		return nil, nil
	}
	it, err := l.store.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(l.after + 1), UpperBound: behind(end)})
	if err != nil {
		return nil, translated(err)
	}
	for ok, size := it.First(), 0; ok && len(entries) < c.records && size < c.bytes; ok = it.Next() {
		e, err := entryAt(it, l.after+1)
		if err != nil {
			return entries, errors.Join(err, it.Close())
		}
		entries = append(entries, e)
		size += len(e.Data) + len(e.Metadata)
		l.after, l.place = l.after+1, e.Position
	}
	if err := it.Close(); err != nil {
		return nil, translated(err)
	}
	if len(entries) == 0 {
		return nil, damaged(l.after+1, "it is missing")
	}
	return entries, nil
}

// entryAt decodes the record that an iterator stands at, which must be the one
// with a sequence.
func entryAt(it *pebble.Iterator, seq uint64) (events.Entry, error) {
	if found := lastUint64(it.Key()); found != seq {
		return events.Entry{}, damaged(seq, "it is missing")
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return events.Entry{}, translated(err)
	}
	return decode(value, seq)
}

// behind returns the upper bound of the records through a sequence.
func behind(end uint64) []byte {
	if end == limit {
		return entriesEnd()
	}
	return entryKey(end + 1)
}

// A streamCursor goes through the records of a stream by its index.
type streamCursor struct {
	store  *Store
	stream events.Stream
	after  events.Revision
}

func (r *streamCursor) next(end uint64, c chunk) ([]events.Entry, error) {
	if r.after == limit {
		return nil, nil
	}
	places, err := r.places(end, c.records)
	if err != nil || len(places) == 0 {
		return nil, err
	}
	it, err := r.store.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(places[0]), UpperBound: behind(end)})
	if err != nil {
		return nil, translated(err)
	}
	entries, err := r.gather(it, places, c.bytes)
	if closing := it.Close(); err == nil && closing != nil {
		err = translated(closing)
	}
	return entries, err
}

// places returns the sequences of the entries that come next, through end.
func (r *streamCursor) places(end uint64, most int) (places []uint64, err error) {
	it, err := r.store.db.NewIter(&pebble.IterOptions{LowerBound: indexKey(r.stream, r.after+1), UpperBound: indexEnd(r.stream)})
	if err != nil {
		return nil, translated(err)
	}
	for ok := it.First(); ok && len(places) < most; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, errors.Join(translated(err), it.Close())
		}
		revision := r.after + events.Revision(len(places)+1)
		if len(value) != 8 || lastUint64(it.Key()) != uint64(revision) {
			return nil, errors.Join(r.damaged(revision), it.Close())
		}
		place := lastUint64(value)
		if place > end {
			break
		}
		places = append(places, place)
	}
	return places, translated(it.Close())
}

// gather reads the records at these places until it has so many bytes.
func (r *streamCursor) gather(it *pebble.Iterator, places []uint64, most int) (entries []events.Entry, err error) {
	size := 0
	for _, place := range places {
		if size >= most {
			break
		}
		if !it.SeekGE(entryKey(place)) {
			if err := it.Error(); err != nil {
				return entries, translated(err)
			}
			return entries, damaged(place, "it is missing")
		}
		e, err := entryAt(it, place)
		if err != nil {
			return entries, err
		}
		if e.Stream != r.stream || e.Revision != r.after+1 {
			return entries, damaged(place, fmt.Sprintf("it is not entry %d of %s", r.after+1, r.stream))
		}
		entries = append(entries, e)
		size += len(e.Data) + len(e.Metadata)
		r.after++
	}
	return entries, nil
}

func (r *streamCursor) damaged(revision events.Revision) error {
	return fmt.Errorf("read entry %d of %s: %w: its index is not there", revision, r.stream, events.ErrDamaged)
}
