package bus

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A Subscriber is a message.Subscriber to the topics of a Bus, as a member of a
// group.
type Subscriber struct {
	bus   *Bus
	group string
	// ctx is the parent of all subscriptions. Close ends it.
	ctx   context.Context
	close context.CancelCauseFunc
	// running counts the goroutines of the subscriptions, which Close joins.
	running sync.WaitGroup
	// mu orders Subscribe and Close, so that no subscription begins after Close
	// waits.
	mu sync.Mutex
}

// Subscriber returns a new Subscriber of a group, which the caller closes. An
// invalid name is an ErrBadGroup.
func (b *Bus) Subscriber(group string) (*Subscriber, error) {
	if err := validGroup(group); err != nil {
		return nil, err
	}
	s := &Subscriber{bus: b, group: group}
	s.ctx, s.close = context.WithCancelCause(context.Background())
	return s, nil
}

// Subscribe returns a channel of the topic's messages that the group has not
// acknowledged and that are dispatched to this subscription. It starts a goroutine,
// which closes the channel when ctx ends, s is closed, or an error ends the
// subscription; Config.Failed receives such an error. The subscriber acknowledges or
// refuses each message. An invalid topic is an ErrBadTopic, and after Close the error
// is an ErrClosed.
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
		err := s.bus.group(s.group, topic, stream).serve(&outputChannel{ctx: ctx, out: out})
		if failed := s.bus.config.Failed; ctx.Err() == nil && failed != nil {
			failed(s.group, topic, err)
		}
	})
	return out, nil
}

// Close ends all subscriptions and returns when their channels are closed. It
// may be called again.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.close(ErrClosed)
	s.mu.Unlock()
	s.running.Wait()
	return nil
}
