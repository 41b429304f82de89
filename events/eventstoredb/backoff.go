package eventstoredb

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The delays between two tries of one call.
const (
	firstDelay = 10 * time.Millisecond
	maxDelay   = 2 * time.Second
)

// A retryBackoff spaces the tries of one call out: the delay doubles with each, and a
// random part of it is added or left out, so that calls that failed together do
// not come back together.
type retryBackoff struct {
	delays         *backoff.ExponentialBackOff // nil while no try has failed
	attemptStarted time.Time                   // when the last try began; zero if it got on
	failingSince   time.Time                   // when the first try began that failed
	lastErr        error                       // of the last
}

// attempt says that a try begins.
func (p *retryBackoff) attempt() { p.attemptStarted = time.Now() }

// reset says that a try got on.
func (p *retryBackoff) reset() { *p = retryBackoff{} }

// wait waits until the next try is due. It returns an error when the context
// ends before, or when tries have failed for longer than patience, unless that
// is zero.
func (p *retryBackoff) wait(ctx context.Context, err error, timeout time.Duration) error {
	now := time.Now()
	if p.delays == nil {
		if p.failingSince = p.attemptStarted; p.attemptStarted.IsZero() {
			p.failingSince = now
		}
		p.delays = backoff.NewExponentialBackOff()
		p.delays.InitialInterval, p.delays.MaxInterval, p.delays.Multiplier = firstDelay, maxDelay, 2
	}
	p.lastErr = err
	delay := p.delays.NextBackOff()
	if timeout > 0 {
		left := timeout - now.Sub(p.failingSince)
		if left <= 0 {
			return unreachableError(err)
		}
		delay = min(delay, left)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return contextError(ctx, err)
	}
}
