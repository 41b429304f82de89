package conversation

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// State is one session, as its stream records it. The caller must not change
// it.
type State struct {
	Session  domain.SessionID `json:"session,omitzero"`
	Agent    domain.AgentID   `json:"agent,omitempty"`
	Location string           `json:"location,omitempty"`
	Model    string           `json:"model,omitempty"` // that the session was opened with
	Parent   domain.SessionID `json:"parent,omitzero"`
	Origin   events.Origin    `json:"origin"`
	Revision events.Revision  `json:"revision"`      // the length of the stream as folded
	Last     domain.EventID   `json:"last,omitzero"` // the last event folded
	Messages []Message        `json:"messages"`      // as a model reads them: a prompt that came after a turn follows the reply to that turn

	Turn      *events.TurnMaterialized `json:"turn,omitempty"`      // the last one; nil where none
	TurnEvent domain.EventID           `json:"turn_event,omitzero"` // that records Turn
	Replied   bool                     `json:"replied"`             // the last turn has a reply
	Steps     int                      `json:"steps,omitempty"`     // replies to turns that showed the last prompt
	Unread    int                      `json:"unread,omitempty"`    // prompts since the last turn, the last of Messages

	Asks      []events.PermissionRequested `json:"asks,omitempty"`      // not decided, in order
	Approvals []events.ApprovalSaved       `json:"approvals,omitempty"` // not revoked, in order; some may have expired
	Loops     []events.LoopDetected        `json:"loops,omitempty"`     // since the last prompt

	Interrupted *events.SessionInterrupted `json:"interrupted,omitempty"` // nil where a prompt or a turn came after it
	Closed      bool                       `json:"closed,omitempty"`      //
	Unknown     []string                   `json:"unknown,omitempty"`     // the kinds that are not known, each once
}

// A Message is a prompt or a reply: exactly one of the two is set.
type Message struct {
	ID     domain.MessageID `json:"message"`
	Prompt *Prompt          `json:"prompt,omitempty"`
	Reply  *Reply           `json:"reply,omitempty"`
}

// A Prompt is a message of the user.
type Prompt struct {
	Text  string         `json:"text"`
	Event domain.EventID `json:"event"`
}

// A Reply is a message of the model. It merges the events that record parts of
// it: texts are joined without a separator, calls appended, tokens added up,
// and the offers of their turns merged; the last model and finish count.
type Reply struct {
	Event  domain.EventID `json:"event"` // the first that records it
	Text   string         `json:"text,omitempty"`
	Calls  []Call         `json:"calls,omitempty"` // as asked, in order
	Offer  domain.Offer   `json:"offer"`           // of the turn that it answers
	Finish string         `json:"finish,omitempty"`
	Tokens events.Tokens  `json:"tokens,omitzero"`
	Model  string         `json:"model,omitempty"`
}

// A Call is one call of a reply, with its progress and outcome. Message and ID
// together identify it in its session. Two calls of one reply with the same ID
// are both here, and share one start and one settlement.
type Call struct {
	domain.Call
	Message    domain.MessageID
	Started    *events.CallStarted // nil: no start is on record
	StartedBy  domain.EventID
	Settlement *domain.Settlement // nil: it has not ended
	Late       int                // results that came after the end
}

// callWire is the JSON of a Call. It holds a settlement as its event, and
// keeps an absent input absent.
type callWire struct {
	ID        domain.CallID       `json:"call"`
	Name      string              `json:"tool"`
	Input     json.RawMessage     `json:"input,omitempty"`
	Message   domain.MessageID    `json:"message"`
	Started   *events.CallStarted `json:"started,omitempty"`
	StartedBy domain.EventID      `json:"started_by,omitzero"`
	Settled   *events.CallSettled `json:"settled,omitempty"`
	SettledBy domain.EventID      `json:"settled_by,omitzero"`
	Late      int                 `json:"late,omitempty"`
}

// MarshalJSON encodes c for a checkpoint.
func (c Call) MarshalJSON() ([]byte, error) {
	wire := callWire{
		ID: c.ID, Name: c.Name, Input: c.Input, Message: c.Message, Started: c.Started, StartedBy: c.StartedBy, Late: c.Late,
	}
	if c.Settlement != nil {
		settled := events.Settled(domain.TurnID{}, c.Message, c.Call, *c.Settlement)
		wire.Settled, wire.SettledBy = &settled, c.Settlement.ID
	}
	return projections.Encode(wire)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (c *Call) UnmarshalJSON(data []byte) error {
	var wire callWire
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*c = Call{
		Call:    domain.Call{ID: wire.ID, Name: wire.Name, Input: wire.Input},
		Message: wire.Message, Started: wire.Started, StartedBy: wire.StartedBy, Late: wire.Late,
	}
	if wire.Settled != nil {
		settlement := wire.Settled.Settlement(wire.SettledBy)
		c.Settlement = &settlement
	}
	return nil
}

// Call returns the first call of a reply with an ID, and whether there is one.
// The state owns it.
func (s *State) Call(message domain.MessageID, id domain.CallID) (*Call, bool) {
	reply, ok := s.reply(message)
	if !ok {
		return nil, false
	}
	for i := range reply.Calls {
		if reply.Calls[i].ID == id {
			return &reply.Calls[i], true
		}
	}
	return nil, false
}

// Open returns the calls without a settlement, in order. The state owns them.
func (s *State) Open() []*Call {
	var open []*Call
	for _, m := range s.Messages {
		for i := range m.calls() {
			if c := &m.Reply.Calls[i]; c.Settlement == nil {
				open = append(open, c)
			}
		}
	}
	return open
}

func (m Message) calls() []Call {
	if m.Reply == nil {
		return nil
	}
	return m.Reply.Calls
}

// reply returns the reply of a message. It searches from the end, where most
// calls belong.
func (s *State) reply(id domain.MessageID) (*Reply, bool) {
	for i := len(s.Messages) - 1; i >= 0; i-- {
		if s.Messages[i].ID == id && s.Messages[i].Reply != nil {
			return s.Messages[i].Reply, true
		}
	}
	return nil, false
}
