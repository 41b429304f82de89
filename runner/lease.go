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
	DefaultLease = 30 * time.Second // how long a process is taken to live without a word from it
	leaseParts   = 3                // a lease is renewed when one of so many parts of it has passed

	// LeaseMargin is by how much the clocks of two machines may differ: no
	// process is judged dead sooner than this after its lease ran out.
	LeaseMargin = 10 * time.Second
)

// ErrLeaseLost says that a process may no longer work: its lease ran out before
// it could be renewed, or somebody recovered what it had open.
var ErrLeaseLost = errors.New("the lease of this process is lost: others may take it for dead")

// A Lease keeps a process on record as alive. It appends a LeaseRenewed to the
// process's stream each time that a third of the lease has passed. It is safe
// for concurrent use.
type Lease struct {
	writer  *events.Writer
	ledger  *events.Ledger
	process domain.ProcessID
	length  time.Duration

	alive context.Context
	lose  context.CancelCauseFunc
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// KeepLease keeps the lease of a process whose ProcessStarted is the last that
// writer appended and said that the lease runs out length after now. The caller
// closes it. The context that [Lease.Alive] returns descends from ctx.
func KeepLease(ctx context.Context, ledger *events.Ledger, writer *events.Writer, process domain.ProcessID, length time.Duration) *Lease {
	l := &Lease{writer: writer, ledger: ledger, process: process, length: length}
	l.alive, l.lose = context.WithCancelCause(ctx)
	loopCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	l.done.Go(func() { l.renewLoop(loopCtx, time.Now().Add(length)) })
	return l
}

// Alive returns a context that ends with ErrLeaseLost when the process may no
// longer work.
func (l *Lease) Alive() context.Context { return l.alive }

// Close stops renewing and waits until that is so. The lease runs out by itself,
// or ends with the ProcessStopped that the caller then appends.
func (l *Lease) Close() {
	l.stop()
	l.done.Wait()
	l.lose(nil)
}

// renewLoop renews the lease, whose end is by the clock of this machine that no
// change of its time moves.
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

// renew appends that the process lives, again and again until that is certain,
// somebody else has ended the process, or the lease has run out.
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

// errNotInTime is why a renewal ended that did not come in time.
var errNotInTime = errors.New("it could not be renewed in time")

// wait returns true after d, and false if ctx ends before.
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
