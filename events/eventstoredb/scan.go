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
	return s.iterate(ctx, func(ctx context.Context, yield func(events.Entry) bool) error {
		if err := q.Valid(); err != nil {
			return err
		}
		matching := func(e events.Entry) bool { return !q.Matches(e.Header()) || yield(e) }
		switch {
		case q.Backward:
			return s.scanBackward(ctx, q, matching)
		case q.Stream != "":
			return s.readStream(ctx, q.Stream, 0, func(e events.Entry) bool {
				if !q.Through.IsZero() && e.Position.Compare(q.Through) > 0 {
					return false
				}
				return e.Position.Compare(q.After) <= 0 || matching(e)
			})
		}
		return s.scanForward(ctx, q, matching)
	})
}

// scanForward yields what stands behind q.After, up to q.Through or the end that
// there is now. It follows what the server filters as far as that.
func (s *Store) scanForward(ctx context.Context, q events.Query, yield func(events.Entry) bool) error {
	end, err := s.lastPosition(ctx)
	if err != nil {
		return wrapUnlessCancelled(ctx, "read all", err)
	}
	if !q.Through.IsZero() && q.Through.Compare(end) < 0 {
		end = q.Through
	}
	seen := q.After
	if seen.Compare(end) >= 0 {
		return nil
	}
	err = s.consume(ctx, func() fetchFunc { return subscribeAll(seen, s.serverFilter(q.Filter)) }, func(m serverMessage) (bool, error) {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		if m.event == nil {
			if m.checkpoint != nil && positionOf(*m.checkpoint).Compare(seen) > 0 {
				seen = positionOf(*m.checkpoint)
			}
			return !m.caughtUp && seen.Compare(end) < 0, nil
		}
		at := positionOf(m.event.Position)
		if at.Compare(end) > 0 {
			return false, nil
		}
		if at.Compare(seen) <= 0 {
			return true, nil
		}
		seen = at
		stream, ours := s.ledgerStreamOf(m.event)
		if !ours {
			return at != end, nil
		}
		e, err := s.entry(stream, m.event)
		if err != nil {
			return false, err
		}
		return yield(e) && at != end, nil
	})
	return wrapUnlessCancelled(ctx, "read all", err)
}

// scanBackward yields what stands before q.After, or the end, back to q.Through.
func (s *Store) scanBackward(ctx context.Context, q events.Query, yield func(events.Entry) bool) error {
	name, next := "", q.After // for a stream, where its next entry stands before
	if q.Stream != "" {
		name = s.namespace + string(q.Stream)
	}
	var length events.Revision // what the last one seen made the stream
	reachedStart := true
	open := func() fetchFunc {
		from, revision := esdb.AllPosition(esdb.End{}), esdb.StreamPosition(esdb.End{})
		if !next.IsZero() {
			from = clientPosition(next)
		}
		if length > 0 {
			revision = esdb.Revision(uint64(length - 1))
		}
		return readEvents(name, esdb.Backwards, revision, from, allEvents)
	}
	err := s.consume(ctx, open, func(m serverMessage) (bool, error) {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		at, revision := positionOf(m.event.Position), events.Revision(m.event.EventNumber)+1
		repeated := length > 0 && name != "" && revision >= length || name == "" && !next.IsZero() && at.Compare(next) >= 0
		if length > 0 && name != "" && revision < length-1 {
			return false, gapError(revision, length)
		}
		switch {
		case !q.Through.IsZero() && at.Compare(q.Through) < 0:
			reachedStart = false
			return false, nil
		case repeated:
			return true, nil
		}
		length = revision
		if name == "" {
			next = at
		} else if !q.After.IsZero() && at.Compare(q.After) >= 0 {
			return true, nil
		}
		stream, ours := s.ledgerStreamOf(m.event)
		if !ours {
			return true, nil
		}
		e, err := s.entry(stream, m.event)
		if err != nil {
			return false, err
		}
		reachedStart = yield(e)
		return reachedStart, nil
	})
	streamMissing := false
	if class, _ := classify(err); err != nil && class == notFound && name != "" {
		streamMissing, err = true, s.checkNeverWritten(ctx, name)
	}
	switch {
	case err != nil || name == "" || !reachedStart || streamMissing:
	case length == 0:
		err = errAllHidden
	case length > 1:
		err = gapError(0, length)
	}
	return wrapUnlessCancelled(ctx, "read backward", err)
}

// wrapUnlessCancelled returns err with what was done, unless it is the cause of ctx.
func wrapUnlessCancelled(ctx context.Context, action string, err error) error {
	if err == nil || context.Cause(ctx) != nil && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%s: %w", action, err)
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
	if !s.startTask() {
		return nil, events.ErrClosed
	}
	s.tasks.Done()
	return []events.Query{q}, nil
}

// checkNeverWritten returns nil if a stream of the database was never written to, and
// an ErrDeleted if it was deleted. Who may not read that is believed.
func (s *Store) checkNeverWritten(ctx context.Context, name string) error {
	var failed error
	err := s.consume(ctx, func() fetchFunc {
		return readEvents(systemPrefix+systemPrefix+name, esdb.Backwards, esdb.End{}, nil, 1)
	}, func(m serverMessage) (bool, error) {
		failed = truncationError(m.event.Data)
		return false, nil
	})
	if failed != nil {
		return failed
	}
	if class, final := classify(err); err != nil && class != notFound && !errors.Is(final, ErrRefused) {
		return err
	}
	return nil
}
