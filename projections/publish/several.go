package publish

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// A Target is what records are handed to.
type Target = message.Publisher

// An Opener opens the target of an order, of which the consumer has come to a
// position; the caller closes it.
type Opener func(ctx context.Context, o Order, at events.Position) (Target, error)

// FollowAll follows the log for several orders side by side, until its context
// ends, whose cause it returns. A target that cannot be opened is tried again,
// with the waits of the order's policy. An order whose run ends with an error
// stands still, and the others go on. Each such error is given to told, if that
// is not nil, by several goroutines at once, and kept as the trouble of the
// consumer.
func (d *Desk) FollowAll(ctx context.Context, orders []Order, open Opener, told func(name string, err error)) error {
	var running sync.WaitGroup
	for _, o := range orders {
		running.Go(func() { d.followOne(ctx, o, open, told) })
	}
	running.Wait()
	<-ctx.Done() // also where all stand still: the others are the caller's
	return context.Cause(ctx)
}

func (d *Desk) followOne(ctx context.Context, o Order, open Opener, told func(name string, err error)) {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		opened, err := d.followOpened(ctx, o, open)
		if ctx.Err() != nil {
			return
		}
		err = errors.Join(err, d.note(ctx, o.Name, err))
		if told != nil {
			told(o.Name, err)
		}
		if opened || pause(ctx, o.Policy.filled().wait(attempt)) != nil {
			return
		}
	}
}

// followOpened opens a target and follows the log for it. It reports whether
// the target opened.
func (d *Desk) followOpened(ctx context.Context, o Order, open Opener) (bool, error) {
	c, err := d.Consumer(ctx, o.Name)
	if err != nil && !errors.Is(err, ErrNoConsumer) {
		return true, err
	}
	to, err := open(ctx, o, c.Position)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", o.Target, err)
	}
	return true, errors.Join(d.Follow(ctx, o.Job, to), to.Close())
}

// note keeps an error as the trouble of a consumer that does not run, if there
// is that consumer.
func (d *Desk) note(ctx context.Context, name string, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, loading := d.load(ctx, name)
	if loading != nil || d.mu.running[name] != nil {
		return nil // there is nowhere to keep it, and told has it
	}
	c.Trouble = &Trouble{Text: clipped(err.Error()), Time: d.now().UTC().Truncate(time.Microsecond)}
	return d.save(ctx, c)
}
