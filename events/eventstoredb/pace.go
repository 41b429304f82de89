package eventstoredb

import (
	"context"
	"math/rand/v2"
	"time"
)

// The delays between two tries of one call.
const (
	firstDelay = 10 * time.Millisecond
	lastDelay  = 2 * time.Second
)

// A pace spaces the tries of one call out: the delay doubles with each, and a
// random part of it is left out, so that calls that failed together do not
// come back together.
type pace struct {
	tries int
	begun time.Time // when the last try began; zero if it got on
	since time.Time // when the first try began that failed
	last  error     // of the last
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
	if p.tries == 0 {
		if p.since = p.begun; p.begun.IsZero() {
			p.since = now
		}
	}
	p.tries, p.last = p.tries+1, err
	delay := min(firstDelay<<min(p.tries-1, 16), lastDelay)
	delay = delay/2 + rand.N(delay/2+1)
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
