package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The terms of a lease.
const (
	// DefaultLease is the length of a lease.
	DefaultLease = 30 * time.Second
	// leaseParts sets the time of a renewal: after 1/leaseParts of the length of the
	// lease. Two renewals may therefore fail before the lease runs out.
	leaseParts = 3

	// LeaseMargin is the tolerated difference between the clocks of two machines: another
	// process judges this one dead no sooner than LeaseMargin after its lease ran out.
	LeaseMargin = 10 * time.Second
)

// ErrLeaseLost is the cause with which a process must stop its work: its lease ran out
// before it was renewed, or another process recovered its work.
var ErrLeaseLost = errors.New("the lease of this process expired: other processes may declare it dead")

// A Lease keeps a process on record as alive: it appends a LeaseRenewed event to the
// process's stream each time a third of the lease has passed. A Lease is safe for
// concurrent use. It owns one goroutine, which Close joins.
//
// The process and its observers use different clocks, and each side errs in the safe
// direction. The process stops its work when its monotonic clock reaches the end of
// the lease, which it computed before the append. Other processes compare the
// recorded end with their wall clock, and add LeaseMargin.
type Lease struct {
	// writer appends to the stream of the process. The lease is its only user.
	writer  *events.Writer
	ledger  *events.Ledger
	process domain.ProcessID
	// length is the time from a renewal to the end of the lease.
	length time.Duration

	// alive is the context of Alive, and lose ends it with a cause.
	alive context.Context
	lose  context.CancelCauseFunc
	// stop ends the renewals.
	stop context.CancelFunc
	done sync.WaitGroup
}

// KeepLease starts to renew the lease of a process. The ProcessStarted of the process
// must be the last event that writer appended, and its lease must run out length after
// the current time. The caller closes the Lease. The context of [Lease.Alive] descends
// from ctx. The end of ctx does not stop the renewals.
func KeepLease(ctx context.Context, ledger *events.Ledger, writer *events.Writer, process domain.ProcessID, length time.Duration) *Lease {
	l := &Lease{writer: writer, ledger: ledger, process: process, length: length}
	l.alive, l.lose = context.WithCancelCause(ctx)
	loopCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.done.Go(func() { l.renewLoop(loopCtx, time.Now().Add(length)) })
	return l
}

// Alive returns a context that ends when the process must stop its work, with the cause
// ErrLeaseLost. The context also ends after Close, with another cause.
func (l *Lease) Alive() context.Context { return l.alive }

// Close stops the renewals and joins the goroutine. The lease then runs out by itself, or
// ends with the ProcessStopped event that the caller appends.
func (l *Lease) Close() {
	l.stop()
	l.done.Wait()
	l.lose(nil)
}

// renewLoop renews the lease until ctx ends or the lease is lost. end is a monotonic
// time, so a change of the wall clock does not move it. A lost lease is not renewed
// again: another process may have recovered the work.
func (l *Lease) renewLoop(ctx context.Context, end time.Time) {
	for {
		if !wait(ctx, l.length/leaseParts) {
			return
		}
		until, err := l.renew(ctx, end)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.lose(fmt.Errorf("process %s: %w: %w", l.process, ErrLeaseLost, err))
			return
		}
		end = until
	}
}

// renew appends a LeaseRenewed. It repeats the append until the event is on record,
// another process has ended this one (a conflict), or the lease has run out. It returns
// the new end of the lease, computed before the append, or an error.
func (l *Lease) renew(ctx context.Context, end time.Time) (time.Time, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, end, errNotInTime)
	defer cancel()
	for {
		until := time.Now().Add(l.length)
		_, err := l.writer.Append(ctx, l.ledger.Draft(events.LeaseRenewed{Process: l.process, Until: l.ledger.Now().Add(l.length)}, domain.EventID{}))
		switch {
		case err == nil:
			return until, nil
		case errors.Is(err, events.ErrConflict), errors.Is(err, events.ErrClosed), ctx.Err() != nil:
			return end, err
		}
		if !wait(ctx, l.length/(leaseParts*leaseParts)) {
			return end, errors.Join(context.Cause(ctx), err)
		}
	}
}

// errNotInTime is the cause of a renewal that did not succeed before the end of the
// lease.
var errNotInTime = errors.New("it could not be renewed in time")

// wait waits for d and returns true, or returns false at once if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
