package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// runWorker publishes the records of a queue in order, until the queue is
// closed and empty. It returns the cause of ctx if that ends first.
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

// fillBatch appends the records that wait in the queue to a batch, up to
// Policy.Batch. Without a Batcher a batch has one topic: a record of another
// topic ends it, and is returned as the start of the next batch.
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

// deliver publishes a batch until the target acknowledges it or each of its
// records is a dead letter. If the target refuses a batch of several records,
// deliver publishes each record alone, as one of them may be at fault.
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

// deliverEach publishes the records of a refused batch one by one.
func (r *run) deliverEach(ctx context.Context, batch []outgoing, err error) error {
	r.reportFailure(Failure{Position: batch[0].entry.Position, Try: 1, Err: err})
	for i := range batch {
		if err := r.deliver(ctx, batch[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// reportFailure saves the error of an attempt in the consumer and calls
// Job.Failed.
func (r *run) reportFailure(f Failure) {
	r.mu.Lock()
	r.recordErrorLocked(f.Err)
	r.mu.Unlock()
	if r.job.Failed != nil {
		r.job.Failed(f)
	}
}

// attempt publishes a batch once. It returns an error if the publisher panics.
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

// retryLoop retries dead letters whenever retrySoon signals, until ctx ends.
// It calls stop with an error of the store.
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

// retryDeadLetters publishes the dead letters whose Retry is set.
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

// loadRecord reads the record of a dead letter from the store. It returns an
// events.ErrDamaged if the store has another record there.
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
