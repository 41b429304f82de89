package mcp

import (
	"sync"
	"time"
)

// A pausedClock bounds the time of a call without the time of its questions. It is safe
// for concurrent use.
type pausedClock struct {
	mu      sync.Mutex
	timer   *time.Timer
	left    time.Duration
	since   time.Time
	pauses  int
	stopped bool
}

// startPausedClock returns a running clock that calls expired after a time.
func startPausedClock(d time.Duration, expired func()) *pausedClock {
	return &pausedClock{timer: time.AfterFunc(d, expired), left: d, since: time.Now()}
}

// pause stops the clock until the matching resume.
func (c *pausedClock) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pauses++; c.pauses == 1 && c.timer.Stop() {
		c.left -= time.Since(c.since)
	}
}

// resume continues the clock after the last of overlapping pauses.
func (c *pausedClock) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pauses--; c.pauses == 0 && !c.stopped {
		c.since = time.Now()
		c.timer.Reset(max(c.left, 0))
	}
}

// stop ends the clock.
func (c *pausedClock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.timer.Stop()
}
