package publish

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A Target is a publisher of messages.
type Target = message.Publisher

// A Batcher is a Target that accepts messages of several topics in one call.
// Its batches hold the records that arrived while it was busy, up to
// Policy.Batch. For other targets a batch ends where the topic changes.
type Batcher interface {
	// PublishBatch is Publish for messages of several topics: it returns once
	// the target has all of them, as durably as the target promises.
	PublishBatch(batch ...Routed) error
}

// A Routed is a message with its topic.
type Routed struct {
	Topic   string
	Message *message.Message
}

// A TargetOpener opens the target of a job whose consumer has reached a position.
// The caller closes the target. Errors name the target, without credentials.
type TargetOpener func(ctx context.Context, o JobConfig, at events.Position) (Target, error)

// of returns the openFunc that opens the target of a job.
func (open TargetOpener) of(o JobConfig) openFunc {
	return func(ctx context.Context, at events.Position) (Target, error) { return open(ctx, o, at) }
}

// FollowAll runs Follow for several jobs concurrently until ctx ends, and returns the
// cause of ctx, even if every job ended before. It retries, with the backoff of the
// job's policy, while the target does not open or another process runs the consumer.
// Any other error ends that job alone.
//
// FollowAll calls onError, if it is not nil, from several goroutines with each error
// that ends a job, and with retried errors on the first, second, fourth, eighth
// attempt and so on. For a retried error retryIn is the time until the next attempt;
// for an error that ends the job it is 0. FollowAll also saves the error in the
// consumer.
func (d *Relay) FollowAll(ctx context.Context, configs []JobConfig, open TargetOpener, onError func(name string, err error, retryIn time.Duration)) error {
	var running sync.WaitGroup
	for _, o := range configs {
		running.Go(func() { d.followOne(ctx, o, open, onError) })
	}
	running.Wait()
	// If every job ended with an error, onError has reported each, and the caller
	// decides when to end.
	<-ctx.Done()
	return context.Cause(ctx)
}

// followOne runs one job of FollowAll. It returns after an error that ends the job,
// or when ctx ends. It reports attempts whose number is a power of two.
func (d *Relay) followOne(ctx context.Context, o JobConfig, open TargetOpener, onError func(name string, err error, retryIn time.Duration)) {
	delays := o.Policy.withDefaults().newBackoff()
	for attempt := 1; ctx.Err() == nil; attempt++ {
		begun, err := d.followOpened(ctx, o, open)
		if ctx.Err() != nil {
			return
		}
		retryIn := time.Duration(0)
		if !begun {
			retryIn = delays.NextBackOff()
		}
		if begun || attempt&(attempt-1) == 0 {
			err = errors.Join(err, d.recordError(ctx, o.Name, err))
			if onError != nil {
				onError(o.Name, err, retryIn)
			}
		}
		if begun || sleep(ctx, retryIn) != nil {
			return
		}
	}
}

// followOpened runs FollowConfigured once. begun is false if the target did not open
// or another process runs the consumer, so that a later attempt may succeed.
func (d *Relay) followOpened(ctx context.Context, o JobConfig, open TargetOpener) (begun bool, err error) {
	unopened := false
	err = d.FollowConfigured(ctx, o, func(ctx context.Context, o JobConfig, at events.Position) (Target, error) {
		to, err := open(ctx, o, at)
		unopened = err != nil
		return to, err
	})
	return !unopened && !errors.Is(err, ErrRunning), err
}

// recordError saves lastError as the last error of a consumer that does not run. It
// returns nil without saving in two cases: another process runs the consumer and
// saves errors of its own, or the consumer does not load, so that no document can
// hold the error.
func (d *Relay) recordError(ctx context.Context, name string, lastError error) (err error) {
	lock, err := d.lockConsumer(name)
	if errors.Is(err, ErrRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	c, err := d.load(ctx, name)
	if err != nil {
		return nil
	}
	c.LastError = &LastError{Text: truncated(lastError.Error()), Time: d.now().UTC().Truncate(time.Microsecond)}
	return d.save(ctx, c)
}
