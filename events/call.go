package events

import (
	"encoding/json"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// CallStarted records that a call is about to run. It is durable before the
// tool runs, so a call without it has had no effect outside the process.
type CallStarted struct {
	Turn       domain.TurnID    `json:"turn"`
	Message    domain.MessageID `json:"message"` // the reply with the call
	Call       domain.CallID    `json:"call" codec:"intern"`
	Tool       string           `json:"tool" codec:"intern"`
	Offered    domain.Offered   `json:"offered"`         // by the turn
	Effective  domain.Offered   `json:"effective"`       // the registration that runs
	Input      json.RawMessage  `json:"input,omitempty"` // if hooks changed the requested input
	Idempotent bool             `json:"idempotent,omitempty"`
	Process    domain.ProcessID `json:"process,omitzero"` // the process that runs it; zero in an import
}

// CallSettled records the end of a call. Each call has exactly one.
type CallSettled struct {
	Turn         domain.TurnID       `json:"turn,omitzero"`
	Message      domain.MessageID    `json:"message"`
	Call         domain.CallID       `json:"call" codec:"intern"`
	Tool         string              `json:"tool" codec:"intern"`
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
	Lost         int64               `json:"lost,omitempty"` // bytes that the tool dropped from its output
	Progress     *domain.Progress    `json:"progress,omitempty"`
	Offered      domain.Offered      `json:"offered,omitzero"`
	Effective    domain.Offered      `json:"effective,omitzero"`
	Agrees       bool                `json:"agrees"` // the fingerprints of Offered and Effective are equal and known
	ChangedBy    domain.EventID      `json:"changed_by,omitzero"`
	Allowed      []domain.Rule       `json:"allowed,omitempty"` // the rules that allowed its permission requests without a prompt
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

// Settlement returns the settlement that the event records; id is the ID of
// the event.
func (c CallSettled) Settlement(id domain.EventID) domain.Settlement {
	return domain.Settlement{
		ID: id, Outcome: c.Outcome, Began: c.Began, Interruption: c.Interruption, Text: c.Text, Detail: c.Detail, Rule: c.Rule,
		Input: c.Input, Structured: c.Structured, Content: c.Content, Retained: c.Retained, Lost: c.Lost, Progress: c.Progress,
		Offered: c.Offered, Effective: c.Effective, ChangedBy: c.ChangedBy,
	}
}

// LateResultObserved records a result that arrived after the settlement of its
// call. It is stored for inspection and never replaces the settlement.
type LateResultObserved struct {
	Message    domain.MessageID `json:"message"`
	Call       domain.CallID    `json:"call" codec:"intern"`
	Tool       string           `json:"tool" codec:"intern"`
	Settlement domain.EventID   `json:"settlement"` // the recorded settlement
	Outcome    domain.Outcome   `json:"outcome"`    // the outcome of the late result
	Text       string           `json:"text,omitempty"`
	Structured json.RawMessage  `json:"structured,omitempty"`
}

// OutputPruned records that a managed output was deleted. Its digest and size
// remain.
type OutputPruned struct {
	Retained domain.Retained `json:"retained"`
	Policy   string          `json:"policy"`
	Pruned   time.Time       `json:"pruned"`
}
