package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

type inflightKey struct {
	session domain.SessionID
	message domain.MessageID
	call    domain.CallID
}

// inflightCalls are the calls that are being settled in this process, and the tools
// that run, which are more where one was left behind.
type inflightCalls struct {
	mu struct {
		sync.Mutex
		calls map[inflightKey]*inflightCall
		tools int
		idle  chan struct{} // closed once no tool runs; nil while none does
	}
}

// An inflightCall is settled once done is closed.
type inflightCall struct {
	call       domain.Call
	done       chan struct{}
	settlement domain.Settlement
	err        error
}

// errAbandoned is what joiners get if the goroutine that settled went away.
var errAbandoned = errors.New("the settling goroutine ended early")

// once runs work for the first to ask about a call and gives everybody who
// asks meanwhile what it returned. The channel it hands to work is closed when
// all that is over.
func (r *inflightCalls) once(ctx context.Context, key inflightKey, call domain.Call, work func(done <-chan struct{}) (domain.Settlement, error)) (domain.Settlement, error) {
	r.mu.Lock()
	first, ok := r.mu.calls[key]
	if !ok {
		first = &inflightCall{call: call, done: make(chan struct{}), err: errAbandoned}
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
	first.settlement, first.err = work(first.done)
	return first.settlement, first.err
}

func (c *inflightCall) join(ctx context.Context, call domain.Call) (domain.Settlement, error) {
	if !sameCall(c.call, call) {
		return domain.Settlement{}, conflictError(call)
	}
	select {
	case <-c.done:
		return c.settlement, c.err
	case <-ctx.Done():
		return domain.Settlement{}, context.Cause(ctx)
	}
}

// spawn runs a tool on a goroutine of its own, which wait waits for. A
// sync.WaitGroup would not do: tools begin while it is waited for.
func (r *inflightCalls) spawn(tool func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.tools++; r.mu.idle == nil {
		r.mu.idle = make(chan struct{})
	}
	go func() {
		defer r.toolDone()
		tool()
	}()
}

func (r *inflightCalls) toolDone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.tools--; r.mu.tools == 0 {
		close(r.mu.idle)
		r.mu.idle = nil
	}
}

func (r *inflightCalls) waitIdle(ctx context.Context) error {
	r.mu.Lock()
	idle := r.mu.idle
	r.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func sameCall(a, b domain.Call) bool {
	if a.Name != b.Name {
		return false
	}
	return sameJSON(a.Input, b.Input)
}

// sameJSON reports whether two documents say the same. Numbers are compared as
// they are written, as a tool may read more of them than a float64 holds.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func decodeJSON(document json.RawMessage) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

func conflictError(call domain.Call) error {
	return fmt.Errorf("settle %s %s: %w", ShortName(call.Name), call.ID, ErrCallConflict)
}
