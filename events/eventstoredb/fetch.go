package eventstoredb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/settlement-ledger/ledger/events"
)

// A serverMessage is what a server sends to a reader: an event, a place that it came
// to, or that all there was has been sent. One with an error is the last;
// io.EOF is the end.
type serverMessage struct {
	event      *esdb.RecordedEvent
	checkpoint *esdb.Position
	caughtUp   bool
	err        error
}

// A fetchFunc reads from a client and gives what it receives to put, until there
// is no more or put returns an error.
type fetchFunc func(l callContext, c *esdb.Client, put func(serverMessage) error) error

// A fetch is a source under way.
type fetch struct {
	messages chan serverMessage
	stop     context.CancelFunc
}

// fetchBuffer is how many messages a feed holds that its reader has not taken.
const fetchBuffer = 32

// startFetch starts a source. Its reader stops it. It ends when ctx does.
func (s *Store) startFetch(ctx context.Context, fetchEvents fetchFunc) *fetch {
	ctx, stop := context.WithCancel(ctx)
	f := &fetch{messages: make(chan serverMessage, fetchBuffer), stop: stop}
	put := func(m serverMessage) error {
		select {
		case f.messages <- m:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if !s.startTask() {
		f.messages <- serverMessage{err: events.ErrClosed}
		return f
	}
	go func() {
		defer s.tasks.Done()
		err := s.connector.call(ctx, func(l callContext, c *esdb.Client) error { return fetchEvents(l, c, put) })
		if err == nil {
			err = io.EOF
		}
		_ = put(serverMessage{err: err}) // nobody reads it any more if this fails
	}()
	return f
}

// next waits for a message until the context ends.
func (f *fetch) next(ctx context.Context) serverMessage {
	select {
	case m := <-f.messages:
		return m
	case <-ctx.Done():
		return serverMessage{err: context.Cause(ctx)}
	}
}

// consume reads from what start makes until take returns false, the end, or an
// error that is final. When the server goes away it calls start again, which
// goes on behind what take was given last.
func (s *Store) consume(ctx context.Context, open func() fetchFunc, handle func(serverMessage) (bool, error)) error {
	return s.retry(ctx, func(p *retryBackoff) error {
		f := s.startFetch(ctx, open())
		defer f.stop()
		if err := f.forEach(ctx, p, handle); !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	})
}

// retry calls try until it succeeds, its error is not retryable, ctx ends, or the
// tries have failed for the retry timeout of the store without progress.
func (s *Store) retry(ctx context.Context, try func(*retryBackoff) error) error {
	for p := (&retryBackoff{}); ; {
		p.attempt()
		err := try(p)
		switch {
		case err == nil:
			return nil
		case context.Cause(ctx) != nil:
			return contextError(ctx, p.lastErr)
		}
		if failure, ok := errors.AsType[*consumerError](err); ok {
			return failure.error
		}
		if class, err := classify(err); class != retryable {
			return err
		}
		if err := p.wait(ctx, err, s.retryTimeout); err != nil {
			return err
		}
	}
}

// A consumerError is an error of who reads a feed, not of the feed.
type consumerError struct{ error }

func (f *fetch) forEach(ctx context.Context, p *retryBackoff, handle func(serverMessage) (bool, error)) error {
	for {
		m := f.next(ctx)
		if m.err != nil {
			return m.err
		}
		p.reset()
		if more, err := handle(m); err != nil {
			return &consumerError{err}
		} else if !more {
			return nil
		}
	}
}

// readEvents is a source of the events of a stream of the database or, if name is
// empty, of all.
func readEvents(name string, direction esdb.Direction, stream esdb.StreamPosition, all esdb.AllPosition, count uint64) fetchFunc {
	return func(call callContext, c *esdb.Client, put func(serverMessage) error) (err error) {
		var r *esdb.ReadStream
		if name != "" {
			r, err = c.ReadStream(call, name, esdb.ReadStreamOptions{Direction: direction, From: stream}, count)
		} else {
			r, err = c.ReadAll(call, esdb.ReadAllOptions{Direction: direction, From: all}, count)
		}
		if err != nil {
			return err
		}
		defer r.Close()
		call.opened()
		for {
			e, err := r.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if e.Event == nil {
				continue // a link to what is no more
			}
			if err := put(serverMessage{event: e.Event}); err != nil {
				return err
			}
		}
	}
}

// allEvents is as many events as there are.
const allEvents = math.MaxInt64

// subscribeAll is a source of the events of all streams behind a place.
func subscribeAll(after events.Position, filter *esdb.SubscriptionFilter) fetchFunc {
	return func(call callContext, c *esdb.Client, put func(serverMessage) error) error {
		from := esdb.AllPosition(esdb.Start{})
		if !after.IsZero() {
			from = clientPosition(after)
		}
		sub, err := c.SubscribeToAll(call, esdb.SubscribeToAllOptions{From: from, Filter: filter, MaxSearchWindow: searchWindow, CheckpointInterval: 1})
		if err != nil {
			return err
		}
		defer func() { _ = sub.Close() }() // it returns nil
		call.opened()
		for {
			got := sub.Recv()
			m := serverMessage{checkpoint: got.CheckPointReached, caughtUp: got.CaughtUp != nil}
			switch {
			case got.SubscriptionDropped != nil:
				return droppedError(got.SubscriptionDropped.Error)
			case got.EventAppeared != nil && got.EventAppeared.Event != nil:
				m.event = got.EventAppeared.Event
			case m.checkpoint == nil && !m.caughtUp:
				continue
			}
			if err := put(m); err != nil {
				return err
			}
		}
	}
}

// errDropped is a subscription's end without a reason.
var errDropped = errors.New("server ended the subscription")

func droppedError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errDropped
	}
	return fmt.Errorf("%w: %w", errDropped, err)
}
