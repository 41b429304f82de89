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

// Read implements events.Store. The loop ends with ErrDeleted in a stream that was
// deleted or truncated.
func (s *Store) Read(ctx context.Context, stream events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return s.iterate(ctx, func(ctx context.Context, yield func(events.Entry) bool) error {
		return s.readStream(ctx, stream, after, yield)
	})
}

// iterate returns a loop over the entries that run yields. It yields the error of run
// once, last, unless the body left the loop. The context of run also ends when the
// store closes. run must return when yield returns false.
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

// readStream yields the entries of a stream behind revision after. It returns
// ErrDeleted if revisions are missing or the server hides all of them. A stream that
// was never written has no entries and no error.
func (s *Store) readStream(ctx context.Context, stream events.Stream, after events.Revision, yield func(events.Entry) bool) error {
	if after > math.MaxInt64 {
		return context.Cause(ctx) // the server would read a negative number
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
	} else if err == nil && after == 0 && next == 0 { // a stream without events has the class notFound
		err = errAllHidden
	}
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("read %s: %w", stream, err)
	}
	return err
}

// ReadAll implements events.Store. It is Scan without a filter.
func (s *Store) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return s.Scan(ctx, events.Query{After: after})
}

// lastPosition returns the position of the last event of the database, of any stream
// and namespace, and the zero Position for an empty log. It needs the right to read
// all streams.
func (s *Store) lastPosition(ctx context.Context) (p events.Position, err error) {
	err = s.consume(ctx, func() fetchFunc { return readEvents("", esdb.Backwards, nil, esdb.End{}, 1) }, func(m serverMessage) (bool, error) {
		p = positionOf(m.event.Position)
		return false, nil
	})
	return p, err
}
