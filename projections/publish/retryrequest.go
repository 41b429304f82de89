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

// A retryRequest asks the run of a consumer in another process to retry dead letters:
// all of them if All is set, and otherwise those at Positions. It is a document of
// its own, because only the run may change the document of the consumer. The run
// retries the dead letters and then saves an empty request.
type retryRequest struct {
	All       bool              `json:"all,omitempty"`
	Positions []events.Position `json:"positions,omitempty"`
}

// retryRequestName returns the name of the retry request's document, under which it
// is saved and locked.
func retryRequestName(consumer string) string { return documentName(consumer) + "/retry" }

// Retry requests that the dead letters at these positions, or all dead letters if
// there are no positions, be published again. It returns the number of dead letters
// requested and does not wait for the target. If the consumer runs on this relay, the
// run retries them at once and saves the request later, with the consumer. If it runs
// in another process, that run retries them within its SaveInterval. If it does not
// run, its next run retries them first. Except for a run of this relay, the request
// is durable when Retry returns. An unknown name is an ErrNoConsumer.
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

// storeRetryRequest adds positions to the saved retry request of a consumer that
// another process or relay runs, and syncs the request. Without positions it requests
// all dead letters. It returns the number n of matching dead letters in the saved
// state of the consumer, which can be older than that of the run. If n is 0, the
// request stays unchanged.
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

// loadRetryRequest returns the saved retry request of a consumer, or an empty request
// if none was saved. If the document does not decode, the error is an ErrDamaged.
func (d *Relay) loadRetryRequest(ctx context.Context, name string) (w retryRequest, err error) {
	data, err := d.consumers.LoadCheckpoint(ctx, retryRequestName(name))
	if err == nil && len(data) > 0 {
		if err = json.Unmarshal(data, &w); err != nil {
			err = fmt.Errorf("%w: the retry request of %s: %w", ErrDamaged, name, err)
		}
	}
	return w, err
}

// takeRetryRequest applies the retry request that another process saved, if there is
// one. It first reads the request without the lock, because in most cases it is
// empty. It saves the consumer before it empties the request, so a kill between the
// two repeats the request instead of losing it.
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

// retry marks the dead letters at these positions, or all without positions, for a
// retry, and wakes retryLoop. It returns the number of marked dead letters.
func (r *relayRun) retry(positions []events.Position) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.mu.consumer.retry(positions)
	r.mu.unsaved++
	signal(r.retrySoon)
	return n
}

// retry sets Retry in the dead letters at these positions, or in all if there are no
// positions. It returns their number n.
func (c *ConsumerState) retry(positions []events.Position) (n int) {
	for i, p := range c.DeadLetters {
		if len(positions) == 0 || slices.Contains(positions, p.Position) {
			c.DeadLetters[i].Retry = true
			n++
		}
	}
	return n
}
