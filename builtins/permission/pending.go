package permission

import (
	"context"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// A pendingPrompt is a permission request, or the questions of a call, that a person is
// answering. If another decision applies to it, its context is cancelled with that decision
// as the cause.
type pendingPrompt struct {
	session domain.SessionID
	request *Request // nil: questions, which no approval answers
	cancel  context.CancelCauseFunc
}

// An approvedElsewhereError is the cause that ends a pending request which a new approval
// allows. It carries the approvals that allow the request.
type approvedElsewhereError struct{ approvals []Approval }

func (*approvedElsewhereError) Error() string { return "approved by the answer to another request" }

// A rejectionError is the cause that ends a pending prompt because a person rejected
// a request or dismissed a question of the same session. It carries the person's feedback, because a run
// continues after a rejection with feedback and stops after one without.
type rejectionError struct{ feedback string }

func (*rejectionError) Error() string { return "refused with another request of the session" }

// endApproved ends the pending requests that rules and approvals allow.
func (g *Gate) endApproved() {
	for _, w := range g.pending() {
		if w.request == nil {
			continue
		}
		if v := g.evaluate(w.request.Invocation, w.request.Ask); v.effect == domain.Allow {
			w.cancel(&approvedElsewhereError{v.approvals})
		}
	}
}

// rejectSession ends the pending requests and questions of a session, with the person's
// feedback.
func (g *Gate) rejectSession(session domain.SessionID, feedback string) {
	for _, w := range g.pending() {
		if w.session == session {
			w.cancel(&rejectionError{feedback})
		}
	}
}

// Pending returns the requests that wait for a decision, oldest first.
func (g *Gate) Pending() []Request {
	requests := []Request{}
	for _, w := range g.pending() {
		if w.request != nil {
			requests = append(requests, *w.request)
		}
	}
	return requests
}

// pending returns a copy of the list of pending prompts. The caller can end them
// without holding mu.
func (g *Gate) pending() []*pendingPrompt {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.mu.waiting)
}

// addPending adds a pending prompt.
func (g *Gate) addPending(w *pendingPrompt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.waiting = append(g.mu.waiting, w)
}

// removePending removes a pending prompt.
func (g *Gate) removePending(w *pendingPrompt) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.waiting = slices.DeleteFunc(g.mu.waiting, func(other *pendingPrompt) bool { return other == w })
}
