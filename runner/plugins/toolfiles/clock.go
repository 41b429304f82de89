package toolfiles

import "time"

// A callClock measures the time of a call without the time in which a person decides. The
// goroutine of the call owns it.
type callClock struct {
	timer *time.Timer
	left  time.Duration // the time left when the clock was last started
	since time.Time     // when the clock was last started; zero: it is paused
}

// startClock returns a running clock that calls expired once, after limit.
func startClock(limit time.Duration, expired func()) *callClock {
	return &callClock{timer: time.AfterFunc(limit, expired), left: limit, since: time.Now()}
}

// pause stops the clock.
func (c *callClock) pause() {
	if c.since.IsZero() {
		return
	}
	if c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
	c.since = time.Time{}
}

// resume starts a paused clock again.
func (c *callClock) resume() {
	c.since = time.Now()
	c.timer.Reset(max(c.left, time.Millisecond))
}
