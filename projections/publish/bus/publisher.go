package bus

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A Publisher is a message.Publisher to the topics of a Bus.
type Publisher struct {
	bus    *Bus
	closed atomic.Bool
}

// Publisher returns a new Publisher, which the caller closes.
func (b *Bus) Publisher() *Publisher { return &Publisher{bus: b} }

// Publish appends messages to a topic, together or not at all, and returns when they
// are durable. After an error of the store, they may or may not be appended. It
// returns an ErrBadTopic for an invalid topic, an ErrBadMessage for an invalid
// message, and an ErrClosed after Close. Without messages it only checks the topic.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if p.closed.Load() {
		return fmt.Errorf("publish to %s: %w", topic, ErrClosed)
	}
	stream, err := streamOf(topic)
	if err != nil || len(messages) == 0 {
		return err
	}
	records := make([]events.Record, len(messages))
	for i, m := range messages {
		if records[i], err = p.bus.record(m); err != nil {
			return fmt.Errorf("publish to %s: %w", topic, err)
		}
	}
	// watermill passes no context to Publish, so the append cannot be cancelled.
	if err := p.bus.append(context.Background(), stream, records); err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	return nil
}

// Close makes later calls of Publish fail. It does not wait for running ones. It may
// be called again.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}
