package server

import (
	"context"

	"github.com/settlement-ledger/ledger/events"
)

// Busy takes the places of all workers that check passwords, until they are given
// back.
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

// The bounds of the index of IDs.
const (
	BlockIDs   = blockIDs
	IndexBytes = indexBytes
)

// NewIDIndex returns an index of so many bytes.
var NewIDIndex = newIDIndex

// Find returns the revision of a record in a stream, and 0 if it is not there.
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

// Held returns how many streams the index holds, and how many bytes it counts.
func (x *idIndex) Size() (streams, bytes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.byStream), x.mu.bytes
}

// CheckNext checks the password whose turn it is, and returns when its callers are
// answered.
func (u *Users) CheckNext() {
	u.checks.mu.Lock()
	k := u.checks.nextLocked()
	u.checks.mu.Unlock()
	u.checks.compare(k)
}

// Waiting returns how many passwords wait for a worker.
func (u *Users) Waiting() int {
	u.checks.mu.Lock()
	defer u.checks.mu.Unlock()
	return u.checks.mu.waiting
}

// Callers returns how many calls wait for a password to be checked.
func (u *Users) Callers() int {
	u.checks.mu.Lock()
	defer u.checks.mu.Unlock()
	return u.checks.mu.callers
}

// The bounds of passwords that wait to be checked.
const (
	MaxChecks       = maxChecks
	MaxOriginChecks = maxOriginChecks
)

// FormatUserAt is FormatUser with a bcrypt cost.
var FormatUserAt = formatUser

const HandshakeTimeout = handshakeTimeout
