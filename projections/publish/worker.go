package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// runWorker hands over the records of a queue, in order, until the queue is closed and
// empty. It returns the cause of a context that ends before.
func (r *run) runWorker(ctx context.Context, queue <-chan outgoing) error {
	var next []outgoing // the first of the next batch, if it is known
	for {
		if len(next) == 0 {
			p, more := <-queue
			if !more {
				return nil
			}
			next = append(next, p)
		}
		batch := next
		batch, next = r.fillBatch(batch, queue)
		if err := r.deliver(ctx, batch); err != nil {
			return err
		}
	}
}

// fillBatch adds to a batch the records that wait in a queue, and returns the batch. Unless
// the target is a Batcher, a batch has one topic: the record that ends it, of another
// topic, is returned as the next batch.
func (r *run) fillBatch(batch []outgoing, queue <-chan outgoing) (filled, next []outgoing) {
	for len(batch) < r.policy.Batch {
		select {
		case p, more := <-queue:
			if !more {
				return batch, nil
			}
			if r.batcher == nil && p.topic != batch[0].topic {
				return batch, []outgoing{p}
			}
			batch = append(batch, p)
		default:
			return batch, nil
		}
	}
	return batch, nil
}

// deliver hands over a batch until the target has it, or each record of it was
// set aside. Where the batch as a whole is not taken, its records are handed
// over one by one, as one of them may be at fault.
func (r *run) deliver(ctx context.Context, batch []outgoing) error {
	tries, delays := 0, r.policy.newBackoff() // tries count against the record
	for attempt := 1; ; attempt++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		err := r.attempt(batch)
		if err == nil {
			r.ack(batch)
			return nil
		}
		absent := errors.Is(err, ErrUnavailable)
		if !absent {
			tries++
		}
		if !absent && len(batch) > 1 {
			return r.deliverEach(ctx, batch, err)
		}
		if errors.Is(err, ErrUnacceptable) || !absent && tries >= r.policy.Tries {
			r.reportFailure(Failure{Position: batch[0].entry.Position, Try: attempt, Err: err})
			return r.deadLetter(batch[0], tries, err)
		}
		wait := delays.NextBackOff()
		r.reportFailure(Failure{Position: batch[0].entry.Position, Try: attempt, Wait: wait, Err: err})
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (r *run) deliverEach(ctx context.Context, batch []outgoing, err error) error {
	r.reportFailure(Failure{Position: batch[0].entry.Position, Try: 1, Err: err})
	for i := range batch {
		if err := r.deliver(ctx, batch[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) reportFailure(f Failure) {
	r.mu.Lock()
	r.recordErrorLocked(f.Err)
	r.mu.Unlock()
	if r.job.Failed != nil {
		r.job.Failed(f)
	}
}

// attempt makes one attempt. A publisher that panics has failed.
func (r *run) attempt(batch []outgoing) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("publish to %s: panic: %v", batch[0].topic, p)
		}
	}()
	if r.batcher != nil {
		routed := make([]Routed, len(batch))
		for i, p := range batch {
			routed[i] = Routed{p.topic, messageOf(p.entry, p.attrs)}
		}
		return r.batcher.PublishBatch(routed...)
	}
	messages := make([]*message.Message, len(batch)) // anew each time: they remember what became of them
	for i, p := range batch {
		messages[i] = messageOf(p.entry, p.attrs)
	}
	return r.to.Publish(batch[0].topic, messages...)
}

// retryLoop tries what was set aside each time that it is asked for, until its
// context ends.
func (r *run) retryLoop(ctx context.Context, stop context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.retrySoon:
		}
		if err := r.retryDeadLetters(ctx); err != nil && ctx.Err() == nil {
			stop(err)
			return
		}
	}
}

// retryDeadLetters hands over what was set aside and is to be tried again.
func (r *run) retryDeadLetters(ctx context.Context) error {
	agents := agentCache{store: r.relay.store, agents: map[string]string{}}
	for _, letter := range r.snapshot().DeadLetters {
		if !letter.Retry {
			continue
		}
		p, err := r.loadRecord(ctx, letter)
		if err == nil {
			p.attrs.agent, err = agents.agentOf(ctx, p.attrs.session)
		}
		if err != nil {
			return err
		}
		p.topic = r.job.Topic.of(p.attrs)
		if err := r.deliver(ctx, []outgoing{p}); err != nil {
			return err
		}
	}
	return nil
}

// loadRecord reads a record that was set aside.
func (r *run) loadRecord(ctx context.Context, letter DeadLetter) (outgoing, error) {
	for e, err := range r.relay.store.Read(ctx, letter.Stream, letter.Revision-1) {
		if err != nil {
			return outgoing{}, err
		}
		if !letter.is(e) {
			break
		}
		return outgoing{entry: e, attrs: attributesOf(e)}, nil
	}
	return outgoing{}, fmt.Errorf("%w: the record %s, which was set aside, is not at revision %d of %s",
		events.ErrDamaged, letter.Event, letter.Revision, letter.Stream)
}
