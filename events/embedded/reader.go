package embedded

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// readLimits bound one read of the database; the first limit that is reached ends it.
// No iterator is open while a loop body runs, so a slow loop body does not keep old
// tables on the disk. A loop reads again after each batch.
type readLimits struct {
	records int // records returned
	bytes   int // bytes of the records returned
	seen    int // records examined, which a filter may reject
}

// maxReadBytes is the number of bytes after which a read ends. The last record of the
// read may exceed it.
const maxReadBytes = 512 << 10

// initialLimits returns the limits of the first read of a loop. They are small,
// because many loops stop early.
func initialLimits() readLimits { return readLimits{records: 16, bytes: 64 << 10, seen: 1 << 10} }

// grown returns the limits for the next read of a loop that continues.
func (c readLimits) grown() readLimits {
	return readLimits{records: min(c.records*4, 1<<10), bytes: min(c.bytes*2, maxReadBytes), seen: min(c.seen*2, 8<<10)}
}

// forFollower returns limits with which a read needs less memory, because a store may
// have many followers.
func (c readLimits) forFollower() readLimits {
	return readLimits{records: min(c.records, 256), bytes: min(c.bytes, 64<<10), seen: c.seen}
}

// full reports whether a read has reached the limits. The argument seen is the number of
// records that the read has examined.
func (c readLimits) full(h *readBatch, seen int) bool {
	return len(h.records) >= c.records || h.bytes >= c.bytes || seen >= c.seen
}

// A recordReader reads the records of a query in order, in several reads. Each read
// continues after the last record of the previous one.
type recordReader interface {
	// next adds the next records to the batch, up to the limits. If next fails, the batch
	// has the records before the error. The caller keeps the database open.
	next(h *readBatch, c readLimits) error
	done() bool // reports whether no records are left to read
}

// errLoopLeft is the result of a loop whose body stopped it. It is not yielded.
var errLoopLeft = errors.New("the caller left the iterator")

// forEach calls the function give for each record of a reader. It returns nil at the end
// of the records, the cause of the context if that ends, and errLoopLeft if give returns
// false. If the reader fails, forEach gives the records before the error and then
// returns the error.
func (s *Store) forEach(ctx context.Context, r recordReader, h *readBatch, give func(batchRecord) bool) error {
	ended := ctx.Done()
	for c := initialLimits(); ; c = c.grown() {
		// The loop gets the records before an error first.
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

// readNext replaces the contents of a batch with the next records.
func (s *Store) readNext(ctx context.Context, r recordReader, h *readBatch, c readLimits) error {
	h.clear()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return s.use(func() error { return r.next(h, c) })
}

// A logReader reads the records of all streams by their sequences. The sequences of a
// store have no gaps, so a sequence without a record is damage.
type logReader struct {
	store    *Store
	match    matcher
	left     seqRange // the sequences still to read
	backward bool     // from left.last to left.first
}

// done reports whether no sequence is left to read.
func (l *logReader) done() bool { return l.left.empty() }

// next opens an iterator over the sequences that are left, reads one batch and closes
// it.
func (l *logReader) next(h *readBatch, c readLimits) error {
	if l.left.empty() {
		return nil
	}
	it, err := l.store.db.NewIter(&pebble.IterOptions{LowerBound: layout.EntryKey(l.left.first), UpperBound: layout.UpperBound(l.left.last)})
	if err != nil {
		return layout.AsDamaged(err)
	}
	return layout.CloseIter(it, l.walk(it, h, c))
}

// walk reads from an iterator until the limits are reached.
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
			return layout.Missing(it, seq)
		}
		r, err := layout.RecordAt(it, seq)
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
