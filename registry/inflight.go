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

// An inflightKey identifies a call within the process. Call IDs are unique within a
// message only.
type inflightKey struct {
	session domain.SessionID
	message domain.MessageID
	call    domain.CallID
}

// An inflightCalls tracks the calls that this process is settling. It also counts the
// goroutines that run foreign code for calls, including goroutines that were left behind.
// It is safe for concurrent use. No lock is held while a call is settled.
type inflightCalls struct {
	mu struct {
		sync.Mutex
		// calls has the calls that are being settled.
		calls map[inflightKey]*inflightCall
		// tools is the number of goroutines that run foreign code.
		tools int
		// idle is closed when tools becomes 0. Nil: tools is 0.
		idle chan struct{}
	}
}

// An inflightCall is a call that is being settled. settlement and err are valid once done
// is closed; until then err is errAbandoned.
type inflightCall struct {
	call       domain.Call
	done       chan struct{}
	settlement domain.Settlement
	err        error
}

// errAbandoned is the error for joined callers if the goroutine that settled the call
// ended early, by a panic or runtime.Goexit.
var errAbandoned = errors.New("the settling goroutine ended early")

// once calls work for the first caller with a key. A concurrent caller with the same
// key waits for the result of that work, as join documents. When work has returned, the
// next caller with the key calls its own work. once closes done, the channel that it
// passes to work, after it has stored the result.
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

// join waits for the result of a call that another goroutine settles. It returns
// ErrCallConflict at once if call has another tool or input, and the cause of ctx if ctx
// ends first.
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

// spawn runs foreign code on a new goroutine that waitIdle waits for. A sync.WaitGroup
// would not do: it does not allow Add to race with Wait, and calls begin while waitIdle
// waits.
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

// toolDone counts a spawned goroutine as ended. When the last one has ended, toolDone
// wakes the callers of waitIdle.
func (r *inflightCalls) toolDone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.tools--; r.mu.tools == 0 {
		close(r.mu.idle)
		r.mu.idle = nil
	}
}

// waitIdle waits until no spawned goroutine runs and returns nil. If ctx ends first, it
// returns the cause.
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

// sameCall reports whether two calls have the same tool and equivalent inputs.
func sameCall(a, b domain.Call) bool {
	if a.Name != b.Name {
		return false
	}
	return sameJSON(a.Input, b.Input)
}

// sameJSON reports whether two JSON documents have the same value. It compares numbers by
// their text, because a tool may read more digits than a float64 holds. Documents that
// are not JSON are the same only if their bytes are equal.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, errX := decodeJSON(a)
	y, errY := decodeJSON(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// decodeJSON decodes a document with its numbers as text.
func decodeJSON(document json.RawMessage) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

// conflictError returns the ErrCallConflict of a call.
func conflictError(call domain.Call) error {
	return fmt.Errorf("settle %s %s: %w", ShortName(call.Name), call.ID, ErrCallConflict)
}
