package eventstoredb

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// The delays between two tries of one call.
const (
	firstDelay = 10 * time.Millisecond
	lastDelay  = 2 * time.Second
)

// A pace spaces the tries of one call out: the delay doubles with each, and a
// random part of it is added or left out, so that calls that failed together do
// not come back together.
type pace struct {
	delays *backoff.ExponentialBackOff // nil while no try has failed
	begun  time.Time                   // when the last try began; zero if it got on
	since  time.Time                   // when the first try began that failed
	last   error                       // of the last
}

// begin says that a try begins.
func (p *pace) begin() { p.begun = time.Now() }

// progressed says that a try got on.
func (p *pace) progressed() { *p = pace{} }

// failed waits until the next try is due. It returns an error when the context
// ends before, or when tries have failed for longer than patience, unless that
// is zero.
func (p *pace) failed(ctx context.Context, err error, patience time.Duration) error {
	now := time.Now()
	if p.delays == nil {
		if p.since = p.begun; p.begun.IsZero() {
			p.since = now
		}
		p.delays = backoff.NewExponentialBackOff()
		p.delays.InitialInterval, p.delays.MaxInterval, p.delays.Multiplier = firstDelay, lastDelay, 2
	}
	p.last = err
	delay := p.delays.NextBackOff()
	if patience > 0 {
		left := patience - now.Sub(p.since)
		if left <= 0 {
			return unreachable(err)
		}
		delay = min(delay, left)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ended(ctx, err)
	}
}
