package stores

import (
	"context"
	"time"
)

// ServeCommand is the command that a serving process records as the owner of a folder.
const ServeCommand = "ledger serve"

// The times of waiting for another process to start or stop serving.
const (
	// RetryInterval is the time between two attempts.
	RetryInterval = 20 * time.Millisecond
	// TakeoverTimeout is the time in which the holder of a folder must hand it over.
	TakeoverTimeout = 20 * time.Second
)

// Sleep waits for d and returns nil, or returns the cause of ctx if that ends first.
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

// StatusPath is the HTTP path at which a serving process reports its status.
const StatusPath = "/status"
