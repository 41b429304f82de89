package bus

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A Subscriber is a message.Subscriber to the topics of a Bus, as one of a
// group.
type Subscriber struct {
	bus     *Bus
	group   string
	ctx     context.Context // of all its subscriptions; ends when it closes
	close   context.CancelCauseFunc
	running sync.WaitGroup
	mu      sync.Mutex // held while a subscription begins, and while it closes
}

// Subscriber returns an end of b that subscribes as one of a group. The caller
// closes it. A name that is not valid is an ErrBadGroup.
func (b *Bus) Subscriber(group string) (*Subscriber, error) {
	if !groupNames.MatchString(group) {
		return nil, fmt.Errorf("%w: %q: use 1 to 128 letters, digits, dots, hyphens and underscores", ErrBadGroup, group)
	}
	s := &Subscriber{bus: b, group: group}
	s.ctx, s.close = context.WithCancelCause(context.Background())
	return s, nil
}

// Subscribe returns the messages of a topic that the group has not acknowledged,
// and those to come, as far as they come to this one of the group. The channel
// is closed when the context ends, s is closed, or an error ends it.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	stream, err := streamOf(topic)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", topic, ErrClosed)
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { end(ErrClosed) })
	out := make(chan *message.Message)
	s.running.Go(func() {
		defer close(out)
		defer end(nil)
		defer stop()
		err := s.bus.group(s.group, topic, stream).serve(ctx, out)
		if failed := s.bus.config.Failed; ctx.Err() == nil && failed != nil {
			failed(s.group, topic, err)
		}
	})
	return out, nil
}

// Close ends all subscriptions and returns when their channels are closed.
// Closing again does nothing.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.close(ErrClosed)
	s.mu.Unlock()
	s.running.Wait()
	return nil
}

// A group is a topic as those of one name see it. Its turn is held by the one
// subscription that hands a message over.
type group struct {
	bus    *Bus
	name   string // of the checkpoint
	stream events.Stream
	turn   chan struct{} // holds one while nobody hands over

	// What follows belongs to who has the turn.
	loaded bool
	done   events.Revision // acknowledged
	ahead  []events.Entry  // read, and not handed over
	end    events.Position // behind which the next one comes, if none is ahead
}

func (b *Bus) group(name, topic string, stream events.Stream) *group {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := "bus/" + name + "/" + topic
	g := b.mu.groups[key]
	if g == nil {
		g = &group{bus: b, name: key, stream: stream, turn: make(chan struct{}, 1)}
		g.turn <- struct{}{}
		b.mu.groups[key] = g
	}
	return g
}

// serve hands messages over, in turn with others, until its context ends.
func (g *group) serve(ctx context.Context, out chan<- *message.Message) error {
	for {
		select {
		case <-g.turn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := g.handOver(ctx, out)
		g.turn <- struct{}{}
		if err != nil {
			return err
		}
	}
}

// handOver hands the next message over until it is acknowledged.
func (g *group) handOver(ctx context.Context, out chan<- *message.Message) error {
	e, err := g.next(ctx)
	if err != nil {
		return err
	}
	for {
		acknowledged, err := hand(ctx, out, e)
		if err != nil {
			return err
		}
		if acknowledged {
			g.done, g.ahead = e.Revision, g.ahead[1:]
			return g.save(ctx)
		}
	}
}

// hand hands a message over once and reports whether it was acknowledged.
func hand(ctx context.Context, out chan<- *message.Message, e events.Entry) (bool, error) {
	m, err := messageOf(e)
	if err != nil {
		return false, err
	}
	within, end := context.WithCancel(ctx)
	defer end()
	m.SetContext(within)
	select {
	case out <- m:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	select {
	case <-m.Acked():
		return true, nil
	case <-m.Nacked():
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
