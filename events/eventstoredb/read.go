package eventstoredb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// Read is events.Store's. A stream that somebody deleted, or cut short, is an
// ErrDeleted.
func (s *Store) Read(ctx context.Context, stream events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return s.iterate(ctx, func(ctx context.Context, yield func(events.Entry) bool) error {
		return s.readStream(ctx, stream, after, yield)
	})
}

// iterate is a loop that ends with what run returns. Every error that a loop
// yields comes from here, once.
func (s *Store) iterate(ctx context.Context, run func(context.Context, func(events.Entry) bool) error) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		ctx, release := s.withStoreLifetime(ctx)
		defer release()
		stopped := false
		err := context.Cause(ctx)
		if err == nil {
			err = run(ctx, func(e events.Entry) bool {
				stopped = !yield(e, nil)
				return !stopped
			})
		}
		if err != nil && !stopped {
			yield(events.Entry{}, err)
		}
	}
}

func (s *Store) readStream(ctx context.Context, stream events.Stream, after events.Revision, yield func(events.Entry) bool) error {
	if after > math.MaxInt64 {
		return context.Cause(ctx) // the server would take it for a place before the start
	}
	name, next := s.namespace+string(stream), after
	err := s.consume(ctx, func() fetchFunc {
		return readEvents(name, esdb.Forwards, esdb.Revision(uint64(next)), nil, allEvents)
	}, func(m serverMessage) (bool, error) {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		e, err := s.entry(stream, m.event)
		if err != nil {
			return false, err
		}
		if e.Revision != next+1 {
			return false, gapError(next, e.Revision)
		}
		next = e.Revision
		return yield(e), nil
	})
	if class, _ := classify(err); err != nil && class == notFound {
		err = s.checkNeverWritten(ctx, name)
	} else if err == nil && after == 0 && next == 0 { // a stream that never was is missing
		err = errAllHidden
	}
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("read %s: %w", stream, err)
	}
	return err
}

// ReadAll is events.Store's.
func (s *Store) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return s.Scan(ctx, events.Query{After: after})
}

// lastPosition returns the position of the last record of the database, whosever it
// is, and the zero Position if there is none.
func (s *Store) lastPosition(ctx context.Context) (p events.Position, err error) {
	err = s.consume(ctx, func() fetchFunc { return readEvents("", esdb.Backwards, nil, esdb.End{}, 1) }, func(m serverMessage) (bool, error) {
		p = positionOf(m.event.Position)
		return false, nil
	})
	return p, err
}
