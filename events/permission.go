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
	Call       domain.CallID       `json:"call" codec:"intern"`
	Agent      domain.AgentID      `json:"agent" codec:"intern"`
	Action     string              `json:"action" codec:"intern"`
	Resources  []string            `json:"resources"` // never empty
	Save       []string            `json:"save,omitempty"`
	Metadata   json.RawMessage     `json:"metadata,omitempty"`
	Shown      domain.Preview      `json:"shown,omitzero"` // the text shown to the person; zero if no person was asked
}

// PermissionDecided records the decision on a permission request.
type PermissionDecided struct {
	Permission domain.PermissionID `json:"permission"`
	Effect     domain.Effect       `json:"effect"` // allow or deny
	By         Decider             `json:"by" codec:"intern"`
	Rule       domain.Rule         `json:"rule,omitzero"`        // the denying rule, if By is ByRule
	Scope      string              `json:"scope" codec:"intern"` // once, always or reject; empty if no person was asked
	Feedback   string              `json:"feedback,omitempty"`
	WaitedMS   int64               `json:"waited_ms"`                       // from request to decision, in milliseconds
	Person     string              `json:"person,omitempty" codec:"intern"` // the OS user who decided, if By is ByPerson
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
	Location   string              `json:"location,omitempty" codec:"intern"`
	Action     string              `json:"action" codec:"intern"`
	Resource   string              `json:"resource"`                        // a pattern
	Expires    time.Time           `json:"expires,omitzero"`                // zero: never
	Person     string              `json:"person,omitempty" codec:"intern"` // the OS user who approved
}

// ApprovalRevoked records that a saved approval no longer applies.
type ApprovalRevoked struct {
	Location string `json:"location,omitempty" codec:"intern"`
	Action   string `json:"action" codec:"intern"`
	Resource string `json:"resource"`
	Reason   string `json:"reason,omitempty"`
	Person   string `json:"person,omitempty" codec:"intern"` // the OS user who revoked it
}
