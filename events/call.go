package events

import (
	"encoding/json"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// CallStarted says that a call is about to run: what may follow it outside the
// process can no longer be undone. It is durable before the tool runs.
type CallStarted struct {
	Turn       domain.TurnID    `json:"turn"`
	Message    domain.MessageID `json:"message"` // the reply that asked for it
	Call       domain.CallID    `json:"call"`
	Tool       string           `json:"tool"`
	Offered    domain.Offered   `json:"offered"`         // by the turn
	Effective  domain.Offered   `json:"effective"`       // the registration that runs, in effect or not
	Input      json.RawMessage  `json:"input,omitempty"` // where hooks changed the one asked for
	Idempotent bool             `json:"idempotent,omitempty"`
	Process    domain.ProcessID `json:"process,omitzero"` // that runs it; zero where an import observed it
}

// CallSettled says how a call ended. There is one for each call.
type CallSettled struct {
	Turn         domain.TurnID       `json:"turn,omitzero"`
	Message      domain.MessageID    `json:"message"`
	Call         domain.CallID       `json:"call"`
	Tool         string              `json:"tool"`
	Outcome      domain.Outcome      `json:"outcome"`
	Began        bool                `json:"began"`
	Interruption domain.Interruption `json:"interruption,omitzero"`
	Text         string              `json:"text,omitempty"`
	Detail       string              `json:"detail,omitempty"`
	Rule         domain.Rule         `json:"rule,omitzero"`
	Input        json.RawMessage     `json:"input,omitempty"`
	Structured   json.RawMessage     `json:"structured,omitempty"`
	Content      domain.Contents     `json:"content,omitempty"`
	Retained     []domain.Retained   `json:"retained,omitempty"`
	Lost         int64               `json:"lost,omitempty"` // bytes that the tool dropped before it returned the rest
	Progress     *domain.Progress    `json:"progress,omitempty"`
	Offered      domain.Offered      `json:"offered,omitzero"`
	Effective    domain.Offered      `json:"effective,omitzero"`
	Agrees       bool                `json:"agrees"` // the fingerprints of Offered and Effective are equal and known
	ChangedBy    domain.EventID      `json:"changed_by,omitzero"`
	Allowed      []domain.Rule       `json:"allowed,omitempty"` // the rules that allowed what the call asked for, without a question
}

// Settled returns the event that records a settlement of a call.
func Settled(turn domain.TurnID, message domain.MessageID, call domain.Call, s domain.Settlement) CallSettled {
	return CallSettled{
		Turn: turn, Message: message, Call: call.ID, Tool: call.Name,
		Outcome: s.Outcome, Began: s.Began, Interruption: s.Interruption, Text: s.Text, Detail: s.Detail, Rule: s.Rule,
		Input: s.Input, Structured: s.Structured, Content: s.Content, Retained: s.Retained, Lost: s.Lost, Progress: s.Progress,
		Offered: s.Offered, Effective: s.Effective, Agrees: s.Agrees(), ChangedBy: s.ChangedBy,
	}
}

// Settlement returns what the event records. The ID is that of the event.
func (c CallSettled) Settlement(id domain.EventID) domain.Settlement {
	return domain.Settlement{
		ID: id, Outcome: c.Outcome, Began: c.Began, Interruption: c.Interruption, Text: c.Text, Detail: c.Detail, Rule: c.Rule,
		Input: c.Input, Structured: c.Structured, Content: c.Content, Retained: c.Retained, Lost: c.Lost, Progress: c.Progress,
		Offered: c.Offered, Effective: c.Effective, ChangedBy: c.ChangedBy,
	}
}

// LateResultObserved says that a result came for a call that had its
// settlement. It is kept and never applied.
type LateResultObserved struct {
	Message    domain.MessageID `json:"message"`
	Call       domain.CallID    `json:"call"`
	Tool       string           `json:"tool"`
	Settlement domain.EventID   `json:"settlement"` // that stands
	Outcome    domain.Outcome   `json:"outcome"`    // that it would have been
	Text       string           `json:"text,omitempty"`
	Structured json.RawMessage  `json:"structured,omitempty"`
}

// OutputPruned says that a managed output was removed. Its digest and size
// stay.
type OutputPruned struct {
	Retained domain.Retained `json:"retained"`
	Policy   string          `json:"policy"`
	Pruned   time.Time       `json:"pruned"`
}

// Kind returns the name under which the event is kept.
func (CallStarted) Kind() string { return "CallStarted" }

// Kind returns the name under which the event is kept.
func (CallSettled) Kind() string { return "CallSettled" }

// Kind returns the name under which the event is kept.
func (LateResultObserved) Kind() string { return "LateResultObserved" }

// Kind returns the name under which the event is kept.
func (OutputPruned) Kind() string { return "OutputPruned" }

func (CallStarted) event()        {}
func (CallSettled) event()        {}
func (LateResultObserved) event() {}
func (OutputPruned) event()       {}
