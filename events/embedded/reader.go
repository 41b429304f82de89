package embedded

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// A chunk bounds how much is read from the database at once. A loop body never
// runs while a database iterator is open, so a slow one pins nothing.
type readLimits struct {
	records int // found
	bytes   int // of those
	seen    int // looked at
}

// chunkBytes is the most that a chunk has, but for its last record.
const maxReadBytes = 512 << 10

// first is small, as many loops want little; grown is for those that go on.
func initialLimits() readLimits { return readLimits{records: 16, bytes: 64 << 10, seen: 1 << 10} }

func (c readLimits) grown() readLimits {
	return readLimits{records: min(c.records*4, 1<<10), bytes: min(c.bytes*2, maxReadBytes), seen: min(c.seen*2, 8<<10)}
}

// modest is for followers, as there are many, and all of them may be behind.
func (c readLimits) forFollower() readLimits {
	return readLimits{records: min(c.records, 256), bytes: min(c.bytes, 64<<10), seen: c.seen}
}

// full reports whether a readBatch for which so many records were seen is at its
// bounds.
func (c readLimits) full(h *readBatch, seen int) bool {
	return len(h.records) >= c.records || h.bytes >= c.bytes || seen >= c.seen
}

// A reader goes through records. What it finds before an error is in the readBatch.
type recordReader interface {
	next(h *readBatch, c readLimits) error
	done() bool // there is nothing left to read
}

// errLoopLeft says that the body of a loop left it.
var errLoopLeft = errors.New("the loop was left")

// forEach gives each of what the reader finds to a function until that returns
// false, which is errLoopLeft.
func (s *Store) forEach(ctx context.Context, r recordReader, h *readBatch, give func(batchRecord) bool) error {
	ended := ctx.Done()
	for c := initialLimits(); ; c = c.grown() {
		// What was read before an error is given before it.
		failed := s.readNext(ctx, r, h, c)
		for _, f := range h.records {
			if isClosed(ended) {
				return context.Cause(ctx)
			}
			if !give(f) {
				return errLoopLeft
			}
		}
		if failed != nil || len(h.records) == 0 && r.done() {
			return failed
		}
	}
}

// fetch reads a chunk.
func (s *Store) readNext(ctx context.Context, r recordReader, h *readBatch, c readLimits) error {
	h.clear()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return s.use(func() error { return r.next(h, c) })
}

// A logReader goes through the records of all streams. It takes the sequences
// that there are none of for damage.
type logReader struct {
	store    *Store
	match    matcher
	left     seqRange
	backward bool
}

func (l *logReader) done() bool { return l.left.empty() }

func (l *logReader) next(h *readBatch, c readLimits) error {
	if l.left.empty() {
		return nil
	}
	it, err := l.store.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(l.left.first), UpperBound: upperBound(l.left.last)})
	if err != nil {
		return asStoreError(err)
	}
	return closed(it, l.walk(it, h, c))
}

func (l *logReader) walk(it *pebble.Iterator, h *readBatch, c readLimits) error {
	step, ok := it.Next, false
	if l.backward {
		step, ok = it.Prev, it.Last()
	} else {
		ok = it.First()
	}
	always := l.match.always()
	for seen := 0; !l.left.empty() && !c.full(h, seen); seen++ {
		seq := l.left.first
		if l.backward {
			seq = l.left.last
		}
		if !ok {
			return missing(it, seq)
		}
		r, err := rawAt(it, seq)
		if err != nil {
			return err
		}
		if always || l.match.match(r) {
			h.add(seq, r)
		}
		if l.backward {
			l.left.last--
		} else {
			l.left.first++
		}
		ok = step()
	}
	return nil
}

// rawAt returns the record that an iterator stands at, which must be the one
// with a sequence.
func rawAt(it *pebble.Iterator, seq uint64) (raw, error) {
	if key := it.Key(); len(key) != entryKeyLen || lastUint64(key) != seq {
		return nil, damaged(seq, "it is missing")
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return nil, asStoreError(err)
	}
	r, err := rawOf(value, seq)
	if err != nil {
		return nil, err
	}
	return r, whole(value, seq)
}

// missing returns what ended an iterator before a record that must be there.
func missing(it *pebble.Iterator, seq uint64) error {
	if err := it.Error(); err != nil {
		return asStoreError(err)
	}
	return damaged(seq, "it is missing")
}

// closed closes an iterator and returns err, or else what closing returned.
func closed(it *pebble.Iterator, err error) error {
	if closing := it.Close(); err == nil {
		return asStoreError(closing)
	}
	return err
}

// behind returns the upper bound of the records through a sequence.
func upperBound(end uint64) []byte {
	if end == maxSequence {
		return entriesEnd()
	}
	return entryKey(end + 1)
}
