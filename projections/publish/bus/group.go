package bus

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A group delivers a topic to the subscriptions of one name. One of its subscriptions
// holds the dispatch token and delivers to all of them; when it ends, another takes
// the token and continues with the same state. The group lives as long as the Bus,
// also without subscriptions.
type group struct {
	bus         *Bus
	name, topic string
	// checkpoint is the name under which the offset is saved.
	checkpoint string
	// stream is that of the topic, deadLetters the one of the group's dead letters.
	stream      events.Stream
	deadLetters events.Stream
	// dispatchToken holds one value while no subscription dispatches.
	dispatchToken chan struct{}
	// deadLettersChanged is set by Release. The dispatcher then reads the dead letter
	// stream.
	deadLettersChanged atomic.Bool

	// mu guards the set of subscriptions.
	mu struct {
		sync.Mutex
		subscriptions []*outputChannel
		// offered are the subscriptions to which the dispatcher offers a message now.
		offered []*outputChannel
		// withdrawn wakes leave when offered changes.
		withdrawn *sync.Cond
		// changed is closed and replaced when subscriptions changes.
		changed chan struct{}
	}

	// The following fields belong to the subscription that holds the token. loaded
	// reports that the offset and dead letters were read.
	loaded bool
	// offset is the revision through which every message is acknowledged or a dead
	// letter.
	offset events.Revision
	// prefetched are the messages after the offset that were read. The first is the
	// next.
	prefetched []events.Entry
	// end is the position after which the next message comes if prefetched is empty.
	end     events.Position
	letters deadLetterList
	// current is the message being delivered, or nil between messages.
	current *pending
}

// An outputChannel is the channel of one subscription, which is valid until ctx ends.
type outputChannel struct {
	ctx context.Context
	out chan *message.Message
}

// group returns the group of a name and topic. It creates the group on first
// use.
func (b *Bus) group(name, topic string, stream events.Stream) *group {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := "bus/" + name + "/" + topic
	g := b.mu.groups[key]
	if g == nil {
		g = &group{
			bus: b, name: name, topic: topic, checkpoint: key, stream: stream,
			deadLetters: deadLetterStream(name, topic), dispatchToken: make(chan struct{}, 1),
		}
		g.mu.withdrawn, g.mu.changed = sync.NewCond(&g.mu), make(chan struct{})
		g.dispatchToken <- struct{}{}
		b.mu.groups[key] = g
	}
	return g
}

// serve adds a subscription to the group until its context ends, and dispatches while
// it holds the token. It returns the cause of that context, or the error that ended
// dispatching. The group sends no message to s after serve returns, so the caller may
// close the channel.
func (g *group) serve(s *outputChannel) error {
	g.join(s)
	defer g.leave(s)
	select {
	case <-g.dispatchToken:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	defer func() { g.dispatchToken <- struct{}{} }()
	return g.dispatch(s.ctx)
}

// join adds a subscription and wakes the dispatcher, which may have a message for it.
func (g *group) join(s *outputChannel) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.subscriptions = append(g.mu.subscriptions, s)
	g.changedLocked()
}

// leave removes a subscription and waits until no message is offered to it.
// The change wakes the dispatcher, which then withdraws the offer.
func (g *group) leave(s *outputChannel) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.subscriptions = slices.DeleteFunc(g.mu.subscriptions, func(o *outputChannel) bool { return o == s })
	g.changedLocked()
	for slices.Contains(g.mu.offered, s) {
		g.mu.withdrawn.Wait()
	}
}

// changedLocked wakes the dispatcher after a change of the subscriptions. The caller
// holds mu.
func (g *group) changedLocked() {
	close(g.mu.changed)
	g.mu.changed = make(chan struct{})
}

// beginOffer selects the subscriptions to which the dispatcher offers a message, by
// calling choose with mu held, and marks them as offered until endOffer. It returns
// them with a channel that is closed when the subscriptions of the group change.
func (g *group) beginOffer(choose func([]*outputChannel) []*outputChannel) (offered []*outputChannel, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.offered = choose(g.mu.subscriptions)
	return g.mu.offered, g.mu.changed
}

// endOffer withdraws the offer and wakes leave.
func (g *group) endOffer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.offered = nil
	g.mu.withdrawn.Broadcast()
}

// dispatch delivers messages in order until ctx ends or an error occurs. If that
// happens before the outcome of a message is recorded, the message stays current for
// the next dispatcher.
func (g *group) dispatch(ctx context.Context) error {
	for {
		if g.current == nil {
			p, err := g.next(ctx)
			if err != nil {
				return err
			}
			g.current = p
		}
		if err := g.deliver(ctx, g.current); err != nil {
			return err
		}
		if err := g.finish(ctx, g.current); err != nil {
			return err
		}
		g.current = nil
	}
}

// finish records the outcome of a message. It adds a message that was not
// acknowledged to the dead letters. It then moves the offset past a message of the
// topic. For a released dead letter it appends the acknowledgement to the stream of
// dead letters instead. The caller may repeat finish after an error.
func (g *group) finish(ctx context.Context, p *pending) error {
	if !p.acknowledged {
		if err := g.deadLetter(ctx, p); err != nil {
			return err
		}
	}
	switch {
	case !p.released:
		return g.advance(ctx, p.entry.Revision)
	case p.acknowledged:
		return g.recordAck(ctx, p.entry.Revision)
	}
	return nil
}

// advance moves the offset to a message, the first prefetched one, and saves it.
func (g *group) advance(ctx context.Context, r events.Revision) error {
	// Otherwise an earlier call advanced it and failed to save.
	if g.offset < r {
		g.offset, g.prefetched = r, g.prefetched[1:]
	}
	return g.save(ctx)
}
