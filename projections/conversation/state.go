package conversation

import (
	"encoding/json"
	"iter"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
)

// State is one session, as its stream records it. The caller must not change
// it.
type State struct {
	Session domain.SessionID `json:"session,omitzero"`
	// Agent is the agent of the next turn. Ancestors are the agents of the sessions
	// above this one, the root first.
	Agent     domain.AgentID   `json:"agent,omitempty"`
	Ancestors []domain.AgentID `json:"ancestors,omitempty"`
	Location  string           `json:"location,omitempty"`
	// Model is the model that the opening of the session names, or else the first
	// later setting.
	Model string `json:"model,omitempty"`
	// Parent is the session whose call ParentCall, in the reply ParentMessage, started
	// this one.
	Parent        domain.SessionID `json:"parent,omitzero"`
	ParentMessage domain.MessageID `json:"parent_message,omitzero"`
	ParentCall    domain.CallID    `json:"parent_call,omitempty"`
	Origin        events.Origin    `json:"origin"`
	// Forked is the place that the session continues, or nil. Its past is the beginning of
	// Messages only after [Inherit].
	Forked *events.SessionForked `json:"forked,omitempty"`
	// Revision is the revision of the last event folded, and Last its ID.
	Revision events.Revision `json:"revision"`
	Last     domain.EventID  `json:"last,omitzero"`
	// Messages are in the order in which a model reads them: a prompt that arrived
	// after a turn comes after the reply to that turn. Those that Forget dropped are
	// missing.
	Messages []Message `json:"messages"`
	// Forgotten counts the messages that Forget dropped from the beginning of Messages.
	Forgotten MessageCount `json:"forgotten,omitzero"`
	// Replies counts the replies of the session, forgotten ones too.
	Replies int `json:"replies,omitempty"`
	// LastPrompt is the last prompt, or nil before the first one.
	LastPrompt *Prompt `json:"last_prompt,omitempty"`
	// Offered has the tools of the last reply whose offer has tools.
	Offered []domain.Offered `json:"offered,omitempty"`

	// Turn is the last turn, merged from its events, or nil before the first turn.
	// TurnEvent is the last event that recorded it.
	Turn      *events.TurnMaterialized `json:"turn,omitempty"`
	TurnEvent domain.EventID           `json:"turn_event,omitzero"`
	// Replied reports that the last turn has a reply.
	Replied bool `json:"replied"`
	// Exceeded reports that the provider refused the request of the last turn as larger
	// than the context of the model, and that no compaction followed.
	Exceeded bool `json:"exceeded,omitempty"`
	// Compaction says what requests leave out, or is nil if they leave out nothing.
	Compaction *Compaction `json:"compaction,omitempty"`
	// Steps counts the replies to turns that included the last prompt.
	Steps int `json:"steps,omitempty"`
	// Unread counts the prompts since the last turn. They are the last of Messages.
	Unread int `json:"unread,omitempty"`

	// Asks are the undecided permission requests, in order.
	Asks []events.PermissionRequested `json:"asks,omitempty"`
	// Questions are the unanswered questions to a person, in order.
	Questions []events.QuestionAsked `json:"questions,omitempty"`
	// Todos is the list of tasks that the agent keeps.
	Todos []domain.Todo `json:"todos,omitempty"`
	// Files has the version of each file that the session read or changed last, by
	// path, as far as it is known.
	Files map[string]string `json:"files,omitempty"`
	// Texts and OlderTexts have the digests of the last texts on record, 1,024 at least.
	// HasText looks a digest up.
	Texts      map[string]bool `json:"texts,omitempty"`
	OlderTexts map[string]bool `json:"older_texts,omitempty"`

	// Interrupted is the last interruption, or nil if a prompt or turn followed it.
	Interrupted *events.SessionInterrupted `json:"interrupted,omitempty"`
	// Closed reports that the session was closed.
	Closed bool `json:"closed,omitempty"`
	// Unknown has each unknown kind of the stream once.
	Unknown []string `json:"unknown,omitempty"`

	// index is built by the first event that is folded. Before that it is nil, and
	// lookups search Messages.
	index *replyIndex
}

// A MessageCount counts prompts, replies and the calls of the replies.
type MessageCount struct {
	Prompts int64 `json:"prompts,omitempty"`
	Replies int64 `json:"replies,omitempty"`
	Calls   int64 `json:"calls,omitempty"`
}

// Add counts messages.
func (n *MessageCount) Add(messages []Message) {
	for _, m := range messages {
		if m.Prompt != nil {
			n.Prompts++
			continue
		}
		n.Replies++
		n.Calls += int64(len(m.Reply.Calls))
	}
}

// Messages returns the number of prompts and replies.
func (n MessageCount) Messages() int { return int(n.Prompts + n.Replies) }

// A Message is a prompt or a reply: exactly one of the two is set.
type Message struct {
	ID     domain.MessageID `json:"message"`
	Prompt *Prompt          `json:"prompt,omitempty"`
	Reply  *Reply           `json:"reply,omitempty"`
}

// A Prompt is a message of the user, with the attached images and files. Event is the
// event that admitted it.
type Prompt struct {
	Text  string          `json:"text"`
	Media domain.Contents `json:"media,omitempty"`
	Event domain.EventID  `json:"event"`
}

// A Reply is a message of the model. Several events can record parts of it. Reply
// joins their texts without a separator, appends their calls, adds up their tokens
// and merges the offers of their turns. Model and Finish are the last ones recorded.
type Reply struct {
	// Event is the first event of the reply.
	Event domain.EventID `json:"event"`
	Text  string         `json:"text,omitempty"`
	// Agent is the agent of the turn that the reply answers.
	Agent domain.AgentID `json:"agent,omitempty"`
	// Calls are in the order in which the model asked for them.
	Calls []ReplyCall `json:"calls,omitempty"`
	// Added are the calls that running calls of the reply made of their own, in order.
	// The model did not ask for them, and no request to a model contains them.
	Added []ReplyCall `json:"added,omitempty"`
	// Offer is the offer of the turn that the reply answers.
	Offer  domain.Offer `json:"offer"`
	Finish string       `json:"finish,omitempty"`
	// Compacted is the compaction of the request that the reply answers. Zero: the request
	// left out nothing.
	Compacted domain.EventID `json:"compacted,omitzero"`
	// Items are the opaque parts that requests give back to the provider.
	Items  []events.ProviderItem `json:"items,omitempty"`
	Tokens events.Tokens         `json:"tokens,omitzero"`
	Model  string                `json:"model,omitempty"`
}

// A ReplyCall is one call of a reply, with its progress and outcome. Message and ID
// together identify it in its session. If a reply has two calls with one ID, both are
// in the list, and share one start and one settlement.
type ReplyCall struct {
	domain.Call
	Message domain.MessageID
	// Parent is the call that made this one, and AddedBy the event that added it. Empty:
	// the model asked for it.
	Parent  domain.CallID
	AddedBy domain.EventID
	// Started is the first start of the call, or nil if the stream has none;
	// StartedBy is its event.
	Started   *events.CallStarted
	StartedBy domain.EventID
	// Settlement is the recorded end, or nil before it.
	Settlement *domain.Settlement
	// Late counts the late results, which came after the settlement.
	Late int
}

// replyCallJSON is the JSON of a ReplyCall. It holds a settlement as its event, and
// keeps an absent input absent.
type replyCallJSON struct {
	ID        domain.CallID       `json:"call"`
	Name      string              `json:"tool"`
	Input     json.RawMessage     `json:"input,omitempty"`
	Message   domain.MessageID    `json:"message"`
	Parent    domain.CallID       `json:"parent,omitempty"`
	AddedBy   domain.EventID      `json:"added_by,omitzero"`
	Started   *events.CallStarted `json:"started,omitempty"`
	StartedBy domain.EventID      `json:"started_by,omitzero"`
	Settled   *events.CallSettled `json:"settled,omitempty"`
	SettledBy domain.EventID      `json:"settled_by,omitzero"`
	Late      int                 `json:"late,omitempty"`
}

// MarshalJSON encodes c for a checkpoint. The form is private to this package.
func (c ReplyCall) MarshalJSON() ([]byte, error) {
	wire := replyCallJSON{
		ID: c.ID, Name: c.Name, Input: c.Input, Message: c.Message, Parent: c.Parent, AddedBy: c.AddedBy,
		Started: c.Started, StartedBy: c.StartedBy, Late: c.Late,
	}
	if c.Settlement != nil {
		settled := events.Settled(domain.TurnID{}, c.Message, c.Call, *c.Settlement)
		wire.Settled, wire.SettledBy = &settled, c.Settlement.ID
	}
	return projections.Encode(wire)
}

// UnmarshalJSON is the inverse of MarshalJSON. It leaves c unchanged after an error.
func (c *ReplyCall) UnmarshalJSON(data []byte) error {
	var wire replyCallJSON
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*c = ReplyCall{
		Call:    domain.Call{ID: wire.ID, Name: wire.Name, Input: wire.Input},
		Message: wire.Message, Parent: wire.Parent, AddedBy: wire.AddedBy,
		Started: wire.Started, StartedBy: wire.StartedBy, Late: wire.Late,
	}
	if wire.Settled != nil {
		settlement := wire.Settled.Settlement(wire.SettledBy)
		c.Settlement = &settlement
	}
	return nil
}

// Call returns the first call with this ID in a reply, among those of the model and the
// added ones, and whether the reply has one. The state owns the call; the caller must
// not change it.
func (s *State) Call(message domain.MessageID, id domain.CallID) (*ReplyCall, bool) {
	reply, ok := s.Reply(message)
	if !ok {
		return nil, false
	}
	for c := range reply.All() {
		if c.ID == id {
			return c, true
		}
	}
	return nil, false
}

// Open returns the calls without a settlement, added ones too, in the order of the
// messages. The state owns these calls; the caller must not change them.
func (s *State) Open() []*ReplyCall {
	var open []*ReplyCall
	for _, m := range s.OpenReplies() {
		for c := range m.Reply.All() {
			if c.Settlement == nil {
				open = append(open, c)
			}
		}
	}
	return open
}

// All yields the calls of the model and then the added calls, each in order. The state
// owns the calls. A nil reply has no calls.
func (r *Reply) All() iter.Seq[*ReplyCall] {
	return func(yield func(*ReplyCall) bool) {
		if r == nil {
			return
		}
		for _, calls := range [][]ReplyCall{r.Calls, r.Added} {
			for i := range calls {
				if !yield(&calls[i]) {
					return
				}
			}
		}
	}
}
