package events

import (
	"github.com/settlement-ledger/ledger/domain"
)

// SessionOpened says that a session of one agent began.
type SessionOpened struct {
	Session  domain.SessionID `json:"session"`
	Agent    domain.AgentID   `json:"agent"`
	Location string           `json:"location,omitempty"` // the workspace
	Model    string           `json:"model,omitempty"`
	Parent   domain.SessionID `json:"parent,omitzero"` // of a session that an agent began for another
	Origin   Origin           `json:"origin"`
}

// An Origin says how a session came to be in the ledger.
type Origin struct {
	Kind   OriginKind `json:"kind"`
	Format string     `json:"format,omitempty"` // of an import: such as claude-code
	Source string     `json:"source,omitempty"` // of an import: what the format itself calls the session
}

// An OriginKind is a way in which a session comes to be in the ledger.
type OriginKind string

// The origins.
const (
	RunHere  OriginKind = "run"    // this ledger settled its calls
	Imported OriginKind = "import" // another program did, and its file was read
)

// PromptAdmitted says that a message for the agent was accepted.
type PromptAdmitted struct {
	Message domain.MessageID `json:"message"`
	Text    string           `json:"text"`
	Media   domain.Contents  `json:"media,omitempty"` // images and the like that came with it
}

// TurnMaterialized says what one turn offered the model.
type TurnMaterialized struct {
	Turn     domain.TurnID    `json:"turn"`
	Message  domain.MessageID `json:"message"` // the reply that it is for
	Agent    domain.AgentID   `json:"agent"`
	Model    string           `json:"model,omitempty"`
	Tools    []domain.Offered `json:"tools"`              // in the order in which the model saw them
	Hidden   []HiddenTool     `json:"hidden,omitempty"`   //
	Disabled bool             `json:"disabled,omitempty"` // the last step allowed: no tools at all
	Observed bool             `json:"observed,omitempty"` // an import saw the tools used; others may have been offered
	Rules    string           `json:"rules,omitempty"`    // Rules.Digest of the agent's permission rules; empty: not known
}

// Offer returns what the turn may call.
func (t TurnMaterialized) Offer() domain.Offer { return domain.Offer{Turn: t.Turn, Tools: t.Tools} }

// A HiddenTool is a tool in effect that the turn did not offer, and the rule
// that hid it.
type HiddenTool struct {
	domain.Offered
	Rule domain.Rule `json:"rule"`
}

// ReplyReceived says what the model answered.
type ReplyReceived struct {
	Turn    domain.TurnID    `json:"turn"`
	Message domain.MessageID `json:"message"`
	Text    string           `json:"text,omitempty"`
	Calls   []domain.Call    `json:"calls,omitempty"` // as asked, in order
	Model   string           `json:"model,omitempty"` // that answered
	Tokens  Tokens           `json:"tokens,omitzero"`
	Finish  string           `json:"finish,omitempty"` // the provider's word for why it stopped

	Thinking string `json:"thinking,omitempty"` // of the model, before it answered; no model is shown it again
}

// ReplyRefused keeps a reply that cannot be used, as it came, and says why. None
// of its calls runs, and no model is shown it: the turn has no reply.
type ReplyRefused struct {
	Turn    domain.TurnID    `json:"turn"`
	Message domain.MessageID `json:"message"` // that the reply would have been
	Reason  string           `json:"reason"`
	Text    string           `json:"text,omitempty"`
	Calls   []domain.Call    `json:"calls,omitempty"` // as asked; an ID may be empty or repeated
	Model   string           `json:"model,omitempty"`
	Tokens  Tokens           `json:"tokens,omitzero"`
	Finish  string           `json:"finish,omitempty"`
}

// Tokens are what a provider counted.
type Tokens struct {
	Input      int64 `json:"input,omitempty"`
	Output     int64 `json:"output,omitempty"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// LoopDetected says that the same calls came again and again, and that one of
// them asks for permission before it runs.
type LoopDetected struct {
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call"`
	Tool    string           `json:"tool"`
	Period  int              `json:"period"` // how many calls make one round
	Rounds  int              `json:"rounds"` // how often they came
}

// SessionInterrupted says that a run of the session ended before the session
// rested.
type SessionInterrupted struct {
	Reason domain.Interruption `json:"reason"`
	Detail string              `json:"detail,omitempty"`
}

// SessionClosed says that nothing more will come.
type SessionClosed struct {
	Reason string `json:"reason"`
}

// Kind returns the name under which the event is kept.
func (SessionOpened) Kind() string { return "SessionOpened" }

// Kind returns the name under which the event is kept.
func (PromptAdmitted) Kind() string { return "PromptAdmitted" }

// Kind returns the name under which the event is kept.
func (TurnMaterialized) Kind() string { return "TurnMaterialized" }

// Kind returns the name under which the event is kept.
func (ReplyReceived) Kind() string { return "ReplyReceived" }

// Kind returns the name under which the event is kept.
func (ReplyRefused) Kind() string { return "ReplyRefused" }

// Kind returns the name under which the event is kept.
func (LoopDetected) Kind() string { return "LoopDetected" }

// Kind returns the name under which the event is kept.
func (SessionInterrupted) Kind() string { return "SessionInterrupted" }

// Kind returns the name under which the event is kept.
func (SessionClosed) Kind() string { return "SessionClosed" }

func (SessionOpened) event()      {}
func (PromptAdmitted) event()     {}
func (TurnMaterialized) event()   {}
func (ReplyReceived) event()      {}
func (ReplyRefused) event()       {}
func (LoopDetected) event()       {}
func (SessionInterrupted) event() {}
func (SessionClosed) event()      {}
