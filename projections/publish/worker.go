package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// runWorker publishes the records of a queue in order, until the queue is closed and
// empty, or deliver returns an error, such as the cause of ctx.
func (r *relayRun) runWorker(ctx context.Context, queue <-chan outgoing) error {
	// next has the first record of the next batch if fillBatch has received it
	// already.
	var next []outgoing
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

// fillBatch appends the records that wait in the queue to a batch, up to Policy.Batch
// records. It never waits: a batch holds the records that arrived while the target
// was busy, so batches grow with the load and add no delay. If the target is no
// Batcher, all records of a batch have one topic: a record of another topic ends the
// batch, and next contains that record as the start of the next batch.
func (r *relayRun) fillBatch(batch []outgoing, queue <-chan outgoing) (filled, next []outgoing) {
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

// deliver publishes a batch until the target acknowledges it or its records are dead
// letters. It returns the cause of ctx if ctx ends first, and an
// ErrTooManyDeadLetters at a limit of the policy. After each attempt:
//
//   - An ErrUnavailable is retried without end, with backoff, and does not count as a
//     try: the target is at fault.
//   - Any other refusal of a batch of several records is resolved by publishing each
//     record alone, as only some may be at fault.
//   - A single record becomes a dead letter after an ErrUnacceptable, or after
//     Policy.Tries refusals. Until then it is retried with backoff.
func (r *relayRun) deliver(ctx context.Context, batch []outgoing) error {
	tries, delays := 0, r.policy.newBackoff()
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
			r.reportFailure(FailedAttempt{Position: batch[0].entry.Position, Try: attempt, Err: err})
			return r.deadLetter(batch[0], tries, err)
		}
		wait := delays.NextBackOff()
		r.reportFailure(FailedAttempt{Position: batch[0].entry.Position, Try: attempt, Wait: wait, Err: err})
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// deliverEach publishes the records of a refused batch one by one, in order. The
// refusal of the batch does not count as a try of any record.
func (r *relayRun) deliverEach(ctx context.Context, batch []outgoing, err error) error {
	r.reportFailure(FailedAttempt{Position: batch[0].entry.Position, Try: 1, Err: err})
	for i := range batch {
		if err := r.deliver(ctx, batch[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// reportFailure saves the error of an attempt in the consumer and calls
// Job.Failed.
func (r *relayRun) reportFailure(f FailedAttempt) {
	r.mu.Lock()
	r.recordErrorLocked(f.Err)
	r.mu.Unlock()
	if r.job.Failed != nil {
		r.job.Failed(f)
	}
}

// attempt publishes a batch once, without holding a lock. A panic of the target is
// returned as an error.
func (r *relayRun) attempt(batch []outgoing) (err error) {
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
	// Each attempt has new messages, because a message remembers its acknowledgement.
	messages := make([]*message.Message, len(batch))
	for i, p := range batch {
		messages[i] = messageOf(p.entry, p.attrs)
	}
	return r.to.Publish(batch[0].topic, messages...)
}

// retryLoop retries dead letters whenever retrySoon signals, until ctx ends. It calls
// stop with the first error, of the store or of too many dead letters.
func (r *relayRun) retryLoop(ctx context.Context, stop context.CancelCauseFunc) {
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

// retryDeadLetters publishes the dead letters whose Retry is set, one after the
// other. An acknowledged record is no longer a dead letter. A refused record remains
// one, with Retry unset.
func (r *relayRun) retryDeadLetters(ctx context.Context) error {
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

// loadRecord reads the record of a dead letter from the store. If the store has
// another record or none at its revision, the error is an events.ErrDamaged.
func (r *relayRun) loadRecord(ctx context.Context, letter DeadLetter) (outgoing, error) {
	for e, err := range r.relay.store.Read(ctx, letter.Stream, letter.Revision-1) {
		if err != nil {
			return outgoing{}, err
		}
		if !letter.is(e) {
			break
		}
		return outgoing{entry: e, attrs: attributesOf(e)}, nil
	}
	return outgoing{}, fmt.Errorf("%w: the dead letter %s is not at revision %d of %s",
		events.ErrDamaged, letter.Event, letter.Revision, letter.Stream)
}
