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
	return s.loop(ctx, func(ctx context.Context, yield func(events.Entry) bool) error {
		return s.read(ctx, stream, after, yield)
	})
}

// loop is a loop that ends with what run returns. Every error that a loop
// yields comes from here, once.
func (s *Store) loop(ctx context.Context, run func(context.Context, func(events.Entry) bool) error) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		ctx, free := s.bound(ctx)
		defer free()
		left := false
		err := context.Cause(ctx)
		if err == nil {
			err = run(ctx, func(e events.Entry) bool {
				left = !yield(e, nil)
				return !left
			})
		}
		if err != nil && !left {
			yield(events.Entry{}, err)
		}
	}
}

func (s *Store) read(ctx context.Context, stream events.Stream, after events.Revision, yield func(events.Entry) bool) error {
	if after > math.MaxInt64 {
		return context.Cause(ctx) // the server would take it for a place before the start
	}
	name, next := s.namespace+string(stream), after
	err := s.drain(ctx, func() source {
		return reading(name, esdb.Forwards, esdb.Revision(uint64(next)), nil, everything)
	}, func(m message) (bool, error) {
		if err := context.Cause(ctx); err != nil {
			return false, err
		}
		e, err := s.entry(stream, m.event)
		if err != nil {
			return false, err
		}
		if e.Revision != next+1 {
			return false, gap(next, e.Revision)
		}
		next = e.Revision
		return yield(e), nil
	})
	if verdict, _ := judge(err); err != nil && verdict == missing {
		err = s.neverWas(ctx, name)
	} else if err == nil && after == 0 && next == 0 { // a stream that never was is missing
		err = errHidden
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

// last returns the position of the last record of the database, whosever it
// is, and the zero Position if there is none.
func (s *Store) last(ctx context.Context) (p events.Position, err error) {
	err = s.drain(ctx, func() source { return reading("", esdb.Backwards, nil, esdb.End{}, 1) }, func(m message) (bool, error) {
		p = place(m.event.Position)
		return false, nil
	})
	return p, err
}
