package permission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
)

// ErrNotPending says that a Queue has no pending request with that ID.
var ErrNotPending = errors.New("no pending permission request has this ID")

// A Queue is an Approver whose requests wait for Reply. The zero Queue is ready for use.
type Queue struct {
	mu struct {
		sync.Mutex
		entries []*queuedRequest // oldest first
	}
}

// A queuedRequest is a request with the channel for its answer.
type queuedRequest struct {
	request Request
	answer  chan Answer // capacity 1, so that Reply never blocks
}

// Decide waits for the reply to r. If ctx ends first, it removes the request and
// returns the cause of ctx.
func (q *Queue) Decide(ctx context.Context, r Request) (Answer, error) {
	e := &queuedRequest{r, make(chan Answer, 1)}
	q.mu.Lock()
	q.mu.entries = append(q.mu.entries, e)
	q.mu.Unlock()
	select {
	case answer := <-e.answer:
		return answer, nil
	case <-ctx.Done():
	}
	if q.take(r.ID) == nil { // Reply took the entry first
		return <-e.answer, nil
	}
	return Answer{}, context.Cause(ctx)
}

// Pending returns the pending requests, oldest first.
func (q *Queue) Pending() []Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	requests := make([]Request, len(q.mu.entries))
	for i, e := range q.mu.entries {
		requests[i] = e.request
	}
	return requests
}

// Reply answers a request on behalf of a person. It uses feedback only if the Choice is
// Reject. It returns ErrNotPending if the request is not pending, and ErrInvalidValue
// for an invalid Choice.
func (q *Queue) Reply(id domain.PermissionID, scope Choice, feedback string) error {
	if scope < Once || scope > Reject {
		return fmt.Errorf("reply to %s: %w: scope %s", id, ErrInvalidValue, scope)
	}
	e := q.take(id)
	if e == nil {
		return fmt.Errorf("reply to %s: %w", id, ErrNotPending)
	}
	e.answer <- Answer{scope, feedback, ByUser}
	return nil
}

// take removes the entry of a request and returns it, or nil if the queue has no such
// entry.
func (q *Queue) take(id domain.PermissionID) *queuedRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.mu.entries, func(e *queuedRequest) bool { return e.request.ID == id })
	if i < 0 {
		return nil
	}
	e := q.mu.entries[i]
	q.mu.entries = slices.Delete(q.mu.entries, i, i+1)
	return e
}

// Headless is the Approver of a process without a person to ask: it rejects every request.
type Headless struct{}

// Decide rejects the request.
func (Headless) Decide(context.Context, Request) (Answer, error) {
	return Answer{Choice: Reject, By: ByHeadless}, nil
}
