package events

import (
	"encoding/json"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// PermissionRequested records that a running call requested permission.
type PermissionRequested struct {
	Permission domain.PermissionID `json:"permission"`
	Message    domain.MessageID    `json:"message"`
	Call       domain.CallID       `json:"call"`
	Agent      domain.AgentID      `json:"agent"`
	Action     string              `json:"action"`
	Resources  []string            `json:"resources"` // never empty
	Save       []string            `json:"save,omitempty"`
	Metadata   json.RawMessage     `json:"metadata,omitempty"`
	Shown      domain.Preview      `json:"shown,omitzero"` // the text shown to the person; zero if no person was asked
}

// PermissionDecided records the decision on a permission request.
type PermissionDecided struct {
	Permission domain.PermissionID `json:"permission"`
	Effect     domain.Effect       `json:"effect"` // allow or deny
	By         Decider             `json:"by"`
	Rule       domain.Rule         `json:"rule,omitzero"` // the denying rule, if By is ByRule
	Scope      string              `json:"scope"`         // once, always or reject; empty if no person was asked
	Feedback   string              `json:"feedback,omitempty"`
	WaitedMS   int64               `json:"waited_ms"`        // from request to decision, in milliseconds
	Person     string              `json:"person,omitempty"` // the OS user who decided, if By is ByPerson
}

// A Decider is the kind of authority that decided on a permission.
type Decider string

// The deciders.
const (
	ByRule     Decider = "rule"     // a configured rule
	ByApproval Decider = "approval" // a saved approval
	ByPerson   Decider = "user"     // a person
	ByHeadless Decider = "headless" // no person was available
	ByRecovery Decider = "recovery" // the asking process died
)

// ApprovalSaved records that a person approved an action on a resource for
// later requests as well.
type ApprovalSaved struct {
	Permission domain.PermissionID `json:"permission"` // the request that it decided
	Location   string              `json:"location,omitempty"`
	Action     string              `json:"action"`
	Resource   string              `json:"resource"`         // a pattern
	Expires    time.Time           `json:"expires,omitzero"` // zero: never
	Person     string              `json:"person,omitempty"` // the OS user who approved
}

// ApprovalRevoked records that a saved approval no longer applies.
type ApprovalRevoked struct {
	Location string `json:"location,omitempty"`
	Action   string `json:"action"`
	Resource string `json:"resource"`
	Reason   string `json:"reason,omitempty"`
	Person   string `json:"person,omitempty"` // the OS user who revoked it
}

// Kind returns the name under which the event is stored.
func (PermissionRequested) Kind() string { return "PermissionRequested" }

// Kind returns the name under which the event is stored.
func (PermissionDecided) Kind() string { return "PermissionDecided" }

// Kind returns the name under which the event is stored.
func (ApprovalSaved) Kind() string { return "ApprovalSaved" }

// Kind returns the name under which the event is stored.
func (ApprovalRevoked) Kind() string { return "ApprovalRevoked" }

func (PermissionRequested) event() {}
func (PermissionDecided) event()   {}
func (ApprovalSaved) event()       {}
func (ApprovalRevoked) event()     {}
