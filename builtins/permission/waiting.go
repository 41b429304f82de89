package permission

import (
	"context"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// A waitingList holds requests of type R until they get an answer of type A. The zero
// waitingList is ready for use.
type waitingList[R, A any] struct {
	mu struct {
		sync.Mutex
		entries []*waitingEntry[R, A] // oldest first
	}
}

// A waitingEntry is a request with the channel for its answer.
type waitingEntry[R, A any] struct {
	id      domain.PermissionID
	request R
	answer  chan A // capacity 1, so that a send after take never blocks
}

// wait adds a request and waits for its answer. If ctx ends first, it removes the request
// and returns the cause of ctx.
func (l *waitingList[R, A]) wait(ctx context.Context, id domain.PermissionID, request R) (A, error) {
	e := &waitingEntry[R, A]{id, request, make(chan A, 1)}
	l.mu.Lock()
	l.mu.entries = append(l.mu.entries, e)
	l.mu.Unlock()
	select {
	case answer := <-e.answer:
		return answer, nil
	case <-ctx.Done():
	}
	if l.take(id) == nil { // the answer took the entry first
		return <-e.answer, nil
	}
	var none A
	return none, context.Cause(ctx)
}

// pending returns the requests that wait, oldest first.
func (l *waitingList[R, A]) pending() []R {
	l.mu.Lock()
	defer l.mu.Unlock()
	requests := make([]R, len(l.mu.entries))
	for i, e := range l.mu.entries {
		requests[i] = e.request
	}
	return requests
}

// take removes the entry of a request and returns it, or nil if the list has no such
// entry. The caller sends the answer.
func (l *waitingList[R, A]) take(id domain.PermissionID) *waitingEntry[R, A] {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.mu.entries, func(e *waitingEntry[R, A]) bool { return e.id == id })
	if i < 0 {
		return nil
	}
	e := l.mu.entries[i]
	l.mu.entries = slices.Delete(l.mu.entries, i, i+1)
	return e
}
