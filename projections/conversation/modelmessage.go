package conversation

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
)

// A Role says who speaks in what a model is shown.
type Role string

// The roles.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
)

// OutcomeUnknown is what a model reads of a call that began, or may have, and
// has no end on record.
const OutcomeUnknown = "The outcome of this tool call is unknown."

// A ModelMessage is one message as a model is shown it. Text is of a user or an
// assistant; Calls are an assistant's; Call and Reading are a tool's: which
// call it answers, and with what.
type ModelMessage struct {
	Role    Role
	Message domain.MessageID
	Text    string
	Calls   []domain.Call
	Call    domain.Call
	Reading domain.ToolResult
}

// ModelMessages returns what a model is shown of the session: each prompt; each reply,
// followed by an answer to each of its calls, in the order of the reply. Of a
// call under an ID that the same reply asked under before, nothing is shown. A
// call without a settlement is answered with [OutcomeUnknown]. It is a
// function of the state alone.
func (s *State) ModelMessages() []ModelMessage {
	var shown []ModelMessage
	for _, m := range s.Messages {
		if m.Prompt != nil {
			shown = append(shown, ModelMessage{Role: User, Message: m.ID, Text: m.Prompt.Text})
			continue
		}
		calls := distinct(m.Reply.Calls)
		reply := ModelMessage{Role: Assistant, Message: m.ID, Text: m.Reply.Text}
		for _, c := range calls {
			reply.Calls = append(reply.Calls, c.withInput())
		}
		shown = append(shown, reply)
		for _, c := range calls {
			shown = append(shown, ModelMessage{Role: ToolRole, Message: m.ID, Call: c.withInput(), Reading: c.ToolResult()})
		}
	}
	return shown
}

// Reading returns what a model reads of the call.
func (c Call) ToolResult() domain.ToolResult {
	if c.Settlement == nil {
		return domain.ToolResult{Error: OutcomeUnknown}
	}
	return c.Settlement.ToolResult()
}

// withInput returns the call as the model wrote it; no input is an empty object.
func (c Call) withInput() domain.Call {
	asked := c.Call
	if len(asked.Input) == 0 {
		asked.Input = json.RawMessage("{}")
	}
	return asked
}

// distinct leaves out the calls whose ID came before.
func distinct(calls []Call) []Call {
	var first []Call
	seen := map[domain.CallID]bool{}
	for _, c := range calls {
		if !seen[c.ID] {
			seen[c.ID] = true
			first = append(first, c)
		}
	}
	return first
}
