package stores

import (
	"context"
	"time"
)

// ServeCommand is the command that a serving process is the owner with.
const ServeCommand = "ledger serve"

// The times of waiting for a process that begins to serve, or ends.
const (
	RetryInterval   = 20 * time.Millisecond
	TakeoverTimeout = 20 * time.Second
)

// Sleep waits, or returns the cause for which ctx ended.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// StatusPath is the path at which a serving process answers how it is.
const StatusPath = "/status"
