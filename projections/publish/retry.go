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

// A retryRequest is for records that were set aside to be tried again by a run that is
// in another process. It is kept until that takes it up.
type retryRequest struct {
	All       bool              `json:"all,omitempty"`
	Positions []events.Position `json:"positions,omitempty"`
}

func retryRequestName(consumer string) string { return documentName(consumer) + "/retry" }

// Retry has records that were set aside tried again: those at these positions,
// or without any all of them. A consumer that runs on d tries them at once, one
// that runs elsewhere in a second or so, and another when it runs next. It
// returns how many there are, once that is durable, and ErrNoConsumer where there
// is no such consumer.
func (d *Relay) Retry(ctx context.Context, name string, positions ...events.Position) (n int, err error) {
	if r := d.activeRun(name); r != nil {
		return r.retry(positions), nil
	}
	lock, err := d.lockConsumer(name)
	if errors.Is(err, ErrRunning) {
		return d.storeRetryRequest(ctx, name, positions)
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	c, err := d.load(ctx, name)
	if err != nil {
		return 0, err
	}
	n = c.retry(positions)
	return n, errors.Join(d.save(ctx, c), d.consumers.Sync(ctx))
}

// storeRetryRequest leaves a wish for a run elsewhere, beside those that it did not take up.
func (d *Relay) storeRetryRequest(ctx context.Context, name string, positions []events.Position) (n int, err error) {
	c, err := d.load(ctx, name)
	if err != nil {
		return 0, err
	}
	if n = c.retry(positions); n == 0 {
		return 0, nil
	}
	lock, err := d.waitLock(ctx, retryRequestName(name))
	if err != nil {
		return 0, fmt.Errorf("ask %s to try again: %w", name, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	w, err := d.loadRetryRequest(ctx, name)
	if err != nil {
		return 0, err
	}
	w.All = w.All || len(positions) == 0
	w.Positions = append(w.Positions, positions...)
	data, err := projections.Encode(w)
	if err == nil {
		err = d.consumers.SaveCheckpoint(ctx, retryRequestName(name), data)
	}
	if err == nil {
		err = d.consumers.Sync(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("ask %s to try again: %w", name, err)
	}
	return n, nil
}

// loadRetryRequest returns what is wished of a consumer, which may be nothing.
func (d *Relay) loadRetryRequest(ctx context.Context, name string) (w retryRequest, err error) {
	data, err := d.consumers.LoadCheckpoint(ctx, retryRequestName(name))
	if err == nil && len(data) > 0 {
		if err = json.Unmarshal(data, &w); err != nil {
			err = fmt.Errorf("%w: %s: what it is asked for: %w", ErrDamaged, name, err)
		}
	}
	return w, err
}

// takeRetryRequest takes up what others wish of r. It is kept that it is to be done before
// the wish goes.
func (r *run) takeRetryRequest(ctx context.Context) (err error) {
	w, err := r.relay.loadRetryRequest(ctx, r.job.Name)
	if err != nil || !w.All && len(w.Positions) == 0 {
		return err
	}
	lock, err := r.relay.waitLock(ctx, retryRequestName(r.job.Name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if w, err = r.relay.loadRetryRequest(ctx, r.job.Name); err != nil {
		return err
	}
	if w.All {
		w.Positions = nil
	}
	r.retry(w.Positions)
	if err := r.save(ctx); err != nil {
		return err
	}
	return r.relay.consumers.SaveCheckpoint(ctx, retryRequestName(r.job.Name), nil)
}

// retry has what was set aside tried again.
func (r *run) retry(positions []events.Position) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.mu.consumer.retry(positions)
	r.mu.unsaved++
	signal(r.retrySoon)
	return n
}

func (c *Consumer) retry(positions []events.Position) (n int) {
	for i, p := range c.DeadLetters {
		if len(positions) == 0 || slices.Contains(positions, p.Position) {
			c.DeadLetters[i].Retry = true
			n++
		}
	}
	return n
}
