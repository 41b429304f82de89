package eventstoredb

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// Scan implements events.Scanner. The server filters a forward scan of all streams;
// the store filters single streams and backward scans itself, because the client has
// no filter for them. Their cost depends on all records read.
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

// scanForward yields the entries behind q.After. It ends at q.Through, or at the end
// that the log had when the scan started. It uses a subscription, because the server
// filters subscriptions and not reads. It may leave out records that are appended after
// its start.
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

// scanBackward yields the entries before q.After, or from the end of the log, back to
// q.Through. In a stream it returns ErrDeleted if revisions are missing. It reads a
// stream from its end, because a position does not identify a revision.
func (s *Store) scanBackward(ctx context.Context, q events.Query, yield func(events.Entry) bool) error {
	name, next := "", q.After // the next entry of all streams is before next
	if q.Stream != "" {
		name = s.namespace + string(q.Stream)
	}
	var length events.Revision // revision of the last entry seen
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

// wrapUnlessCancelled adds the text action to err, unless err is the cause of ctx. It
// returns nil for a nil err.
func wrapUnlessCancelled(ctx context.Context, action string, err error) error {
	if err == nil || context.Cause(ctx) != nil && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%s: %w", action, err)
}

// Lend implements events.Scanner. It is Scan: every entry has memory of its own, so
// the caller may keep it.
func (s *Store) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return s.Scan(ctx, q)
}

// Headers implements events.Scanner. It costs as much as Scan, since the server sends
// the data of the entries too.
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

// Split implements events.Scanner. It returns q as its only part. A server begins a
// read only at the position of an event, and the store could find such a position only
// by reading the log up to it.
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

// checkNeverWritten returns nil if a stream of the database was never written, and
// ErrDeleted if its metadata hide records by $tb. It returns nil if the user may not
// read the metadata.
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
