package publish

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A Job says what is published under a name, and how.
type Job struct {
	Name   string // of the consumer
	Target string // as it is shown: see [Shown]
	Topic  Topic
	Only   Only
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
// or set aside. To does not close. Its errors are those of [Desk.Follow].
func (d *Desk) CatchUp(ctx context.Context, job Job, to message.Publisher) error {
	return d.run(ctx, job, to, func(ctx context.Context, r *run, after events.Position) error {
		for e, err := range events.Scan(ctx, d.store, events.Query{Filter: job.Only.filter(), After: after}) {
			if err != nil {
				return err
			}
			if err := r.take(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

// Follow publishes what there is and what comes, until its context ends, whose
// cause it returns, or an error ends it. It goes on where the consumer of the
// job is, which it makes where there is none. It does not close the publisher.
//
// A name that is not valid is ErrBadName, and one that runs already ErrRunning.
// A consumer that was made with another target, topic or Only is ErrOther. Too
// many records set aside are ErrPoisoned: the one that would have been next is
// not, and the next run begins with it. Other errors are those of the store and
// of the checkpoints; a record that is damaged ends the run. Errors of the
// publisher do not.
func (d *Desk) Follow(ctx context.Context, job Job, to message.Publisher) error {
	return d.run(ctx, job, to, func(ctx context.Context, r *run, after events.Position) error {
		following := events.Following{Filter: job.Only.filter(), CaughtUp: r.pass}
		for e, err := range d.store.Follow(ctx, after, following) {
			if err != nil {
				return err
			}
			if err := r.take(ctx, e); err != nil {
				return err
			}
		}
		return errors.New("the log ended")
	})
}

// claim takes the name of a job and returns its run, with the consumer as it
// was kept or made anew.
func (d *Desk) claim(ctx context.Context, job Job, to message.Publisher) (*run, error) {
	if err := ValidName(job.Name); err != nil {
		return nil, err
	}
	if job.Topic.IsZero() {
		return nil, fmt.Errorf("%w: there is none", ErrBadTopic)
	}
	if err := job.Only.filter().Valid(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.running[job.Name] != nil {
		return nil, fmt.Errorf("publish as %s: %w", job.Name, ErrRunning)
	}
	c, err := d.load(ctx, job.Name)
	if errors.Is(err, ErrNoConsumer) {
		c, err = d.hireLocked(ctx, job)
	}
	if err != nil {
		return nil, err
	}
	if err := c.does(job); err != nil {
		return nil, err
	}
	c.Running = true
	r := newRun(d, job, to, c)
	d.mu.running[job.Name] = r
	return r, nil
}

// hireLocked makes the consumer of a job, and lists it before it is there.
func (d *Desk) hireLocked(ctx context.Context, job Job) (Consumer, error) {
	at, err := job.Start.in(ctx, d.store)
	if err != nil {
		return Consumer{}, fmt.Errorf("find where %s begins: %w", job.Name, err)
	}
	all, err := d.namesLocked(ctx)
	if err != nil {
		return Consumer{}, err
	}
	if err := d.keepLocked(ctx, with(all, job.Name)); err != nil {
		return Consumer{}, err
	}
	now := d.now().UTC().Truncate(time.Microsecond)
	c := Consumer{Name: job.Name, Target: job.Target, Topic: job.Topic.String(), Only: job.Only, Position: at, Begun: now, Saved: now}
	return c, d.save(ctx, c)
}

// does returns an ErrOther that says in what c is not the consumer of a job, or
// nil.
func (c Consumer) does(job Job) error {
	switch {
	case c.Target != job.Target:
		return fmt.Errorf("%w: %s publishes to %s, not to %s", ErrOther, c.Name, c.Target, job.Target)
	case c.Topic != job.Topic.String():
		return fmt.Errorf("%w: %s publishes to the topic %s, not %s", ErrOther, c.Name, c.Topic, job.Topic)
	case !c.Only.equal(job.Only):
		return fmt.Errorf("%w: %s publishes other kinds, streams, tools or agents", ErrOther, c.Name)
	}
	return nil
}

func (d *Desk) leave(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.running, name)
}
