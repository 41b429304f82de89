package pebblefiles

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// SlowWrite is the duration from which a write or a sync counts as slow.
const SlowWrite = 2 * time.Second

// Health counts the failures, the slow writes and the stalls of a database since it
// was opened. No caller gets an error for them: Pebble retries flushes and
// compactions in the background, and slow or stalled writes succeed later.
type Health struct {
	Failures    uint64    `json:"failures"`               // failed flushes and compactions, each try counted
	LastFailure string    `json:"last_failure,omitempty"` // text of the last failure
	FailedAt    time.Time `json:"failed_at,omitzero"`     // time of the last failure, in UTC
	Slow        uint64    `json:"slow"`                   // writes and syncs that took longer than SlowWrite
	LastSlow    string    `json:"last_slow,omitempty"`    // operation, file and duration of the last slow write
	SlowAt      time.Time `json:"slow_at,omitzero"`       // time of the last slow write, in UTC
	Stalls      uint64    `json:"stalls"`                 // times that writes waited for flushes or compactions
	LastStall   string    `json:"last_stall,omitempty"`   // reason of the last stall
	Stalled     bool      `json:"stalled,omitempty"`      // writes wait now
}

// Well reports whether there was no failure, no slow write and no stall.
func (h Health) Well() bool { return h.Failures == 0 && h.Slow == 0 && h.Stalls == 0 }

// A HealthLog records the Health of one database. The zero HealthLog is ready. It is
// safe for concurrent use.
type HealthLog struct {
	mu     sync.Mutex
	health Health
}

// Health returns the Health so far.
func (l *HealthLog) Health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.health
}

// note locks mu and calls do to change the Health.
func (l *HealthLog) note(do func(*Health)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do(&l.health)
}

// Listen sets the callbacks of events that record background failures and write stalls.
func (l *HealthLog) Listen(events *pebble.EventListener) {
	events.BackgroundError = func(err error) {
		l.note(func(h *Health) {
			h.Failures++
			h.LastFailure, h.FailedAt = err.Error(), time.Now().UTC()
		})
	}
	events.WriteStallBegin = func(info pebble.WriteStallBeginInfo) {
		l.note(func(h *Health) {
			h.Stalls++
			h.LastStall, h.Stalled = info.Reason, true
		})
	}
	events.WriteStallEnd = func() { l.note(func(h *Health) { h.Stalled = false }) }
}

// Watch returns a file system over storage that records writes and syncs longer than
// SlowWrite. It records them while they run, so an operation that never returns is
// recorded as well. It starts goroutines; the caller must close the Closer after the
// database.
func (l *HealthLog) Watch(storage vfs.FS) (vfs.FS, io.Closer) {
	return vfs.WithDiskHealthChecks(storage, SlowWrite, nil, func(info vfs.DiskSlowInfo) {
		l.note(func(h *Health) {
			h.Slow++
			h.LastSlow = fmt.Sprintf("%s of %s took longer than %.1f s", info.OpType, storage.PathBase(info.Path), info.Duration.Seconds())
			h.SlowAt = time.Now().UTC()
		})
	})
}
