package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Journal keeps the two facts that bracket a call of a session: its start,
// an [events.CallStarted], and its end, an [events.CallSettled]. What it is
// given to keep is durable when it returns nil. It is safe for concurrent use.
type Journal interface {
	// Recorded returns what is on record of a call.
	Recorded(ctx context.Context, message domain.MessageID, call domain.CallID) (Recorded, error)
	// Begin keeps the start. If it returns an error the tool does not run.
	Begin(ctx context.Context, start events.Draft) error
	// Settle keeps the end.
	Settle(ctx context.Context, end events.Draft) error
	// Late keeps an [events.LateResultObserved]: a result that came after the
	// end.
	Late(ctx context.Context, late events.Draft) error
}

// A Recorded says what is on record of a call. The zero Recorded is nothing.
type Recorded struct {
	Call       domain.Call        // as started or settled; its input as asked
	Began      bool               // its start is on record
	Settlement *domain.Settlement // its end; nil where there is none
}

type callKey struct {
	session domain.SessionID
	message domain.MessageID
	call    domain.CallID
}

// running are the calls that are being settled in this process.
type running struct {
	tools sync.WaitGroup
	mu    struct {
		sync.Mutex
		calls map[callKey]*runningCall
	}
}

// A runningCall is settled once done is closed.
type runningCall struct {
	call       domain.Call
	done       chan struct{}
	settlement domain.Settlement
	err        error
}

// errAbandoned is what joiners get if the goroutine that settled went away.
var errAbandoned = errors.New("the settling goroutine ended early")

// settle runs work for the first to ask about a call and gives everybody who
// asks meanwhile what it returned.
func (r *running) settle(ctx context.Context, key callKey, call domain.Call, work func() (domain.Settlement, error)) (domain.Settlement, error) {
	r.mu.Lock()
	first, ok := r.mu.calls[key]
	if !ok {
		first = &runningCall{call: call, done: make(chan struct{}), err: errAbandoned}
		r.mu.calls[key] = first
	}
	r.mu.Unlock()
	if ok {
		return first.join(ctx, call)
	}
	defer func() {
		r.mu.Lock()
		delete(r.mu.calls, key)
		r.mu.Unlock()
		close(first.done)
	}()
	first.settlement, first.err = work()
	return first.settlement, first.err
}

func (c *runningCall) join(ctx context.Context, call domain.Call) (domain.Settlement, error) {
	if !sameCall(c.call, call) {
		return domain.Settlement{}, conflict(call)
	}
	select {
	case <-c.done:
		return c.settlement, c.err
	case <-ctx.Done():
		return domain.Settlement{}, context.Cause(ctx)
	}
}

func (r *running) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() { // ends with the tools, which is what is waited for
		r.tools.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func sameCall(a, b domain.Call) bool {
	if a.Name != b.Name {
		return false
	}
	if string(a.Input) == string(b.Input) {
		return true
	}
	x, errX := domain.Canonical(a.Input)
	y, errY := domain.Canonical(b.Input)
	return errX == nil && errY == nil && string(x) == string(y)
}

func conflict(call domain.Call) error {
	return fmt.Errorf("settle %s %s: %w", call.Name, call.ID, ErrCallConflict)
}
