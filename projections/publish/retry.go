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

// A retryRequest asks a run in another process to retry dead letters. It is
// stored next to the consumer until that run takes it.
type retryRequest struct {
	All       bool              `json:"all,omitempty"`
	Positions []events.Position `json:"positions,omitempty"`
}

func retryRequestName(consumer string) string { return documentName(consumer) + "/retry" }

// Retry publishes dead letters again: the ones at these positions, or all if
// no position is given. A run of this relay starts at once, a run elsewhere
// within its SaveInterval, and otherwise the next run does it. Retry returns
// the number of dead letters, once the request is durable, and an
// ErrNoConsumer for an unknown name.
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

// storeRetryRequest adds positions to the retry request of a consumer that
// runs elsewhere.
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

// loadRetryRequest returns the retry request of a consumer, which may be
// empty.
func (d *Relay) loadRetryRequest(ctx context.Context, name string) (w retryRequest, err error) {
	data, err := d.consumers.LoadCheckpoint(ctx, retryRequestName(name))
	if err == nil && len(data) > 0 {
		if err = json.Unmarshal(data, &w); err != nil {
			err = fmt.Errorf("%w: %s: what it is asked for: %w", ErrDamaged, name, err)
		}
	}
	return w, err
}

// takeRetryRequest applies the retry request of other processes. It saves the
// consumer before it deletes the request, so that a kill loses none.
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

// retry marks dead letters of a running consumer and wakes retryLoop.
func (r *run) retry(positions []events.Position) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.mu.consumer.retry(positions)
	r.mu.unsaved++
	signal(r.retrySoon)
	return n
}

// retry marks the dead letters at these positions, or all if there are no
// positions, and returns how many it marked.
func (c *Consumer) retry(positions []events.Position) (n int) {
	for i, p := range c.DeadLetters {
		if len(positions) == 0 || slices.Contains(positions, p.Position) {
			c.DeadLetters[i].Retry = true
			n++
		}
	}
	return n
}
