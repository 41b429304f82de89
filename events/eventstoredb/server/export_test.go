package server

import (
	"context"

	"github.com/settlement-ledger/ledger/events"
)

// OccupyWorkers occupies all workers that check passwords until release is
// called.
func (u *Users) OccupyWorkers() (release func()) {
	c := u.checks
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.workers += c.limit
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.workers -= c.limit
		for ; c.mu.workers < min(c.limit, c.mu.waiting); c.mu.workers++ {
			go c.work()
		}
	}
}

// The bounds of an index of IDs.
const (
	BlockIDs   = blockIDs
	IndexBytes = indexBytes
)

// NewIDIndex returns an index of a capacity in bytes.
var NewIDIndex = newIDIndex

// Find returns the revision of a record in a stream, or 0.
func (x *idIndex) Find(ctx context.Context, store events.Store, stream events.Stream, r events.Record) (events.Revision, error) {
	held, err := x.acquire(ctx, stream)
	if err != nil {
		return 0, err
	}
	defer held.release()
	if _, err := held.update(ctx, store); err != nil {
		return 0, err
	}
	found, err := held.find(ctx, store, []events.Record{r})
	return found[r.ID].Revision, err
}

// Size returns the number of streams in the index, and the bytes that it counts
// for them.
func (x *idIndex) Size() (streams, bytes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.byStream), x.mu.bytes
}

// CheckNext runs the next waiting check and finishes it.
func (u *Users) CheckNext() {
	u.checks.mu.Lock()
	k := u.checks.nextLocked()
	u.checks.mu.Unlock()
	u.checks.compare(k)
}

// Waiting returns the number of checks that wait for a worker.
func (u *Users) Waiting() int {
	u.checks.mu.Lock()
	defer u.checks.mu.Unlock()
	return u.checks.mu.waiting
}

// Callers returns the number of calls that wait for a check.
func (u *Users) Callers() int {
	u.checks.mu.Lock()
	defer u.checks.mu.Unlock()
	return u.checks.mu.callers
}

// The bounds of waiting checks.
const (
	MaxChecks       = maxChecks
	MaxOriginChecks = maxOriginChecks
)

// FormatUserAt is FormatUser with a bcrypt cost.
var FormatUserAt = formatUser

const HandshakeTimeout = handshakeTimeout
