package transport

import (
	"context"
	"sync"
	"time"
)

// The rate at which messages of a server are handled.
const (
	rateWindow   = 50 * time.Millisecond
	ratePerShare = 500 // messages of one window
)

// A throttle slows the reader of a server that floods, so that the flood waits in the pipe
// or the connection of the server. The zero throttle is ready for use.
type throttle struct {
	mu    sync.Mutex
	start time.Time
	count int
}

// wait returns at once, or at the end of the window if the window has had its share of
// messages.
func (t *throttle) wait(ctx context.Context) {
	t.mu.Lock()
	now := time.Now()
	if now.Sub(t.start) >= rateWindow {
		t.start, t.count = now, 0
	}
	t.count++
	pause := time.Duration(0)
	if t.count > ratePerShare {
		pause = t.start.Add(rateWindow).Sub(now)
	}
	t.mu.Unlock()
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
