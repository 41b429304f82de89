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

// A Job says what is published under a name, and how.
type Job struct {
	Name   string // of the consumer
	Target string // as it is shown: see [Redacted]
	Topic  Topic
	Filter Filter
	Start  Start // of a consumer that has no checkpoint
	Policy Policy

	// Failed, if not nil, is called after each attempt that failed, by several
	// goroutines at once.
	Failed func(Failure)
}

// A Failure is an attempt to publish that failed.
type Failure struct {
	Position events.Position // of the record; of the first one, where there are several
	Try      int             // which attempt it was
	Wait     time.Duration   // until the next; zero if there is none
	Err      error
}

// CatchUp publishes what there is when it is called, in place of a consumer
// that is made where there is none, and returns once all of it was acknowledged
// or set aside. It does not close the publisher. Its errors are those of
// [Relay.Follow].
func (d *Relay) CatchUp(ctx context.Context, job Job, to message.Publisher) error {
	return d.run(ctx, job, alreadyOpen(to), catchUp)
}

// CatchUpConfigured is CatchUp for a target that is opened once the name of the
// consumer is taken, and closed before it is given up. Where it does not open no
// consumer is made.
func (d *Relay) CatchUpConfigured(ctx context.Context, o JobConfig, open Opener) error {
	return d.run(ctx, o.Job, open.of(o), catchUp)
}

// Follow publishes what there is and what comes, until its context ends, whose
// cause it returns, or an error ends it. It goes on where the consumer of the
// job is, which it makes, durably, where there is none. It does not close the
// publisher.
//
// A name that is not valid is ErrBadName, and one that runs already, on any desk
// with the same claims, ErrRunning. A consumer that was made with another
// target, topic or Filter is ErrDifferentJob. Too many records set aside are ErrTooManyDeadLetters:
// the one that would have been next is not, and the next run begins with it.
// Other errors are those of the store, the claims and the checkpoints; a record
// that is damaged ends the run. Errors of the publisher do not.
func (d *Relay) Follow(ctx context.Context, job Job, to message.Publisher) error {
	return d.run(ctx, job, alreadyOpen(to), follow)
}

// FollowConfigured is to Follow what CatchUpConfigured is to CatchUp.
func (d *Relay) FollowConfigured(ctx context.Context, o JobConfig, open Opener) error {
	return d.run(ctx, o.Job, open.of(o), follow)
}

// catchUp takes what there is.
func catchUp(ctx context.Context, r *run, after events.Position) error {
	return r.acceptAll(ctx, events.Scan(ctx, r.relay.store, events.Query{Filter: r.job.Filter.storeFilter(), After: after}))
}

// follow takes what there is and what comes.
func follow(ctx context.Context, r *run, after events.Position) error {
	following := events.Following{Filter: r.job.Filter.storeFilter(), CaughtUp: r.skip}
	if err := r.acceptAll(ctx, r.relay.store.Follow(ctx, after, following)); err != nil {
		return err
	}
	return errors.New("the log ended")
}

func (r *run) acceptAll(ctx context.Context, records iter.Seq2[events.Entry, error]) error {
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

// valid returns what is wrong with a job, or nil.
func (j Job) valid() error {
	if err := ValidName(j.Name); err != nil {
		return err
	}
	if j.Topic.IsZero() {
		return fmt.Errorf("%w: there is none", ErrBadTopic)
	}
	return j.Filter.storeFilter().Valid()
}

// createConsumer makes the consumer of a job, and lists it before it is there. It is
// durable when createConsumer returns: where it begins is not found again.
func (d *Relay) createConsumer(ctx context.Context, job Job) (Consumer, error) {
	at, err := job.Start.position(ctx, d.store)
	if err != nil {
		return Consumer{}, fmt.Errorf("find where %s begins: %w", job.Name, err)
	}
	if err := d.updateIndex(ctx, func(all []string) []string { return withName(all, job.Name) }); err != nil {
		return Consumer{}, err
	}
	now := d.now().UTC().Truncate(time.Microsecond)
	c := Consumer{Name: job.Name, Target: job.Target, Topic: job.Topic.String(), Filter: job.Filter, Position: at, Begun: now, Saved: now}
	if err := d.save(ctx, c); err != nil {
		return Consumer{}, err
	}
	return c, d.consumers.Sync(ctx)
}

// checkJob returns an ErrDifferentJob that says in what c is not the consumer of a job, or
// nil.
func (c Consumer) checkJob(job Job) error {
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
