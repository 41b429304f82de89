package eventstoredb

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// Scan is events.Scanner's. Forward through all streams, the server passes
// over what a filter does not let through; a single stream, and all streams
// backward, are filtered here, because the client offers no filter for them.
func (s *Store) Scan(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return s.loop(ctx, func(ctx context.Context, yield func(events.Entry) bool) error {
		if err := q.Valid(); err != nil {
			return err
		}
		asked := func(e events.Entry) bool { return !q.Matches(e.Header()) || yield(e) }
		switch {
		case q.Backward:
			return s.backward(ctx, q, asked)
		case q.Stream != "":
			return s.read(ctx, q.Stream, 0, func(e events.Entry) bool {
				if !q.Through.IsZero() && e.Position.Compare(q.Through) > 0 {
					return false
				}
				return e.Position.Compare(q.After) <= 0 || asked(e)
			})
		}
		return s.forward(ctx, q, asked)
	})
}

// forward yields what stands behind q.After, up to q.Through or the end that
// there is now. It follows what the server filters as far as that.
func (s *Store) forward(ctx context.Context, q events.Query, yield func(events.Entry) bool) error {
	end, err := s.last(ctx)
	if err != nil {
		return told(ctx, "read all", err)
	}
	if !q.Through.IsZero() && q.Through.Compare(end) < 0 {
		end = q.Through
	}
	seen := q.After
	if seen.Compare(end) >= 0 {
		return nil
	}
	err = s.drain(ctx, func() source { return subscribing(seen, s.narrowed(q.Filter)) }, func(m message) (bool, error) {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		if m.event == nil {
			if m.place != nil && place(*m.place).Compare(seen) > 0 {
				seen = place(*m.place)
			}
			return !m.caughtUp && seen.Compare(end) < 0, nil
		}
		at := place(m.event.Position)
		if at.Compare(end) > 0 {
			return false, nil
		}
		if at.Compare(seen) <= 0 {
			return true, nil
		}
		seen = at
		stream, ours := s.owner(m.event)
		if !ours {
			return at != end, nil
		}
		e, err := s.entry(stream, m.event)
		if err != nil {
			return false, err
		}
		return yield(e) && at != end, nil
	})
	return told(ctx, "read all", err)
}

// backward yields what stands before q.After, or the end, back to q.Through.
func (s *Store) backward(ctx context.Context, q events.Query, yield func(events.Entry) bool) error {
	name, next := "", q.After // for a stream, where its next entry stands before
	if q.Stream != "" {
		name = s.namespace + string(q.Stream)
	}
	var length events.Revision // what the last one seen made the stream
	whole := true
	start := func() source {
		from, revision := esdb.AllPosition(esdb.End{}), esdb.StreamPosition(esdb.End{})
		if !next.IsZero() {
			from = there(next)
		}
		if length > 0 {
			revision = esdb.Revision(uint64(length - 1))
		}
		return reading(name, esdb.Backwards, revision, from, everything)
	}
	err := s.drain(ctx, start, func(m message) (bool, error) {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		at, revision := place(m.event.Position), events.Revision(m.event.EventNumber)+1
		again := length > 0 && name != "" && revision >= length || name == "" && !next.IsZero() && at.Compare(next) >= 0
		if length > 0 && name != "" && revision < length-1 {
			return false, gap(revision, length)
		}
		switch {
		case !q.Through.IsZero() && at.Compare(q.Through) < 0:
			whole = false
			return false, nil
		case again:
			return true, nil
		}
		length = revision
		if name == "" {
			next = at
		} else if !q.After.IsZero() && at.Compare(q.After) >= 0 {
			return true, nil
		}
		stream, ours := s.owner(m.event)
		if !ours {
			return true, nil
		}
		e, err := s.entry(stream, m.event)
		if err != nil {
			return false, err
		}
		whole = yield(e)
		return whole, nil
	})
	missed := false
	if verdict, _ := judge(err); err != nil && verdict == missing && name != "" {
		missed, err = true, s.neverWas(ctx, name)
	}
	switch {
	case err != nil || name == "" || !whole || missed:
	case length == 0:
		err = errHidden
	case length > 1:
		err = gap(0, length)
	}
	return told(ctx, "read backward", err)
}

// told returns err with what was done, unless it is the cause of ctx.
func told(ctx context.Context, doing string, err error) error {
	if err == nil || context.Cause(ctx) != nil && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Lend is events.Scanner's. The bytes were received for the caller alone, and
// it is Scan.
func (s *Store) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return s.Scan(ctx, q)
}

// Headers is events.Scanner's. The server sends the data as well.
func (s *Store) Headers(ctx context.Context, q events.Query) iter.Seq2[events.Header, error] {
	return func(yield func(events.Header, error) bool) {
		for e, err := range s.Scan(ctx, q) {
			h := events.Header{}
			if err == nil {
				h = e.Header()
			}
			if !yield(h, err) {
				return
			}
		}
	}
}

// Split is events.Scanner's. It gives one part: a server reads on only from a
// position at which a record stands, and to find one is to read up to it.
func (s *Store) Split(ctx context.Context, q events.Query, parts int) ([]events.Query, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if parts < 1 {
		return nil, fmt.Errorf("%w: it cannot be split into %d parts", events.ErrBadQuery, parts)
	}
	if err := q.Valid(); err != nil {
		return nil, err
	}
	if !s.begin() {
		return nil, events.ErrClosed
	}
	s.running.Done()
	return []events.Query{q}, nil
}

// neverWas returns nil if a stream of the database was never written to, and
// an ErrDeleted if it was deleted. Who may not read that is believed.
func (s *Store) neverWas(ctx context.Context, name string) error {
	var failed error
	err := s.drain(ctx, func() source {
		return reading(system+system+name, esdb.Backwards, esdb.End{}, nil, 1)
	}, func(m message) (bool, error) {
		failed = cutShort(m.event.Data)
		return false, nil
	})
	if failed != nil {
		return failed
	}
	if verdict, final := judge(err); err != nil && verdict != missing && !errors.Is(final, ErrRefused) {
		return err
	}
	return nil
}
