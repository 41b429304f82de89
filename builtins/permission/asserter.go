package permission

import (
	"context"

	"github.com/settlement-ledger/ledger/domain"
)

// An Asserter decides whether a call may perform an action. A *Gate is an Asserter. It is
// safe for concurrent use.
type Asserter interface {
	// Assert requests permission and waits for the decision, of a person if necessary. It
	// returns nil if the action is allowed, a *domain.Denied or *domain.Declined if it is
	// refused, and the cause of an ended context. Any other error is for the operator.
	Assert(context.Context, domain.Invocation, Ask) error
}

// An Evaluator is an Asserter that also evaluates a request without asking.
type Evaluator interface {
	Asserter
	// Check evaluates a request against rules and approvals. It does not ask a person,
	// record the request or grant anything.
	Check(domain.Invocation, Ask) Evaluation
}
