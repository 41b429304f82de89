package eventstoredb

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The bounds of the delay between two tries of a call.
const (
	firstDelay = 10 * time.Millisecond
	maxDelay   = 2 * time.Second
)

// A retryBackoff delays the tries of one call. The delay doubles with each failure up
// to maxDelay and varies at random, so that calls that failed together do not retry
// together. One goroutine uses it.
type retryBackoff struct {
	delays         *backoff.ExponentialBackOff // nil until a try fails
	attemptStarted time.Time                   // start of the last try; zero after progress
	failingSince   time.Time                   // start of the first of the tries that failed in a row
	lastErr        error                       // of the last try that failed
}

// attempt records that a try starts now.
func (p *retryBackoff) attempt() { p.attemptStarted = time.Now() }

// reset records progress: the next failure counts as the first.
func (p *retryBackoff) reset() { *p = retryBackoff{} }

// wait records the error of a failed try and sleeps until the next try is due. It
// returns an ErrUnreachable if tries have failed for longer than timeout, and the
// cause of ctx with the last error if ctx ends. A timeout of 0 is no limit.
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
