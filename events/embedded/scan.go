package embedded

import (
	"context"
	"iter"

	"github.com/settlement-ledger/ledger/events"
)

var _ events.Scanner = (*Store)(nil)

// Read is events.Store's.
func (s *Store) Read(ctx context.Context, stream events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		r := newStreamReader(s, stream, after)
		s.entries(ctx, r, newOwnedBatch(), yield)
	}
}

// ReadAll is events.Store's.
func (s *Store) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return s.Scan(ctx, events.Query{After: after})
}

// Scan is events.Scanner's. The bytes of entries yielded one after the other
// may lie in one piece of memory, of at most 32 KiB: who keeps few of many for
// long copies those.
func (s *Store) Scan(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		if err := q.Valid(); err != nil {
			yield(events.Entry{}, err)
			return
		}
		s.entries(ctx, s.recordReader(q), newOwnedBatch(), yield)
	}
}

// Lend is events.Scanner's.
func (s *Store) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		if err := q.Valid(); err != nil {
			yield(events.Entry{}, err)
			return
		}
		s.entries(ctx, s.recordReader(q), newReusedBatch(raw.all), yield)
	}
}

// Headers is events.Scanner's.
func (s *Store) Headers(ctx context.Context, q events.Query) iter.Seq2[events.Header, error] {
	return func(yield func(events.Header, error) bool) {
		if err := q.Valid(); err != nil {
			yield(events.Header{}, err)
			return
		}
		known := &interner{}
		err := s.forEach(ctx, s.recordReader(q), newReusedBatch(raw.bodyOffset), func(f batchRecord) bool {
			return yield(f.raw.header(f.seq, known), nil)
		})
		if err != nil && err != errLoopLeft {
			yield(events.Header{}, err)
		}
	}
}

// entries yields the entries that a reader finds until it finds no more.
func (s *Store) entries(ctx context.Context, r recordReader, h *readBatch, yield func(events.Entry, error) bool) {
	known := &interner{}
	err := s.forEach(ctx, r, h, func(f batchRecord) bool { return yield(f.raw.entry(f.seq, known), nil) })
	if err != nil && err != errLoopLeft {
		yield(events.Entry{}, err)
	}
}

// reader returns what answers a query.
func (s *Store) recordReader(q events.Query) recordReader {
	end, _ := s.watermark.load()
	if q.Stream == "" {
		return &logReader{store: s, match: newMatcher(q.Filter), left: rangeOf(q, end), backward: q.Backward}
	}
	r := newStreamReader(s, q.Stream, 0)
	r.match, r.among, r.backward = newMatcher(q.Filter), rangeOf(q, end), q.Backward
	return r
}
