package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// A wish is for records that were set aside to be tried again by a run that is
// in another process. It is kept until that takes it up.
type wish struct {
	All       bool              `json:"all,omitempty"`
	Positions []events.Position `json:"positions,omitempty"`
}

func wishName(consumer string) string { return documentName(consumer) + "/retry" }

// Retry has records that were set aside tried again: those at these positions,
// or without any all of them. A consumer that runs on d tries them at once, one
// that runs elsewhere in a second or so, and another when it runs next. It
// returns how many there are, once that is durable, and ErrNoConsumer where there
// is no such consumer.
func (d *Desk) Retry(ctx context.Context, name string, positions ...events.Position) (n int, err error) {
	if r := d.runs(name); r != nil {
		return r.retry(positions), nil
	}
	held, err := d.hold(name)
	if errors.Is(err, ErrRunning) {
		return d.leave(ctx, name, positions)
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	c, err := d.load(ctx, name)
	if err != nil {
		return 0, err
	}
	n = c.retry(positions)
	return n, errors.Join(d.save(ctx, c), d.kept.Sync(ctx))
}

// leave leaves a wish for a run elsewhere, beside those that it did not take up.
func (d *Desk) leave(ctx context.Context, name string, positions []events.Position) (n int, err error) {
	c, err := d.load(ctx, name)
	if err != nil {
		return 0, err
	}
	if n = c.retry(positions); n == 0 {
		return 0, nil
	}
	held, err := d.turn(ctx, wishName(name))
	if err != nil {
		return 0, fmt.Errorf("ask %s to try again: %w", name, err)
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	w, err := d.wish(ctx, name)
	if err != nil {
		return 0, err
	}
	w.All = w.All || len(positions) == 0
	w.Positions = append(w.Positions, positions...)
	data, err := projections.Encode(w)
	if err == nil {
		err = d.kept.SaveCheckpoint(ctx, wishName(name), data)
	}
	if err == nil {
		err = d.kept.Sync(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("ask %s to try again: %w", name, err)
	}
	return n, nil
}

// wish returns what is wished of a consumer, which may be nothing.
func (d *Desk) wish(ctx context.Context, name string) (w wish, err error) {
	data, err := d.kept.LoadCheckpoint(ctx, wishName(name))
	if err == nil && len(data) > 0 {
		if err = json.Unmarshal(data, &w); err != nil {
			err = fmt.Errorf("%w: %s: what it is asked for: %w", ErrDamaged, name, err)
		}
	}
	return w, err
}

// grant takes up what others wish of r. It is kept that it is to be done before
// the wish goes.
func (r *run) grant(ctx context.Context) (err error) {
	w, err := r.desk.wish(ctx, r.job.Name)
	if err != nil || !w.All && len(w.Positions) == 0 {
		return err
	}
	held, err := r.desk.turn(ctx, wishName(r.job.Name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if w, err = r.desk.wish(ctx, r.job.Name); err != nil {
		return err
	}
	if w.All {
		w.Positions = nil
	}
	r.retry(w.Positions)
	if err := r.save(ctx); err != nil {
		return err
	}
	return r.desk.kept.SaveCheckpoint(ctx, wishName(r.job.Name), nil)
}

// retry has what was set aside tried again.
func (r *run) retry(positions []events.Position) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.mu.consumer.retry(positions)
	r.mu.unsaved++
	wake(r.again)
	return n
}

func (c *Consumer) retry(positions []events.Position) (n int) {
	for i, p := range c.Poison {
		if len(positions) == 0 || slices.Contains(positions, p.Position) {
			c.Poison[i].Again = true
			n++
		}
	}
	return n
}
