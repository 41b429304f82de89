package publish

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A Target is what records are handed to.
type Target = message.Publisher

// A Batcher is a Target that takes messages of several topics at once. A batch has
// as many records as the policy allows and as have arrived while the target was
// busy; one for a Target that is no Batcher ends where the topic changes.
type Batcher interface {
	// PublishBatch is what Publish is, for messages of several topics: it returns
	// when the target has all of them, durably as far as it promises that.
	PublishBatch(batch ...Routed) error
}

// A Routed message is one with its topic.
type Routed struct {
	Topic   string
	Message *message.Message
}

// An Opener opens the target of an order, of which the consumer has come to a
// position; the caller closes it. Its errors name the target.
type Opener func(ctx context.Context, o JobConfig, at events.Position) (Target, error)

// of is the openFunc of the target of an order.
func (open Opener) of(o JobConfig) openFunc {
	return func(ctx context.Context, at events.Position) (Target, error) { return open(ctx, o, at) }
}

// FollowAll follows the log for several configs side by side, until its context
// ends, whose cause it returns. A target that cannot be opened is tried again,
// with the delays of the order's policy, and so is a consumer that runs
// elsewhere, until it does not. An order whose run ends with another error stands
// still, and the others go on. Each such error is given to onError, if that is not
// nil, by several goroutines at once, and kept as the lastError of the consumer;
// what is tried again, the first time and each time that the wait has doubled.
func (d *Relay) FollowAll(ctx context.Context, configs []JobConfig, open Opener, onError func(name string, err error)) error {
	var running sync.WaitGroup
	for _, o := range configs {
		running.Go(func() { d.followOne(ctx, o, open, onError) })
	}
	running.Wait()
	<-ctx.Done() // also where all stand still: the others are the caller's
	return context.Cause(ctx)
}

func (d *Relay) followOne(ctx context.Context, o JobConfig, open Opener, onError func(name string, err error)) {
	delays := o.Policy.withDefaults().newBackoff()
	for attempt := 1; ctx.Err() == nil; attempt++ {
		begun, err := d.followOpened(ctx, o, open)
		if ctx.Err() != nil {
			return
		}
		if begun || attempt&(attempt-1) == 0 {
			err = errors.Join(err, d.recordError(ctx, o.Name, err))
			if onError != nil {
				onError(o.Name, err)
			}
		}
		if begun || sleep(ctx, delays.NextBackOff()) != nil {
			return
		}
	}
}

// followOpened follows the log for an order. It reports whether that is all that
// can be done for it: another time the target may open, or the consumer not run.
func (d *Relay) followOpened(ctx context.Context, o JobConfig, open Opener) (begun bool, err error) {
	unopened := false
	err = d.FollowConfigured(ctx, o, func(ctx context.Context, o JobConfig, at events.Position) (Target, error) {
		to, err := open(ctx, o, at)
		unopened = err != nil
		return to, err
	})
	return !unopened && !errors.Is(err, ErrRunning), err
}

// recordError keeps an error as the lastError of a consumer that does not run, if there
// is that consumer.
func (d *Relay) recordError(ctx context.Context, name string, lastError error) (err error) {
	lock, err := d.lockConsumer(name)
	if errors.Is(err, ErrRunning) {
		return nil // who runs it has its own troubles, and onError has this one
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	c, err := d.load(ctx, name)
	if err != nil {
		return nil // there is nowhere to keep it
	}
	c.LastError = &LastError{Text: truncated(lastError.Error()), Time: d.now().UTC().Truncate(time.Microsecond)}
	return d.save(ctx, c)
}
