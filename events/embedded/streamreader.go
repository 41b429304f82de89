package embedded

import (
	"fmt"
	"sort"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

// A streamReader reads the records of one stream. It reads the sequences of the next
// revisions from the index, and then the records at these sequences. Revisions have
// no gaps, so a missing index entry before the end is damage. It belongs to one
// goroutine.
type streamReader struct {
	store      *Store
	stream     events.Stream
	match      matcher  // of the query's filter
	among      seqRange // the range of sequences that the query selects
	backward   bool     // from left.last to left.first
	left       seqRange // the revisions still to read; last is maxSequence until it is known
	positioned bool     // seek has run
}

// newStreamReader returns a forward reader of the records of a stream after a revision,
// up to the watermark.
func newStreamReader(s *Store, stream events.Stream, after events.Revision) *streamReader {
	end, _ := s.watermark.load()
	r := &streamReader{store: s, stream: stream, match: newMatcher(events.Filter{}), among: seqRange{1, end}, left: nothing}
	if after < layout.MaxSequence {
		r.left = seqRange{uint64(after) + 1, layout.MaxSequence}
	}
	return r
}

// nothing is an empty range.
var nothing = seqRange{first: 1, last: 0}

// done reports whether no revision is left to read.
func (r *streamReader) done() bool { return r.left.empty() }

// next reads the sequences of the next revisions from the index and then their
// records. The first call positions the reader.
func (r *streamReader) next(h *readBatch, c readLimits) error {
	if err := r.seek(); err != nil || r.done() {
		return err
	}
	most := c.records
	if !r.match.always() {
		most = min(c.seen, 1<<10)
	}
	sequences, err := r.sequences(most)
	if err != nil || len(sequences) == 0 {
		return err
	}
	low, high := sequences[0], sequences[len(sequences)-1]
	it, err := r.store.db.NewIter(&pebble.IterOptions{LowerBound: layout.EntryKey(min(low, high)), UpperBound: layout.UpperBound(max(low, high))})
	if err != nil {
		return layout.AsDamaged(err)
	}
	return layout.CloseIter(it, r.readRecords(it, sequences, h, c))
}

// seek prepares the first read; later calls do nothing. It narrows left to the
// revisions whose sequences are in the range among, by binary search in the index.
// The search is possible because the sequences of a stream increase with its
// revisions. A forward query that starts at the first sequence needs no search,
// because the method sequences finds its last revision.
func (r *streamReader) seek() error {
	if r.positioned {
		return nil
	}
	r.positioned = true
	if r.among.empty() {
		r.left = nothing
	}
	if r.done() || !r.backward && r.among.first == 1 {
		return nil
	}
	it, err := r.index(seqRange{1, layout.MaxSequence})
	if err != nil {
		return err
	}
	if !it.Last() {
		r.left = nothing
		return layout.CloseIter(it, nil)
	}
	length := int(layout.LastUint64(it.Key()))
	from := func(least uint64) int { // returns the number of revisions before a sequence
		return sort.Search(length, func(i int) bool {
			it.SeekGE(layout.IndexKey(r.stream, events.Revision(i+1)))
			place, failed := r.place(it, events.Revision(i+1))
			if err == nil {
				err = failed
			}
			return place >= least
		})
	}
	r.left.first = max(r.left.first, uint64(from(r.among.first))+1)
	if r.backward {
		r.left.last = uint64(from(r.among.last + 1))
	}
	return layout.CloseIter(it, err)
}

// index returns an iterator over the index entries of a range of revisions. The
// caller closes it.
func (r *streamReader) index(revisions seqRange) (*pebble.Iterator, error) {
	end := layout.IndexEnd(r.stream)
	if revisions.last < layout.MaxSequence {
		end = layout.IndexKey(r.stream, events.Revision(revisions.last+1))
	}
	it, err := r.store.db.NewIter(&pebble.IterOptions{LowerBound: layout.IndexKey(r.stream, events.Revision(revisions.first)), UpperBound: end})
	return it, layout.AsDamaged(err)
}

// place returns the sequence in the index entry at an iterator. It returns ErrDamaged
// if there is no entry or it is not the entry of the revision.
func (r *streamReader) place(it *pebble.Iterator, revision events.Revision) (uint64, error) {
	if !it.Valid() {
		if err := it.Error(); err != nil {
			return 0, layout.AsDamaged(err)
		}
		return 0, r.damaged(revision)
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return 0, layout.AsDamaged(err)
	}
	if len(value) != 8 || layout.LastUint64(it.Key()) != uint64(revision) {
		return 0, r.damaged(revision)
	}
	return layout.LastUint64(value), nil
}

// sequences returns the sequences of the next records. The argument most is the largest
// number of sequences to return. If the reader reaches the end of the stream or of the
// range among, it sets left.last to the last revision before that end.
func (r *streamReader) sequences(most int) (sequences []uint64, err error) {
	it, err := r.index(r.left)
	if err != nil {
		return nil, err
	}
	revision, by, step, ok := r.left.first, uint64(1), it.Next, false
	if r.backward {
		revision, by, step, ok = r.left.last, ^uint64(0), it.Prev, it.Last()
	} else {
		ok = it.First()
	}
	for ; len(sequences) < most && r.left.first <= revision && revision <= r.left.last; revision += by {
		if !ok && it.Error() == nil && r.left.last == layout.MaxSequence {
			r.left.last = revision - 1
			break
		}
		place, err := r.place(it, events.Revision(revision))
		if err != nil {
			return nil, layout.CloseIter(it, err)
		}
		if place > r.among.last {
			r.left.last = revision - 1
			break
		}
		sequences = append(sequences, place)
		ok = step()
	}
	return sequences, layout.CloseIter(it, nil)
}

// readRecords reads the records with these sequences into the batch, up to the
// limits, and advances left past each. It returns ErrDamaged unless each record is
// the expected revision of the stream.
func (r *streamReader) readRecords(it *pebble.Iterator, sequences []uint64, h *readBatch, c readLimits) error {
	always := r.match.always()
	for seen, place := range sequences {
		if c.full(h, seen) {
			return nil
		}
		if !it.SeekGE(layout.EntryKey(place)) {
			return layout.Missing(it, place)
		}
		found, err := layout.RecordAt(it, place)
		if err != nil {
			return err
		}
		revision := r.left.first
		if r.backward {
			revision = r.left.last
		}
		if string(found.Stream()) != string(r.stream) || uint64(found.Revision()) != revision {
			return layout.Damaged(place, fmt.Sprintf("it is not entry %d of %s", revision, r.stream))
		}
		if always || r.match.match(found) {
			h.add(place, found)
		}
		if r.backward {
			r.left.last--
		} else {
			r.left.first++
		}
	}
	return nil
}

// damaged returns the error for a missing or malformed index entry.
func (r *streamReader) damaged(revision events.Revision) error {
	return fmt.Errorf("read entry %d of %s: %w: its index is not there", revision, r.stream, events.ErrDamaged)
}
