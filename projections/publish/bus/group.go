package bus

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A group is a topic as the subscribers of one name see it. One of its
// subscriptions at a time has the turn: its goroutine dispatches the messages of
// the topic to all subscriptions of the group.
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

// serve has a subscription take part in the group until its context ends. No
// message is sent to it after serve has returned.
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

func (g *group) join(s *subscription) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.subscriptions = append(g.mu.subscriptions, s)
	g.changedLocked()
}

// leave takes a subscription out of the group. It waits until no message is
// offered to it any more, which is at once as the offer ends when the
// subscriptions change.
func (g *group) leave(s *subscription) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.subscriptions = slices.DeleteFunc(g.mu.subscriptions, func(o *subscription) bool { return o == s })
	g.changedLocked()
	for slices.Contains(g.mu.offered, s) {
		g.mu.withdrawn.Wait()
	}
}

func (g *group) changedLocked() {
	close(g.mu.changed)
	g.mu.changed = make(chan struct{})
}

// beginOffer returns the subscriptions that choose takes from all of the group, and a
// channel that is closed when those of the group change. The chosen ones count as
// offered a message until endOffer is called.
func (g *group) beginOffer(choose func([]*subscription) []*subscription) (offered []*subscription, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.offered = choose(g.mu.subscriptions)
	return g.mu.offered, g.mu.changed
}

func (g *group) endOffer() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.offered = nil
	g.mu.withdrawn.Broadcast()
}

// dispatch hands messages over until its context ends.
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

// finish records how the delivery of a message ended.
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

// advance moves the offset behind a message of the topic.
func (g *group) advance(ctx context.Context, r events.Revision) error {
	if g.offset < r { // else it was, and could not be saved
		g.offset, g.prefetched = r, g.prefetched[1:]
	}
	return g.save(ctx)
}
