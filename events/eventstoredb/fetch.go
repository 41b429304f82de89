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

// A serverMessage is a message of a read or subscription: an event, a checkpoint, the
// message that the subscription has caught up, or an error. An error is the last
// message. The error io.EOF is the end of the events.
type serverMessage struct {
	// event is an event of the log, which may belong to another ledger.
	event *esdb.RecordedEvent
	// checkpoint is the position up to which the server has applied its filter.
	checkpoint *esdb.Position
	caughtUp   bool
	err        error
}

// A fetchFunc reads from a client and passes each message to put, until there are no
// more events or put returns an error. When the call is open, the fetchFunc calls the
// method opened of its callContext.
type fetchFunc func(l callContext, c *esdb.Client, put func(serverMessage) error) error

// A fetch is a read or subscription in progress. Its goroutine reads ahead of the
// consumer, into a channel with room for fetchBuffer messages.
type fetch struct {
	messages chan serverMessage
	stop     context.CancelFunc
}

// fetchBuffer is the number of messages that a fetch reads ahead of its consumer.
const fetchBuffer = 32

// startFetch runs fetchEvents on a goroutine of the store and returns the fetch at
// once. The fetch ends when fetchEvents returns or ctx ends. Its last message is an
// error: io.EOF, the error of fetchEvents, or ErrClosed if the store was already
// closed. The caller must call the method stop of the fetch, which ends the goroutine.
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
		_ = put(serverMessage{err: err}) // an error means that the consumer stopped
	}()
	return f
}

// next returns the next message. If ctx ends first, it returns a message whose error is
// the cause of ctx.
func (f *fetch) next(ctx context.Context) serverMessage {
	select {
	case m := <-f.messages:
		return m
	case <-ctx.Done():
		return serverMessage{err: context.Cause(ctx)}
	}
}

// consume passes the messages of a fetch to handle. It ends when handle returns false
// or an error, when the events end, or after a permanent error. It returns the error of
// handle unchanged.
//
// After a retryable error consume calls open for another fetch. The new fetch must
// return every message after the last one that handle received. It may repeat earlier
// messages, and handle must ignore these. The retry timeout counts only the failures
// since the last message.
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

// retry calls try until it succeeds or one of these happens:
//
//   - try returns a consumerError, an error of the handler of a message. retry returns
//     the error of the handler, unwrapped.
//   - try returns another error that is not retryable. retry returns this error.
//   - ctx ends. retry returns the cause of ctx with the last error.
//   - The tries have failed for the retry timeout of the store without progress. retry
//     returns ErrUnreachable.
//
// When try makes progress, it calls the method reset of its retryBackoff.
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

// A consumerError wraps an error that the handler of a message returned. It ends a
// retry, even if the same error would be retryable when the server returned it.
type consumerError struct{ error }

// forEach passes messages to handle until handle returns false or an error, or the
// fetch ends. It resets the backoff for each message. If handle returns false, forEach
// returns nil. It returns an error of handle as a consumerError, and an error of the
// fetch unchanged.
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

// readEvents returns a fetchFunc that reads up to count events, in either direction. If
// name is not empty, it reads the stream with that name in the database, from the
// position stream. Otherwise it reads all streams, from the position all.
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
				continue // a link to a deleted event
			}
			if err := put(serverMessage{event: e.Event}); err != nil {
				return err
			}
		}
	}
}

// allEvents is the count of a read without a limit.
const allEvents = math.MaxInt64

// subscribeAll returns a fetchFunc that subscribes to the events of all streams behind
// a position. A subscription has no end: the fetch ends with an error, never with
// io.EOF. The server sends a checkpoint after each searchWindow events that the filter
// excludes.
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
		defer func() { _ = sub.Close() }() // Close returns nil
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

// errDropped is the error of a subscription that the server ended.
var errDropped = errors.New("server ended the subscription")

// droppedError wraps err, the reason why a subscription ended, in errDropped. The
// result is retryable if err is retryable or missing.
func droppedError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errDropped
	}
	return fmt.Errorf("%w: %w", errDropped, err)
}
