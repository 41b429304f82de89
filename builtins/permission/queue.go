package permission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrNotPending says that no request of that ID waits in a Queue.
var ErrNotPending = errors.New("no such request waits for an answer")

// A Queue is an Approver whose requests wait until somebody replies. The zero
// Queue is empty and ready for use.
type Queue struct {
	mu struct {
		sync.Mutex
		entries []*entry // oldest first
	}
}

type entry struct {
	request Request
	answer  chan Answer // of one place, so that a reply never waits
}

// Decide waits for the reply to r. It returns the cause of ctx if that ends
// before; then r is not pending any more.
func (q *Queue) Decide(ctx context.Context, r Request) (Answer, error) {
	e := &entry{r, make(chan Answer, 1)}
	q.mu.Lock()
	q.mu.entries = append(q.mu.entries, e)
	q.mu.Unlock()
	select {
	case answer := <-e.answer:
		return answer, nil
	case <-ctx.Done():
	}
	if q.take(r.ID) == nil { // somebody replied all the same
		return <-e.answer, nil
	}
	return Answer{}, context.Cause(ctx)
}

// Pending returns the requests that wait, oldest first.
func (q *Queue) Pending() []Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	requests := make([]Request, len(q.mu.entries))
	for i, e := range q.mu.entries {
		requests[i] = e.request
	}
	return requests
}

// Reply answers a request for a person. Feedback counts with Reject only. It
// returns an ErrNotPending if no such request waits, and an ErrBadWord if the
// scope is none.
func (q *Queue) Reply(id domain.PermissionID, scope Scope, feedback string) error {
	if scope < Once || scope > Reject {
		return fmt.Errorf("reply to %s: %w: scope %s", id, ErrBadWord, scope)
	}
	e := q.take(id)
	if e == nil {
		return fmt.Errorf("reply to %s: %w", id, ErrNotPending)
	}
	e.answer <- Answer{scope, feedback, ByUser}
	return nil
}

// take removes the entry of a request and returns it, or nil.
func (q *Queue) take(id domain.PermissionID) *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.mu.entries, func(e *entry) bool { return e.request.ID == id })
	if i < 0 {
		return nil
	}
	e := q.mu.entries[i]
	q.mu.entries = slices.Delete(q.mu.entries, i, i+1)
	return e
}

// Headless is the Approver of a process that has no one to ask: it refuses.
type Headless struct{}

// Decide refuses.
func (Headless) Decide(context.Context, Request) (Answer, error) {
	return Answer{Scope: Reject, By: ByHeadless}, nil
}
