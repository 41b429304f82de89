package publish

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// work hands over the records of a lane, in order, until the lane is closed and
// empty. It returns the cause of a context that ends before.
func (r *run) work(ctx context.Context, lane <-chan parcel) error {
	var held []parcel // the first of the next batch, if it is known
	for {
		if len(held) == 0 {
			p, more := <-lane
			if !more {
				return nil
			}
			held = append(held, p)
		}
		batch := held
		batch, held = r.fill(batch, lane)
		if err := r.deliver(ctx, batch); err != nil {
			return err
		}
	}
}

// fill adds to a batch the records that wait in a lane, and returns the batch. Unless
// the target is a Batcher, a batch has one topic: the record that ends it, of another
// topic, is returned as the next batch.
func (r *run) fill(batch []parcel, lane <-chan parcel) (filled, next []parcel) {
	for len(batch) < r.policy.Batch {
		select {
		case p, more := <-lane:
			if !more {
				return batch, nil
			}
			if r.batcher == nil && p.topic != batch[0].topic {
				return batch, []parcel{p}
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
func (r *run) deliver(ctx context.Context, batch []parcel) error {
	tries, waits := 0, r.policy.waits() // tries count against the record
	for attempt := 1; ; attempt++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		err := r.publish(batch)
		if err == nil {
			r.acknowledged(batch)
			return nil
		}
		absent := errors.Is(err, ErrUnavailable)
		if !absent {
			tries++
		}
		if !absent && len(batch) > 1 {
			return r.singly(ctx, batch, err)
		}
		if errors.Is(err, ErrUnacceptable) || !absent && tries >= r.policy.Tries {
			r.failed(Failure{Position: batch[0].entry.Position, Try: attempt, Err: err})
			return r.setAside(batch[0], tries, err)
		}
		wait := waits.NextBackOff()
		r.failed(Failure{Position: batch[0].entry.Position, Try: attempt, Wait: wait, Err: err})
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

func (r *run) singly(ctx context.Context, batch []parcel, err error) error {
	r.failed(Failure{Position: batch[0].entry.Position, Try: 1, Err: err})
	for i := range batch {
		if err := r.deliver(ctx, batch[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) failed(f Failure) {
	r.mu.Lock()
	r.troubleLocked(f.Err)
	r.mu.Unlock()
	if r.job.Failed != nil {
		r.job.Failed(f)
	}
}

// publish makes one attempt. A publisher that panics has failed.
func (r *run) publish(batch []parcel) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("publish to %s: panic: %v", batch[0].topic, p)
		}
	}()
	if r.batcher != nil {
		routed := make([]Routed, len(batch))
		for i, p := range batch {
			routed[i] = Routed{p.topic, messageOf(p.entry, p.of)}
		}
		return r.batcher.PublishBatch(routed...)
	}
	messages := make([]*message.Message, len(batch)) // anew each time: they remember what became of them
	for i, p := range batch {
		messages[i] = messageOf(p.entry, p.of)
	}
	return r.to.Publish(batch[0].topic, messages...)
}

// retryAgain tries what was set aside each time that it is asked for, until its
// context ends.
func (r *run) retryAgain(ctx context.Context, stop context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.again:
		}
		if err := r.redeliver(ctx); err != nil && ctx.Err() == nil {
			stop(err)
			return
		}
	}
}

// redeliver hands over what was set aside and is to be tried again.
func (r *run) redeliver(ctx context.Context) error {
	known := agents{store: r.desk.store, known: map[string]string{}}
	for _, poison := range r.look().Poison {
		if !poison.Again {
			continue
		}
		p, err := r.recall(ctx, poison)
		if err == nil {
			p.of.agent, err = known.of(ctx, p.of.session)
		}
		if err != nil {
			return err
		}
		p.topic = r.job.Topic.of(p.of)
		if err := r.deliver(ctx, []parcel{p}); err != nil {
			return err
		}
	}
	return nil
}

// recall reads a record that was set aside.
func (r *run) recall(ctx context.Context, poison Poison) (parcel, error) {
	for e, err := range r.desk.store.Read(ctx, poison.Stream, poison.Revision-1) {
		if err != nil {
			return parcel{}, err
		}
		if !poison.is(e) {
			break
		}
		return parcel{entry: e, of: particularsOf(e)}, nil
	}
	return parcel{}, fmt.Errorf("%w: the record %s, which was set aside, is not at revision %d of %s",
		events.ErrDamaged, poison.Event, poison.Revision, poison.Stream)
}
