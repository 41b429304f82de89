package embedded

import (
	"context"
	"iter"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
)

var _ events.Scanner = (*Store)(nil)

// Read implements events.Store. It yields the entries of the stream up to the
// watermark at the start of the loop. The caller owns the bytes of the entries; see
// Scan.
func (s *Store) Read(ctx context.Context, stream events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		r := newStreamReader(s, stream, after)
		s.entries(ctx, r, newOwnedBatch(), yield)
	}
}

// ReadAll implements events.Store. It yields the entries up to the watermark at the
// start of the loop, as Scan does.
func (s *Store) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return s.Scan(ctx, events.Query{After: after})
}

// Scan implements events.Scanner. The caller owns the bytes of the entries.
// Consecutive entries may share a buffer of at most 32 KiB, so a caller that keeps a
// few of many entries should copy their bytes.
func (s *Store) Scan(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		if err := q.Valid(); err != nil {
			yield(events.Entry{}, err)
			return
		}
		s.entries(ctx, s.recordReader(q), newOwnedBatch(), yield)
	}
}

// Lend implements events.Scanner. All entries of a loop use one buffer, which the
// next read overwrites. An invalid query yields events.ErrBadQuery.
func (s *Store) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		if err := q.Valid(); err != nil {
			yield(events.Entry{}, err)
			return
		}
		s.entries(ctx, s.recordReader(q), newReusedBatch(layout.RawRecord.Len), yield)
	}
}

// Headers implements events.Scanner. It copies only the header of each record from
// the database.
func (s *Store) Headers(ctx context.Context, q events.Query) iter.Seq2[events.Header, error] {
	return func(yield func(events.Header, error) bool) {
		if err := q.Valid(); err != nil {
			yield(events.Header{}, err)
			return
		}
		known := &layout.Interner{}
		err := s.forEach(ctx, s.recordReader(q), newReusedBatch(layout.RawRecord.BodyOffset), func(f batchRecord) bool {
			return yield(f.raw.Header(f.seq, known), nil)
		})
		if err != nil && err != errLoopLeft {
			yield(events.Header{}, err)
		}
	}
}

// entries yields the entries of a reader, and its error if it ends with one. h
// decides who owns the bytes.
func (s *Store) entries(ctx context.Context, r recordReader, h *readBatch, yield func(events.Entry, error) bool) {
	known := &layout.Interner{}
	err := s.forEach(ctx, r, h, func(f batchRecord) bool { return yield(f.raw.Entry(f.seq, known), nil) })
	if err != nil && err != errLoopLeft {
		yield(events.Entry{}, err)
	}
}

// recordReader returns a reader of the records that a valid query selects, up to the
// watermark at the time of the call: a streamReader for a query of one stream, and
// otherwise a logReader.
func (s *Store) recordReader(q events.Query) recordReader {
	end, _ := s.watermark.load()
	if q.Stream == "" {
		return &logReader{store: s, match: newMatcher(q.Filter), left: rangeOf(q, end), backward: q.Backward}
	}
	r := newStreamReader(s, q.Stream, 0)
	r.match, r.among, r.backward = newMatcher(q.Filter), rangeOf(q, end), q.Backward
	return r
}
