package events

import (
	"encoding/json"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// PermissionRequested says that a running call asked for permission.
type PermissionRequested struct {
	Permission domain.PermissionID `json:"permission"`
	Message    domain.MessageID    `json:"message"`
	Call       domain.CallID       `json:"call"`
	Agent      domain.AgentID      `json:"agent"`
	Action     string              `json:"action"`
	Resources  []string            `json:"resources"` // never empty
	Save       []string            `json:"save,omitempty"`
	Metadata   json.RawMessage     `json:"metadata,omitempty"`
	Shown      domain.Preview      `json:"shown,omitzero"` // what the person saw; zero where no person was asked
}

// PermissionDecided says how a request for permission ended.
type PermissionDecided struct {
	Permission domain.PermissionID `json:"permission"`
	Effect     domain.Effect       `json:"effect"` // allow or deny
	By         Decider             `json:"by"`
	Rule       domain.Rule         `json:"rule,omitzero"` // that denied, where By is ByRule
	Scope      string              `json:"scope"`         // once, always or reject; empty where nobody was asked
	Feedback   string              `json:"feedback,omitempty"`
	WaitedMS   int64               `json:"waited_ms"`        // how long it took, in milliseconds
	Person     string              `json:"person,omitempty"` // the OS user who decided, where By is ByPerson
}

// A Decider is who or what decided about a permission.
type Decider string

// The deciders.
const (
	ByRule     Decider = "rule"     // a configured rule
	ByApproval Decider = "approval" // a saved approval
	ByPerson   Decider = "user"     // a person
	ByHeadless Decider = "headless" // there was nobody to ask
	ByRecovery Decider = "recovery" // the asking process died
)

// ApprovalSaved says that a person approved of an action on a resource from
// now on.
type ApprovalSaved struct {
	Permission domain.PermissionID `json:"permission"` // the request that it answered
	Location   string              `json:"location,omitempty"`
	Action     string              `json:"action"`
	Resource   string              `json:"resource"`         // a pattern
	Expires    time.Time           `json:"expires,omitzero"` // zero: never
	Person     string              `json:"person,omitempty"` // the OS user who approved
}

// ApprovalRevoked says that a saved approval no longer holds.
type ApprovalRevoked struct {
	Location string `json:"location,omitempty"`
	Action   string `json:"action"`
	Resource string `json:"resource"`
	Reason   string `json:"reason,omitempty"`
	Person   string `json:"person,omitempty"` // the OS user who revoked it
}

// Kind returns the name under which the event is kept.
func (PermissionRequested) Kind() string { return "PermissionRequested" }

// Kind returns the name under which the event is kept.
func (PermissionDecided) Kind() string { return "PermissionDecided" }

// Kind returns the name under which the event is kept.
func (ApprovalSaved) Kind() string { return "ApprovalSaved" }

// Kind returns the name under which the event is kept.
func (ApprovalRevoked) Kind() string { return "ApprovalRevoked" }

func (PermissionRequested) event() {}
func (PermissionDecided) event()   {}
func (ApprovalSaved) event()       {}
func (ApprovalRevoked) event()     {}
