package events

import (
	"encoding/json"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// CallStarted records that a call is about to run. It is durable before the
// tool runs, so a call without it has had no effect outside the process.
type CallStarted struct {
	// Turn is the turn whose offer the call refers to.
	Turn domain.TurnID `json:"turn"`
	// Message is the reply that contains the call.
	Message domain.MessageID `json:"message"`
	// Call is the provider's name for the call.
	Call domain.CallID `json:"call" codec:"intern"`
	// Tool is the name of the tool, as the model wrote it.
	Tool string `json:"tool" codec:"intern"`
	// Offered is the registration that the turn offered.
	Offered domain.Offered `json:"offered"`
	// Effective is the registration that runs.
	Effective domain.Offered `json:"effective,omitzero"`
	// Input is the input that runs, if hooks changed the requested one. Empty:
	// they did not.
	Input json.RawMessage `json:"input,omitempty"`
	// Idempotent is the promise of the tool that a second run of the same call has
	// no further effect.
	Idempotent bool `json:"idempotent,omitempty"`
	// AsksFirst is the promise of the tool to request permission before its first side
	// effect.
	AsksFirst bool `json:"asks_first,omitempty"`
	// Title is one line about the call for a person; it may be empty.
	Title string `json:"title,omitempty"`
	// Process is the process that runs the call; zero in an import.
	Process domain.ProcessID `json:"process,omitzero"`
}

// CallSettled records the end of a call. Each call has exactly one.
type CallSettled struct {
	// Turn is the turn of the call.
	Turn domain.TurnID `json:"turn,omitzero"`
	// Message is the reply that contains the call.
	Message domain.MessageID `json:"message"`
	// Call is the provider's name for the call.
	Call domain.CallID `json:"call" codec:"intern"`
	// Tool is the name of the tool, as the model wrote it.
	Tool string `json:"tool" codec:"intern"`
	// Outcome and the fields up to ChangedBy are the fields of domain.Settlement.
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
	// Lost is the number of bytes that the tool dropped from its output.
	Lost      int64            `json:"lost,omitempty"`
	Progress  *domain.Progress `json:"progress,omitempty"`
	Offered   domain.Offered   `json:"offered,omitzero"`
	Effective domain.Offered   `json:"effective,omitzero"`
	// Agrees reports whether the fingerprints of Offered and Effective are known
	// and equal.
	Agrees    bool           `json:"agrees,omitempty"`
	ChangedBy domain.EventID `json:"changed_by,omitzero"`
	// Allowed are the rules that allowed permission requests of the call, or resources of
	// them, without a prompt.
	Allowed []domain.Rule `json:"allowed,omitempty"`
	// RanMS is the time from the start to the return of the tool, in milliseconds.
	RanMS int64 `json:"ran_ms,omitempty"`
	// Files are the files that the call read or changed, as far as the tool reports
	// them.
	Files []domain.FileAccess `json:"files,omitempty"`
}

// CallsAdded records calls that a running call makes of its own, such as those of a
// batch. They belong to the same reply and are settled against the offer of the same
// turn. A request to a model does not contain them.
type CallsAdded struct {
	// Message is the reply that contains the running call.
	Message domain.MessageID `json:"message"`
	// Parent is the running call.
	Parent domain.CallID `json:"parent" codec:"intern"`
	// Calls are the added calls, in order. Their IDs differ from all others of the
	// reply.
	Calls []domain.Call `json:"calls"`
}

// Settled returns the event that records a settlement of a call.
func Settled(turn domain.TurnID, message domain.MessageID, call domain.Call, s domain.Settlement) CallSettled {
	return CallSettled{
		Turn: turn, Message: message, Call: call.ID, Tool: call.Name,
		Outcome: s.Outcome, Began: s.Began, Interruption: s.Interruption, Text: s.Text, Detail: s.Detail, Rule: s.Rule,
		Input: s.Input, Structured: s.Structured, Content: s.Content, Retained: s.Retained, Lost: s.Lost, Progress: s.Progress,
		Offered: s.Offered, Effective: s.Effective, Agrees: s.Agrees(), ChangedBy: s.ChangedBy,
		RanMS: s.Ran.Milliseconds(), Files: s.Files,
	}
}

// Settlement returns the settlement that the event records; id is the ID of
// the event.
func (c CallSettled) Settlement(id domain.EventID) domain.Settlement {
	return domain.Settlement{
		ID: id, Outcome: c.Outcome, Began: c.Began, Interruption: c.Interruption, Text: c.Text, Detail: c.Detail, Rule: c.Rule,
		Input: c.Input, Structured: c.Structured, Content: c.Content, Retained: c.Retained, Lost: c.Lost, Progress: c.Progress,
		Offered: c.Offered, Effective: c.Effective, ChangedBy: c.ChangedBy,
		Ran: time.Duration(c.RanMS) * time.Millisecond, Files: c.Files,
	}
}

// LateResultObserved records a result that arrived after the settlement of its
// call. It is stored for inspection and never replaces the settlement.
type LateResultObserved struct {
	// Message is the reply that contains the call.
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call" codec:"intern"`
	Tool    string           `json:"tool" codec:"intern"`
	// Settlement is the event that records the settlement.
	Settlement domain.EventID `json:"settlement"`
	// Outcome is the outcome of the late result.
	Outcome    domain.Outcome  `json:"outcome"`
	Text       string          `json:"text,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
}

// OutputPruned records that a managed output was deleted. Its digest and size
// remain.
type OutputPruned struct {
	// Retained describes the deleted output.
	Retained domain.Retained `json:"retained"`
	// Policy names the rule that deleted it, such as "older than 30 days".
	Policy string `json:"policy"`
	// Pruned is the time of the deletion.
	Pruned time.Time `json:"pruned"`
}
