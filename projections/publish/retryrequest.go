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

// A retryRequest asks a run in another process to retry dead letters: all of them, or
// the ones at Positions. It is a document of its own, because only the run may change
// the document of the consumer. The run applies it and saves it empty.
type retryRequest struct {
	All       bool              `json:"all,omitempty"`
	Positions []events.Position `json:"positions,omitempty"`
}

// retryRequestName returns the name under which the request is saved and locked.
func retryRequestName(consumer string) string { return documentName(consumer) + "/retry" }

// Retry publishes dead letters again: the ones at these positions, or all if no
// position is given. It returns the number of dead letters to retry, and does not
// wait for the target. The request is durable when Retry returns, except that a
// request to a run of this relay is saved with the consumer, later. Such a run starts
// the retry at once, a run of another process within its SaveInterval. If the
// consumer does not run, its next run retries the dead letters first. An unknown name
// is an ErrNoConsumer.
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

// storeRetryRequest adds positions, or all, to the retry request of a consumer that
// runs elsewhere, and syncs it. If no dead letter matches, it returns 0 and leaves
// the request as it is. It counts the dead letters of the saved state, which can lag
// behind the run.
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

// loadRetryRequest returns the saved retry request of a consumer, or an empty one if
// there is no document.
func (d *Relay) loadRetryRequest(ctx context.Context, name string) (w retryRequest, err error) {
	data, err := d.consumers.LoadCheckpoint(ctx, retryRequestName(name))
	if err == nil && len(data) > 0 {
		if err = json.Unmarshal(data, &w); err != nil {
			err = fmt.Errorf("%w: the retry request of %s: %w", ErrDamaged, name, err)
		}
	}
	return w, err
}

// takeRetryRequest applies the retry request of other processes, if there is one. It
// first reads the request without the lock, because in most cases it is empty. It
// saves the consumer before it empties the request: a kill between the two repeats
// the request and does not lose it.
func (r *relayRun) takeRetryRequest(ctx context.Context) (err error) {
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

// retry marks dead letters of the running consumer and wakes retryLoop. It returns
// how many it marked.
func (r *relayRun) retry(positions []events.Position) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.mu.consumer.retry(positions)
	r.mu.unsaved++
	signal(r.retrySoon)
	return n
}

// retry marks the dead letters at these positions, or all if there are no
// positions, and returns how many it marked.
func (c *ConsumerState) retry(positions []events.Position) (n int) {
	for i, p := range c.DeadLetters {
		if len(positions) == 0 || slices.Contains(positions, p.Position) {
			c.DeadLetters[i].Retry = true
			n++
		}
	}
	return n
}
