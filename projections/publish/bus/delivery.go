package bus

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
	"github.com/settlement-ledger/ledger/events"
)

// A Redelivery sets how often and after which delays an unacknowledged message
// is redelivered. With the zero Redelivery, a message that is always refused
// becomes a dead letter after about 40 seconds.
type Redelivery struct {
	// Refusals is the number of negative acknowledgements after which a message
	// becomes a dead letter. 0: 400.
	Refusals int
	// MinBackoff is the delay before the second redelivery; the first follows
	// at once. The delay doubles up to MaxBackoff, with a jitter of half of
	// it. 0: 1 ms and 100 ms.
	MinBackoff, MaxBackoff time.Duration
	// AckWait is the time after which an unanswered message is also delivered
	// to a second subscription, preferably one without the message. An
	// acknowledgement of an earlier delivery still counts. 0: 30 s.
	AckWait time.Duration
	// Unanswered is the number of deliveries without an answer within AckWait
	// after which a message becomes a dead letter. 0: 10.
	Unanswered int
}

// withDefaults returns r with the defaults in place of zeros.
func (r Redelivery) withDefaults() Redelivery {
	r.Refusals, r.Unanswered = cmp.Or(r.Refusals, 400), cmp.Or(r.Unanswered, 10)
	r.MinBackoff, r.MaxBackoff = cmp.Or(r.MinBackoff, time.Millisecond), cmp.Or(r.MaxBackoff, 100*time.Millisecond)
	r.AckWait = cmp.Or(r.AckWait, 30*time.Second)
	return r
}

// A pending is a message between its first delivery and its acknowledgement.
// The dispatching subscription owns it.
type pending struct {
	entry    events.Entry
	template *message.Message // copied for each delivery
	released bool             // it is a dead letter that was released
	backoff  *backoff.ExponentialBackOff

	due        time.Time   // when it may be handed over
	deliveries []*delivery // without an answer
	latest     *delivery   // one of them, within AckWait; nil: the message is to be handed over

	refusals, unanswered int
	decodeErr            error // why it is no message
	acknowledged         bool
}

// A delivery is one copy of a message, sent to a subscription.
type delivery struct {
	to    *subscription
	m     *message.Message
	end   context.CancelFunc // ends the context of the message
	until time.Time
}

// pending returns the delivery state of a message. released marks a dead
// letter that is redelivered.
func (g *group) pending(e events.Entry, released bool) *pending {
	r := g.bus.config.Redelivery
	p := &pending{entry: e, released: released, backoff: backoff.NewExponentialBackOff()}
	p.backoff.InitialInterval, p.backoff.MaxInterval, p.backoff.Multiplier = r.MinBackoff, r.MaxBackoff, 2
	p.template, p.decodeErr = messageOf(e)
	return p
}

// isFinished reports whether the message is acknowledged or becomes a dead
// letter.
func (p *pending) isFinished(r Redelivery) bool {
	return p.acknowledged || p.decodeErr != nil || p.refusals >= r.Refusals || p.unanswered >= r.Unanswered
}

// reason says why an unacknowledged message becomes a dead letter.
func (p *pending) reason(r Redelivery) string {
	switch {
	case p.decodeErr != nil:
		return p.decodeErr.Error()
	case p.refusals >= r.Refusals:
		return fmt.Sprintf("subscribers refused it %d times", p.refusals)
	}
	return fmt.Sprintf("subscribers did not answer within %v, %d times", r.AckWait, p.unanswered)
}

// deliver delivers a message until it is acknowledged or becomes a dead
// letter. If ctx ends first, the message stays pending for the next
// dispatcher.
func (g *group) deliver(ctx context.Context, p *pending) error {
	for !p.isFinished(g.bus.config.Redelivery) {
		if err := g.awaitEvent(ctx, p); err != nil {
			return err
		}
	}
	for _, d := range p.deliveries {
		d.end()
	}
	p.deliveries = nil
	return nil
}

// awaitEvent offers the message to subscriptions if a delivery is due, and
// waits for one event: a subscription receives it, a subscription begins or
// ends, an answer arrives, or a timer fires.
func (g *group) awaitEvent(ctx context.Context, p *pending) error {
	now := time.Now()
	offered, changed := g.beginOffer(func(all []*subscription) []*subscription {
		p.prune(all)
		return p.recipients(all, now)
	})
	defer g.endOffer()
	if p.acknowledged {
		return nil
	}
	var s selectSet
	s.receive(ctx.Done(), func() {})
	s.receive(changed, func() {})
	for _, d := range p.deliveries {
		s.receive(d.m.Acked(), func() {})
		s.receive(d.m.Nacked(), func() { p.nack(d) })
	}
	if at, ok := p.deadline(now); ok {
		timer := time.NewTimer(at.Sub(now))
		defer timer.Stop()
		s.receive(timer.C, func() { p.expire() })
	}
	for _, to := range offered {
		s.offer(p.deliveryTo(to, now.Add(g.bus.config.Redelivery.AckWait)), p)
	}
	s.wait()
	if p.checkAcks(); p.acknowledged {
		return nil // also where the subscription ended after it
	}
	return context.Cause(ctx)
}

// recipients returns the subscriptions to which the message is offered now:
// the ones without a delivery of it, or all if each has one.
func (p *pending) recipients(all []*subscription, now time.Time) (to []*subscription) {
	if p.latest != nil || now.Before(p.due) {
		return nil
	}
	for _, s := range all {
		if s.ctx.Err() == nil && !slices.ContainsFunc(p.deliveries, func(d *delivery) bool { return d.to == s }) {
			to = append(to, s)
		}
	}
	if len(to) == 0 {
		to = slices.Clone(all)
	}
	return to
}

// deadline returns the time of the next timer, and whether there is one.
func (p *pending) deadline(now time.Time) (time.Time, bool) {
	if p.latest != nil {
		return p.latest.until, true
	}
	return p.due, now.Before(p.due)
}

// expire counts the latest delivery as unanswered.
func (p *pending) expire() {
	if p.latest != nil {
		p.latest = nil
		p.unanswered++
	}
}

// nack counts a negative acknowledgement of the latest delivery. For an
// earlier delivery it only forgets the delivery.
func (p *pending) nack(d *delivery) {
	if p.drop(d); p.latest != d {
		return
	}
	p.latest = nil
	if p.refusals++; p.refusals > 1 {
		p.due = time.Now().Add(p.backoff.NextBackOff())
	}
}

// prune drops the deliveries of ended subscriptions, so that others receive
// the message at once.
func (p *pending) prune(present []*subscription) {
	p.checkAcks()
	for _, d := range slices.Clone(p.deliveries) {
		if slices.Contains(present, d.to) {
			continue
		}
		if p.drop(d); p.latest == d {
			p.latest = nil
		}
	}
}

// checkAcks takes the acknowledgements given so far.
func (p *pending) checkAcks() {
	for _, d := range p.deliveries {
		select {
		case <-d.m.Acked():
			p.acknowledged = true
		default:
		}
	}
}

// drop ends a delivery.
func (p *pending) drop(d *delivery) {
	d.end()
	p.deliveries = slices.DeleteFunc(p.deliveries, func(o *delivery) bool { return o == d })
}

// deliveryTo returns a delivery with a copy of the payload, as subscribers may
// change it.
func (p *pending) deliveryTo(s *subscription, until time.Time) *delivery {
	d := &delivery{to: s, m: p.template.Copy(), until: until}
	d.m.Payload = slices.Clone(d.m.Payload)
	ctx, end := context.WithCancel(s.ctx)
	d.m.SetContext(ctx)
	d.end = end
	return d
}

// A selectSet is a select statement over a variable number of channels.
type selectSet struct {
	cases []reflect.SelectCase
	then  []func()
	ends  []func() // of the deliveries that are offered
}

// receive adds a receive from a channel; wait calls then if it is chosen.
func (s *selectSet) receive(from any, then func()) {
	s.cases = append(s.cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(from)})
	s.then = append(s.then, then)
}

// offer adds the send of a delivery.
func (s *selectSet) offer(d *delivery, p *pending) {
	s.cases = append(s.cases, reflect.SelectCase{Dir: reflect.SelectSend, Chan: reflect.ValueOf(d.to.out), Send: reflect.ValueOf(d.m)})
	sent := false
	s.then = append(s.then, func() {
		sent = true
		p.deliveries, p.latest = append(p.deliveries, d), d
	})
	s.ends = append(s.ends, func() {
		if !sent {
			d.end()
		}
	})
}

// wait blocks until one channel is ready, and runs its function.
func (s *selectSet) wait() {
	chosen, _, _ := reflect.Select(s.cases)
	s.then[chosen]()
	for _, end := range s.ends {
		end()
	}
}
