package bus

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A group delivers a topic to its subscriptions, which share the group's name. The
// subscription that holds the dispatch token, the dispatcher, delivers to all of
// them. When it ends, another subscription takes the token and continues with the
// same state. The group lives as long as the Bus, even without subscriptions.
type group struct {
	bus         *Bus
	name, topic string
	// checkpoint is the name under which the offset is saved.
	checkpoint string
	// stream is the stream of the topic, and deadLetters the stream that lists the
	// group's dead letters.
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
		// withdrawn is signalled when offered becomes empty. The method leave waits for
		// it.
		withdrawn *sync.Cond
		// changed is closed and replaced when subscriptions changes.
		changed chan struct{}
	}

	// The following fields belong to the subscription that holds the token. loaded
	// reports that the offset and the dead letters were read from the store.
	loaded bool
	// offset is the revision through which every message is acknowledged or a dead
	// letter.
	offset events.Revision
	// prefetched has the messages after the offset that were read ahead, the next
	// message first.
	prefetched []events.Entry
	// end is a log position. If prefetched is empty, the next message comes after it.
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

// group returns the group with this name for this topic, whose stream is given. It
// creates the group on first use.
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

// serve adds the subscription s to the group until the context of s ends, and
// dispatches while s holds the token. It returns the cause of that context, or the
// error that ended dispatching. The group sends no message to s after serve returns,
// so the caller may close the channel.
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

// beginOffer selects the subscriptions to which the dispatcher offers a message: it
// calls choose with all subscriptions of the group while it holds mu. It returns the
// chosen ones, which count as offered until endOffer. The channel changed is closed
// when the subscriptions of the group change.
func (g *group) beginOffer(choose func([]*outputChannel) []*outputChannel) (offered []*outputChannel, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.offered = choose(g.mu.subscriptions)
	return g.mu.offered, g.mu.changed
}

// endOffer withdraws the offer and wakes the subscriptions that wait in leave.
func (g *group) endOffer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.offered = nil
	g.mu.withdrawn.Broadcast()
}

// dispatch delivers messages in order until ctx ends or an error occurs. If the
// outcome of a message is not recorded by then, the message stays current for the
// next dispatcher.
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

// finish records the outcome of the message p after its delivery. If no subscriber
// acknowledged p, finish adds p to the dead letters. If p is a new message of the
// topic, finish moves the offset past it. If p is a released dead letter, a dead
// letter that is delivered again, an acknowledgement goes to the dead letter stream
// and the offset stays. After an error the caller may call finish again.
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

// advance moves the offset to r, the revision of the first prefetched message,
// removes this message from prefetched, and saves the offset.
func (g *group) advance(ctx context.Context, r events.Revision) error {
	// Otherwise an earlier call advanced it and failed to save.
	if g.offset < r {
		g.offset, g.prefetched = r, g.prefetched[1:]
	}
	return g.save(ctx)
}
