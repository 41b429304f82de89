package publish

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A Job describes a publication: its name, its target and topics, the records that it
// selects, the position at which it begins, and its policy.
type Job struct {
	// Name is the name of the consumer, see [ValidName].
	Name string
	// Target is the target without credentials, see [Redacted]. It is saved and
	// shown.
	Target string
	Topic  Topic
	Filter Filter
	// Start applies to a new consumer alone. An existing one continues at its
	// position.
	Start  Start
	Policy Policy

	// Failed, if not nil, is called after each attempt that failed, by several
	// goroutines at once.
	Failed func(FailedAttempt)
}

// A FailedAttempt is a failed attempt to publish.
type FailedAttempt struct {
	// Position is that of the record, or of the first record of a batch.
	Position events.Position
	// Try is the number of the attempt, from 1.
	Try int
	// Wait is the time until the next attempt. It is zero if the record becomes a
	// dead letter, or if the relay publishes the records of the batch one by one.
	Wait time.Duration
	Err  error
}

// CatchUp publishes the records that the log has now and returns once each was
// acknowledged or is a dead letter. It creates a missing consumer. It does not close
// the publisher. It returns the same errors as [Relay.Follow].
func (d *Relay) CatchUp(ctx context.Context, job Job, to message.Publisher) error {
	return d.run(ctx, job, alreadyOpen(to), catchUp)
}

// CatchUpConfigured is CatchUp with a target that the function open opens. It opens
// the target after it has locked the consumer, and closes the target before it
// unlocks the consumer. If the target does not open, it creates no consumer.
func (d *Relay) CatchUpConfigured(ctx context.Context, o JobConfig, open TargetOpener) error {
	return d.run(ctx, o.Job, open.of(o), catchUp)
}

// Follow publishes all records after the position of the consumer and then each new
// one. It creates a missing consumer, durably. It returns the cause of ctx when ctx
// ends, or the first error. It does not close the publisher.
//
// An invalid name is an ErrBadName. A consumer that runs, on any relay with the same
// Locker, is an ErrRunning. A consumer with another target, topic or filter is an
// ErrDifferentJob. Too many dead letters are an ErrTooManyDeadLetters, and the next
// run begins with the record that would have been the next one. A damaged record ends
// the run. Other errors come from the store, the Locker or the ConsumerStore; errors
// of the publisher do not end the run.
func (d *Relay) Follow(ctx context.Context, job Job, to message.Publisher) error {
	return d.run(ctx, job, alreadyOpen(to), follow)
}

// FollowConfigured is Follow with a target that the function open opens. It opens and
// closes the target in the same order as CatchUpConfigured.
func (d *Relay) FollowConfigured(ctx context.Context, o JobConfig, open TargetOpener) error {
	return d.run(ctx, o.Job, open.of(o), follow)
}

// catchUp is the feedFunc of CatchUp: it reads the records that the log has now.
func catchUp(ctx context.Context, r *relayRun, after events.Position) error {
	return r.acceptAll(ctx, events.Scan(ctx, r.relay.store, events.Query{Filter: r.job.Filter.storeFilter(), After: after}))
}

// follow is the feedFunc of Follow: it reads all records and then each new one. It
// returns an error in every case, as a log without an end does not end.
func follow(ctx context.Context, r *relayRun, after events.Position) error {
	following := events.Following{Filter: r.job.Filter.storeFilter(), CaughtUp: r.skip}
	if err := r.acceptAll(ctx, r.relay.store.Follow(ctx, after, following)); err != nil {
		return err
	}
	return errors.New("the log ended")
}

// acceptAll passes each record of a sequence to accept, until the sequence ends. It
// returns the first error of the sequence or of accept.
func (r *relayRun) acceptAll(ctx context.Context, records iter.Seq2[events.Entry, error]) error {
	for e, err := range records {
		if err == nil {
			err = r.accept(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// valid returns an ErrBadName, an ErrBadTopic or the error of the filter if the job
// is invalid.
func (j Job) valid() error {
	if err := ValidName(j.Name); err != nil {
		return err
	}
	if j.Topic.IsZero() {
		return fmt.Errorf("%w: there is none", ErrBadTopic)
	}
	return j.Filter.storeFilter().Valid()
}

// createConsumer adds the name to the index, saves a consumer at the start of the
// job, and syncs both, because a start of "now" cannot be computed again after a
// power cut. It writes the index first: a name without a consumer is harmless, but a
// consumer without a name would not be listed. The caller holds the lock of the
// consumer.
func (d *Relay) createConsumer(ctx context.Context, job Job) (ConsumerState, error) {
	at, err := job.Start.position(ctx, d.store)
	if err != nil {
		return ConsumerState{}, fmt.Errorf("find where %s begins: %w", job.Name, err)
	}
	if err := d.updateIndex(ctx, func(all []string) []string { return withName(all, job.Name) }); err != nil {
		return ConsumerState{}, err
	}
	now := d.now().UTC().Truncate(time.Microsecond)
	c := ConsumerState{Name: job.Name, Target: job.Target, Topic: job.Topic.String(), Filter: job.Filter, Position: at, Begun: now, Saved: now}
	if err := d.save(ctx, c); err != nil {
		return ConsumerState{}, err
	}
	return c, d.consumers.Sync(ctx)
}

// checkJob returns an ErrDifferentJob that names the difference if c was
// created for another target, topic or filter.
func (c ConsumerState) checkJob(job Job) error {
	switch {
	case c.Target != job.Target:
		return fmt.Errorf("%w: %s publishes to %s, not to %s", ErrDifferentJob, c.Name, c.Target, job.Target)
	case c.Topic != job.Topic.String():
		return fmt.Errorf("%w: %s publishes to the topic %s, not %s", ErrDifferentJob, c.Name, c.Topic, job.Topic)
	case !c.Filter.equal(job.Filter):
		return fmt.Errorf("%w: %s publishes other kinds, streams, tools or agents", ErrDifferentJob, c.Name)
	}
	return nil
}
