package bus

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A group delivers a topic to the subscribers of one name. The subscription
// that holds the dispatch token delivers the messages to all subscriptions of
// the group.
type group struct {
	bus                *Bus
	name, topic        string
	checkpoint         string        // the name of the offset
	stream             events.Stream // the topic
	deadLetters        events.Stream
	dispatchToken      chan struct{} // holds one while no subscription dispatches
	deadLettersChanged atomic.Bool   // the dead letters changed: they are to be read

	mu struct {
		sync.Mutex
		subscriptions []*subscription
		offered       []*subscription // to which a message is being offered
		withdrawn     *sync.Cond      // that offered changed
		changed       chan struct{}   // closed when subscriptions change
	}

	// What follows belongs to the subscription that has the turn.
	loaded     bool
	offset     events.Revision // acknowledged, or a dead letter
	prefetched []events.Entry  // read, and not dispatched
	end        events.Position // behind which the next one comes, if none is ahead
	letters    deadLetterList
	current    *pending // nil between messages
}

// A subscription is one channel of messages.
type subscription struct {
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

// serve adds a subscription to the group until its context ends. It dispatches
// if it gets the token. No message is sent to s after serve returns.
func (g *group) serve(s *subscription) error {
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

// join adds a subscription.
func (g *group) join(s *subscription) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.subscriptions = append(g.mu.subscriptions, s)
	g.changedLocked()
}

// leave removes a subscription and waits until no message is offered to it.
// The change wakes the dispatcher, which then withdraws the offer.
func (g *group) leave(s *subscription) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.subscriptions = slices.DeleteFunc(g.mu.subscriptions, func(o *subscription) bool { return o == s })
	g.changedLocked()
	for slices.Contains(g.mu.offered, s) {
		g.mu.withdrawn.Wait()
	}
}

// changedLocked wakes the dispatcher after a change of the subscriptions.
func (g *group) changedLocked() {
	close(g.mu.changed)
	g.mu.changed = make(chan struct{})
}

// beginOffer marks the subscriptions that choose selects as offered, until
// endOffer. changed is closed when the subscriptions of the group change.
func (g *group) beginOffer(choose func([]*subscription) []*subscription) (offered []*subscription, changed <-chan struct{}) {
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

// dispatch delivers messages until ctx ends or an error.
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

// finish records the acknowledgement or the dead letter of a message.
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

// advance moves the offset past a message and saves it.
func (g *group) advance(ctx context.Context, r events.Revision) error {
	if g.offset < r { // else it was, and could not be saved
		g.offset, g.prefetched = r, g.prefetched[1:]
	}
	return g.save(ctx)
}
