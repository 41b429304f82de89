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

// A Redelivery sets how often and after which delays an unacknowledged message is
// redelivered. With the zero Redelivery, which selects the defaults, a message that
// is always refused becomes a dead letter after about 40 seconds.
type Redelivery struct {
	// Refusals is the number of negative acknowledgements after which a message becomes
	// a dead letter. The default, for 0, is 400.
	Refusals int
	// MinBackoff is the delay before the second redelivery; the first follows at once.
	// The delay doubles up to MaxBackoff, with a jitter of half of the delay. The
	// defaults, for 0, are 1 ms and 100 ms.
	MinBackoff, MaxBackoff time.Duration
	// AckWait is the time after which a message without an answer is also delivered to
	// a second subscription, preferably to one that has no open delivery of it. An
	// acknowledgement of an earlier delivery still counts. The default, for 0, is 30 s.
	AckWait time.Duration
	// Unanswered is the number of deliveries without an answer within AckWait after
	// which a message becomes a dead letter. The default, for 0, is 10.
	Unanswered int
}

// withDefaults returns r with the defaults in place of zeros.
func (r Redelivery) withDefaults() Redelivery {
	r.Refusals, r.Unanswered = cmp.Or(r.Refusals, 400), cmp.Or(r.Unanswered, 10)
	r.MinBackoff, r.MaxBackoff = cmp.Or(r.MinBackoff, time.Millisecond), cmp.Or(r.MaxBackoff, 100*time.Millisecond)
	r.AckWait = cmp.Or(r.AckWait, 30*time.Second)
	return r
}

// A pending is the delivery state of a message, from its first delivery until it is
// acknowledged or becomes a dead letter. The message is delivered to one subscription
// at a time. If a subscription does not answer within AckWait, its delivery stays
// open while the message goes to a second subscription. The first acknowledgement of
// any delivery counts; a refusal counts only from the latest one. The dispatching
// subscription owns the pending, which is not synchronized.
type pending struct {
	entry events.Entry
	// template is the decoded message. Each delivery is a copy.
	template *message.Message
	// released reports that the message is a dead letter that Release put up for
	// redelivery.
	released bool
	backoff  *backoff.ExponentialBackOff

	// due is the time before which the message is not delivered again.
	due time.Time
	// deliveries are the deliveries without an answer.
	deliveries []*delivery
	// latest is the delivery whose AckWait has not ended, or nil if the message is to
	// be delivered.
	latest *delivery

	// refusals counts the negative acknowledgements of the latest delivery,
	// unanswered the deliveries whose AckWait ended.
	refusals, unanswered int
	// decodeErr is the damage of the record, or nil. A damaged message is never
	// delivered.
	decodeErr error
	// acknowledged reports the acknowledgement of any delivery.
	acknowledged bool
}

// A delivery is one copy of a message for a subscription.
type delivery struct {
	to *outputChannel
	m  *message.Message
	// end cancels the context of the message, by which its subscriber sees that the
	// delivery ended.
	end context.CancelFunc
	// until is the time at which the AckWait of the delivery ends.
	until time.Time
}

// pending returns the delivery state of the message in a record. released is true for
// a dead letter that is delivered again.
func (g *group) pending(e events.Entry, released bool) *pending {
	r := g.bus.config.Redelivery
	p := &pending{entry: e, released: released, backoff: backoff.NewExponentialBackOff()}
	p.backoff.InitialInterval, p.backoff.MaxInterval, p.backoff.Multiplier = r.MinBackoff, r.MaxBackoff, 2
	p.template, p.decodeErr = messageOf(e)
	return p
}

// isFinished reports whether the message is delivered no more: it is acknowledged, or
// it becomes a dead letter because it is damaged or has reached a limit of r.
func (p *pending) isFinished(r Redelivery) bool {
	return p.acknowledged || p.decodeErr != nil || p.refusals >= r.Refusals || p.unanswered >= r.Unanswered
}

// reason returns the text that explains why an unacknowledged message becomes a dead
// letter.
func (p *pending) reason(r Redelivery) string {
	switch {
	case p.decodeErr != nil:
		return p.decodeErr.Error()
	case p.refusals >= r.Refusals:
		return fmt.Sprintf("subscribers refused it %d times", p.refusals)
	}
	return fmt.Sprintf("subscribers did not answer within %v, %d times", r.AckWait, p.unanswered)
}

// deliver delivers a message until it is acknowledged or has to become a dead letter,
// and then ends its open deliveries. If ctx ends first it returns the cause of ctx,
// and the message stays pending for the next dispatcher.
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

// awaitEvent offers the message to subscriptions if a delivery is due. It waits for
// one event and changes p accordingly: a subscription receives the message, a
// subscription begins or ends, an answer arrives, or a timer fires. Offering and
// waiting are one select, so that a subscription that does not receive blocks no
// other. An acknowledgement counts even if ctx ended at the same time.
func (g *group) awaitEvent(ctx context.Context, p *pending) error {
	now := time.Now()
	offered, changed := g.beginOffer(func(all []*outputChannel) []*outputChannel {
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
		return nil
	}
	return context.Cause(ctx)
}

// recipients returns the subscriptions to which the message is offered now: those
// without an open delivery of the message, or all subscriptions if each has one. It
// returns nil while the latest delivery may still be answered or the backoff lasts.
func (p *pending) recipients(all []*outputChannel, now time.Time) (to []*outputChannel) {
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

// deadline returns the time at which the next timer fires, the end of AckWait or of
// the backoff, and whether a timer is needed.
func (p *pending) deadline(now time.Time) (time.Time, bool) {
	if p.latest != nil {
		return p.latest.until, true
	}
	return p.due, now.Before(p.due)
}

// expire counts the latest delivery as unanswered when its AckWait ends. The delivery
// stays open: a later acknowledgement counts.
func (p *pending) expire() {
	if p.latest != nil {
		p.latest = nil
		p.unanswered++
	}
}

// nack closes a refused delivery. Only the refusal of the latest delivery counts.
// After the first such refusal the message is redelivered at once; each later refusal
// delays the redelivery with backoff.
func (p *pending) nack(d *delivery) {
	if p.drop(d); p.latest != d {
		return
	}
	p.latest = nil
	if p.refusals++; p.refusals > 1 {
		p.due = time.Now().Add(p.backoff.NextBackOff())
	}
}

// prune closes the deliveries of subscriptions that have ended, so that others
// receive the message at once. It takes acknowledgements first, as a subscriber may
// acknowledge and end.
func (p *pending) prune(present []*outputChannel) {
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

// checkAcks sets acknowledged if any open delivery was acknowledged.
func (p *pending) checkAcks() {
	for _, d := range p.deliveries {
		select {
		case <-d.m.Acked():
			p.acknowledged = true
		default:
		}
	}
}

// drop cancels the context of a delivery and removes it.
func (p *pending) drop(d *delivery) {
	d.end()
	p.deliveries = slices.DeleteFunc(p.deliveries, func(o *delivery) bool { return o == d })
}

// deliveryTo returns a delivery to the subscription s. The context of its message
// ends with the context of s or with the delivery. The payload is a copy, because
// subscribers may change it.
func (p *pending) deliveryTo(s *outputChannel, until time.Time) *delivery {
	d := &delivery{to: s, m: p.template.Copy(), until: until}
	d.m.Payload = slices.Clone(d.m.Payload)
	ctx, end := context.WithCancel(s.ctx)
	d.m.SetContext(ctx)
	d.end = end
	return d
}

// A selectSet is a select statement over a variable number of channels. It is used
// once.
type selectSet struct {
	cases []reflect.SelectCase
	// then has the function of each case, which wait calls if the case is chosen.
	then []func()
	// ends has a function for each offered delivery. The function cancels the delivery
	// unless its message was sent.
	ends []func()
}

// receive adds the case of receiving from a channel. If wait chooses this case, it
// calls then.
func (s *selectSet) receive(from any, then func()) {
	s.cases = append(s.cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(from)})
	s.then = append(s.then, then)
}

// offer adds the case of sending the delivery d to its subscription. If wait chooses
// this case, d becomes the latest delivery of p.
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

// wait blocks until one channel is ready, runs its function, and cancels the
// deliveries that were not sent.
func (s *selectSet) wait() {
	chosen, _, _ := reflect.Select(s.cases)
	s.then[chosen]()
	for _, end := range s.ends {
		end()
	}
}
