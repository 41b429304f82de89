package eventstoredb

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The bounds of the delay between two tries of a call, before the random variation.
const (
	// firstDelay is the delay after the first failure.
	firstDelay = 10 * time.Millisecond
	// maxDelay is the greatest delay.
	maxDelay = 2 * time.Second
)

// A retryBackoff delays the tries of one call. The delay doubles with each failure up
// to maxDelay. It varies at random, so that calls that failed together do not retry
// together. A retryBackoff also measures the time for which the tries have failed
// without progress, which the retry timeout limits. One goroutine uses it. The zero
// value is ready to use.
type retryBackoff struct {
	// delays is nil until a try fails.
	delays *backoff.ExponentialBackOff
	// attemptStarted is the start of the last try. Zero: the call has made progress
	// since then.
	attemptStarted time.Time
	// failingSince is the start of the first of the tries that failed in a row.
	failingSince time.Time
	// lastErr is the error of the last failed try. The error text of a cancelled call
	// contains it.
	lastErr error
}

// attempt records that a try starts now.
func (p *retryBackoff) attempt() { p.attemptStarted = time.Now() }

// reset records progress: the next failure counts as the first, and its delay is the
// shortest.
func (p *retryBackoff) reset() { *p = retryBackoff{} }

// wait records the error of a failed try and sleeps until the next try is due. It
// returns an ErrUnreachable with err if the tries have failed for longer than
// timeout, and the cause of ctx with err if ctx ends. A timeout of 0 is no limit. The
// last delay is shortened to the end of the timeout, so that one more try follows.
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
