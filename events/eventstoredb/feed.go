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

// A message is what a server sends to a reader: an event, a place that it came
// to, or that all there was has been sent. One with an error is the last;
// io.EOF is the end.
type message struct {
	event    *esdb.RecordedEvent
	place    *esdb.Position
	caughtUp bool
	err      error
}

// A source reads from a client and gives what it receives to put, until there
// is no more or put returns an error.
type source func(l line, c *esdb.Client, put func(message) error) error

// A feed is a source under way.
type feed struct {
	messages chan message
	stop     context.CancelFunc
}

// buffered is how many messages a feed holds that its reader has not taken.
const buffered = 32

// feed starts a source. Its reader stops it. It ends when ctx does.
func (s *Store) feed(ctx context.Context, from source) *feed {
	ctx, stop := context.WithCancel(ctx)
	f := &feed{messages: make(chan message, buffered), stop: stop}
	put := func(m message) error {
		select {
		case f.messages <- m:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if !s.begin() {
		f.messages <- message{err: events.ErrClosed}
		return f
	}
	go func() {
		defer s.running.Done()
		err := s.guard.call(ctx, func(l line, c *esdb.Client) error { return from(l, c, put) })
		if err == nil {
			err = io.EOF
		}
		_ = put(message{err: err}) // nobody reads it any more if this fails
	}()
	return f
}

// next waits for a message until the context ends.
func (f *feed) next(ctx context.Context) message {
	select {
	case m := <-f.messages:
		return m
	case <-ctx.Done():
		return message{err: context.Cause(ctx)}
	}
}

// drain reads from what start makes until take returns false, the end, or an
// error that is final. When the server goes away it calls start again, which
// goes on behind what take was given last.
func (s *Store) drain(ctx context.Context, start func() source, take func(message) (bool, error)) error {
	for p := (&pace{}); ; {
		p.begin()
		f := s.feed(ctx, start())
		err := f.each(ctx, p, take)
		f.stop()
		switch {
		case err == nil || errors.Is(err, io.EOF):
			return nil
		case context.Cause(ctx) != nil:
			return ended(ctx, p.last)
		}
		var stop *stopped
		if errors.As(err, &stop) {
			return stop.error
		}
		if verdict, err := judge(err); verdict != uncertain {
			return err
		}
		if err := p.failed(ctx, err, s.patience); err != nil {
			return err
		}
	}
}

// A stopped is an error of who reads a feed, not of the feed.
type stopped struct{ error }

func (f *feed) each(ctx context.Context, p *pace, take func(message) (bool, error)) error {
	for {
		m := f.next(ctx)
		if m.err != nil {
			return m.err
		}
		p.progressed()
		if more, err := take(m); err != nil {
			return &stopped{err}
		} else if !more {
			return nil
		}
	}
}

// reading is a source of the events of a stream of the database or, if name is
// empty, of all.
func reading(name string, direction esdb.Direction, stream esdb.StreamPosition, all esdb.AllPosition, count uint64) source {
	return func(l line, c *esdb.Client, put func(message) error) (err error) {
		var r *esdb.ReadStream
		if name != "" {
			r, err = c.ReadStream(l, name, esdb.ReadStreamOptions{Direction: direction, From: stream}, count)
		} else {
			r, err = c.ReadAll(l, esdb.ReadAllOptions{Direction: direction, From: all}, count)
		}
		if err != nil {
			return err
		}
		defer r.Close()
		l.settle()
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
			if err := put(message{event: e.Event}); err != nil {
				return err
			}
		}
	}
}

// everything is as many events as there are.
const everything = math.MaxInt64

// subscribing is a source of the events of all streams behind a place.
func subscribing(after events.Position, filter *esdb.SubscriptionFilter) source {
	return func(l line, c *esdb.Client, put func(message) error) error {
		from := esdb.AllPosition(esdb.Start{})
		if !after.IsZero() {
			from = there(after)
		}
		sub, err := c.SubscribeToAll(l, esdb.SubscribeToAllOptions{From: from, Filter: filter, MaxSearchWindow: window, CheckpointInterval: 1})
		if err != nil {
			return err
		}
		defer func() { _ = sub.Close() }() // it returns nil
		l.settle()
		for {
			got := sub.Recv()
			m := message{place: got.CheckPointReached, caughtUp: got.CaughtUp != nil}
			switch {
			case got.SubscriptionDropped != nil:
				return dropped(got.SubscriptionDropped.Error)
			case got.EventAppeared != nil && got.EventAppeared.Event != nil:
				m.event = got.EventAppeared.Event
			case m.place == nil && !m.caughtUp:
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

func dropped(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errDropped
	}
	return fmt.Errorf("%w: %w", errDropped, err)
}
