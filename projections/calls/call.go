package calls

import (
	"encoding/json"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Key identifies a call. The call ID alone does not, as a provider may repeat it in
// another message.
type Key struct {
	Session domain.SessionID `json:"session"`
	Message domain.MessageID `json:"message"`
	Call    domain.CallID    `json:"call"`
}

// A Stage is the progress of a call. The zero Stage is invalid.
type Stage string

// The stages of a call, in order.
const (
	// Asked: a reply of the model asks for the call.
	Asked Stage = "asked"
	// Begun: the log has the start of the call.
	Begun Stage = "begun"
	// Settled: the log has the settlement of the call.
	Settled Stage = "settled"
)

// A Place identifies an event in the log. The Revision is that of the stream of the
// call or session.
type Place struct {
	Event    domain.EventID  `json:"event"`
	Revision events.Revision `json:"revision"`
	Position events.Position `json:"position"`
	// Ordinal numbers the events folded, from 1.
	Ordinal int `json:"ordinal"`
}

// previewBytes bounds the bytes of a text or input that a State holds. The
// complete value is in the session's stream.
const previewBytes = 256

// A Call is one call, with its progress and outcome. A field is zero until the event
// that has its value is folded.
type Call struct {
	Session domain.SessionID `json:"session"`
	// Turn is the turn whose reply asked for the call.
	Turn    domain.TurnID    `json:"turn,omitzero"`
	Message domain.MessageID `json:"message"`
	ID      domain.CallID    `json:"call"`
	Tool    string           `json:"tool"`
	// Parent is the call of the same message that made this one. Empty: the reply asks
	// for it.
	Parent domain.CallID `json:"parent,omitempty"`
	// Title is one line about the call, of its tool.
	Title    string         `json:"title,omitempty"`
	Agent    domain.AgentID `json:"agent,omitempty"`
	Location string         `json:"location,omitempty"`
	// Imported reports that the session was imported, so that another program ran the
	// call unless Turn is set.
	Imported bool `json:"imported,omitempty"`

	State Stage `json:"state"`
	// Input is the input as the model wrote it, or nil if it is longer than 256
	// bytes; InputPreview then has its first 256 bytes.
	Input        json.RawMessage `json:"input,omitempty"`
	InputPreview string          `json:"input_preview,omitempty"`
	// Asked, Started and Settled are the times of the three stages. Each is zero
	// until the log has its event.
	Asked   time.Time `json:"asked,omitzero"`
	Started time.Time `json:"started,omitzero"`
	Settled time.Time `json:"settled,omitzero"`
	// Process is the process that began the call.
	Process domain.ProcessID `json:"process,omitzero"`

	// Settlement is the event that ended the call, without Input, Structured,
	// Content and Progress, and with Text and Detail cut to 256 bytes. It is
	// zero if the call has no end.
	Settlement events.CallSettled `json:"settlement,omitzero"`
	// SettledBy is the event of Settlement.
	SettledBy domain.EventID `json:"settled_by,omitzero"`
	// Preview is the first 256 bytes of the text that the model reads.
	Preview string `json:"preview,omitempty"`
	// Late counts the results that came after the settlement.
	Late int `json:"late,omitempty"`

	// Offered is the registration that the turn offered, as the start or the settlement
	// of the call names it. It is zero until one of these events is folded.
	Offered domain.Offered `json:"offered,omitzero"`
	// Requests counts the permission requests of the call.
	Requests int `json:"requests,omitempty"`
	// WaitedMS is the time in milliseconds that the call waited for decisions on its
	// permission requests.
	WaitedMS int64 `json:"waited_ms,omitempty"`

	// AskedAt, StartedAt and SettledAt are the events of the three stages.
	AskedAt   Place `json:"asked_at,omitzero"`
	StartedAt Place `json:"started_at,omitzero"`
	SettledAt Place `json:"settled_at,omitzero"`
}

// Key returns the key of the call.
func (c Call) Key() Key { return Key{c.Session, c.Message, c.ID} }

// Registration returns the registration of the tool that the turn offered, or zero if
// it is unknown.
func (c Call) Registration() domain.RegistrationID { return c.Offered.Registration }

// A Session is one session with its counts. Opened and LastEvent are the times of its
// first and last event. A later change of the model or location fills the field only
// if the opening left it empty.
type Session struct {
	ID        domain.SessionID `json:"session"`
	Agent     domain.AgentID   `json:"agent,omitempty"`
	Location  string           `json:"location,omitempty"`
	Model     string           `json:"model,omitempty"`
	Origin    events.Origin    `json:"origin"`
	Parent    domain.SessionID `json:"parent,omitzero"`
	Opened    time.Time        `json:"opened"`
	LastEvent time.Time        `json:"last_event"`
	// Revision is the length of the session's stream.
	Revision events.Revision `json:"revision"`
	// Title is the first 256 bytes of the first prompt.
	Title string `json:"title,omitempty"`

	Prompts int `json:"prompts"`
	Replies int `json:"replies"`
	// Calls counts the calls that replies asked for. Open counts the calls among them
	// without a settlement, and Failed those whose outcome is not success.
	Calls  int `json:"calls"`
	Open   int `json:"open"`
	Failed int `json:"failed"`
	// Interrupted reports an interruption without a later prompt or turn.
	Interrupted bool `json:"interrupted,omitempty"`
	Closed      bool `json:"closed,omitempty"`
}

// Imported reports whether another program ran the session.
func (s Session) Imported() bool { return s.Origin.Kind == events.Imported }

// A Retention is a managed output, which is stored outside the log, that a settlement
// names, with the record of its removal if it was removed.
type Retention struct {
	domain.Retained
	Call       Key            `json:"of"`
	Settlement domain.EventID `json:"settlement"`
	Place      Place          `json:"place"`
	// Pruned reports that an event records the removal of the output. Policy is the
	// name of the retention policy that removed the output, and PrunedAt the time of
	// the removal.
	Pruned   bool      `json:"pruned,omitempty"`
	Policy   string    `json:"policy,omitempty"`
	PrunedAt time.Time `json:"pruned_at,omitzero"`
}
