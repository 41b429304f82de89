package events

import (
	"github.com/settlement-ledger/ledger/domain"
)

// SessionOpened records the start of a session of one agent.
type SessionOpened struct {
	Session  domain.SessionID `json:"session"`
	Agent    domain.AgentID   `json:"agent" codec:"intern"`
	Location string           `json:"location,omitempty" codec:"intern"` // the workspace
	Model    string           `json:"model,omitempty" codec:"intern"`
	Parent   domain.SessionID `json:"parent,omitzero"` // the session that started this one
	Origin   Origin           `json:"origin"`
}

// An Origin describes how a session entered the ledger.
type Origin struct {
	Kind   OriginKind `json:"kind" codec:"intern"`
	Format string     `json:"format,omitempty" codec:"intern"` // of an import: such as claude-code
	Source string     `json:"source,omitempty"`                // of an import: the session's name in the imported file
}

// An OriginKind is a way in which a session enters the ledger.
type OriginKind string

// The origins.
const (
	RunHere  OriginKind = "run"    // this program ran its calls
	Imported OriginKind = "import" // another program ran its calls; its file was imported
)

// PromptAdmitted records a message for the agent.
type PromptAdmitted struct {
	Message domain.MessageID `json:"message"`
	Text    string           `json:"text"`
	Media   domain.Contents  `json:"media,omitempty"` // attached images and files
}

// TurnMaterialized records the tools that one turn offered to the model.
type TurnMaterialized struct {
	Turn     domain.TurnID    `json:"turn"`
	Message  domain.MessageID `json:"message"` // the ID reserved for the reply
	Agent    domain.AgentID   `json:"agent" codec:"intern"`
	Model    string           `json:"model,omitempty" codec:"intern"`
	Tools    []domain.Offered `json:"tools"`                          // in the order of the request to the model
	Hidden   []HiddenTool     `json:"hidden,omitempty"`               // tools that rules hid
	Disabled bool             `json:"disabled,omitempty"`             // the maximum number of steps was reached: no tools
	Observed bool             `json:"observed,omitempty"`             // an import saw the tools used; others may have been offered
	Rules    string           `json:"rules,omitempty" codec:"intern"` // Rules.Digest of the agent's permission rules; empty: not known
}

// Offer returns the tools that the turn may call.
func (t TurnMaterialized) Offer() domain.Offer { return domain.Offer{Turn: t.Turn, Tools: t.Tools} }

// A HiddenTool is a tool in effect that the turn did not offer, and the rule
// that hid it.
type HiddenTool struct {
	domain.Offered
	Rule domain.Rule `json:"rule"`
}

// ReplyReceived records a reply of the model.
type ReplyReceived struct {
	Turn    domain.TurnID    `json:"turn"`
	Message domain.MessageID `json:"message"`
	Text    string           `json:"text,omitempty"`
	Calls   []domain.Call    `json:"calls,omitempty"`                // as asked, in order
	Model   string           `json:"model,omitempty" codec:"intern"` // that answered
	Tokens  Tokens           `json:"tokens,omitzero"`
	Finish  string           `json:"finish,omitempty" codec:"intern"` // the provider's stop reason

	Thinking string `json:"thinking,omitempty"` // the reasoning of the model; later requests do not include it
}

// ReplyRefused records an unusable reply and the reason. None of its calls
// runs, no later request to the model includes it, and the turn has no reply.
type ReplyRefused struct {
	Turn    domain.TurnID    `json:"turn"`
	Message domain.MessageID `json:"message"` // the ID reserved for the reply
	Reason  string           `json:"reason"`
	Text    string           `json:"text,omitempty"`
	Calls   []domain.Call    `json:"calls,omitempty"` // as asked; an ID may be empty or repeated
	Model   string           `json:"model,omitempty" codec:"intern"`
	Tokens  Tokens           `json:"tokens,omitzero"`
	Finish  string           `json:"finish,omitempty" codec:"intern"`
}

// Tokens are the token counts of the provider.
type Tokens struct {
	Input      int64 `json:"input,omitempty"`
	Output     int64 `json:"output,omitempty"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// LoopDetected records that the model repeated the same calls, and that one of
// them needs permission before it runs.
type LoopDetected struct {
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call" codec:"intern"`
	Tool    string           `json:"tool" codec:"intern"`
	Period  int              `json:"period"` // calls in one round
	Rounds  int              `json:"rounds"` // repetitions
}

// SessionInterrupted records that a run of the session ended before all its
// work was done.
type SessionInterrupted struct {
	Reason domain.Interruption `json:"reason"`
	Detail string              `json:"detail,omitempty"`
}

// SessionClosed records the end of the session: no event follows.
type SessionClosed struct {
	Reason string `json:"reason"`
}
