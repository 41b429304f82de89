package conversation

import (
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A MessageRole is the author of a message that a model reads.
type MessageRole string

// The roles: User for a prompt, Assistant for a reply, ToolRole for the answer to a
// call.
const (
	User      MessageRole = "user"
	Assistant MessageRole = "assistant"
	ToolRole  MessageRole = "tool"
)

// OutcomeUnknown is the error text that answers a call without a settlement. The call
// may have had effects.
const OutcomeUnknown = "The outcome of this tool call is unknown."

// A ModelMessage is one message as a model reads it. A user message has Text and Media;
// that of a summary has no Message. An assistant message has Text, Calls and the Items of
// its provider. A tool message has a Call and the Reading, the result of that call.
type ModelMessage struct {
	Role    MessageRole
	Message domain.MessageID
	Text    string
	Media   domain.Contents
	Calls   []domain.Call
	Items   []events.ProviderItem
	Call    domain.Call
	Reading domain.ToolResult
}

// ModelMessages returns the session as a model reads it: each prompt, and each
// reply followed by an answer to each of its calls, in the order of the reply.
// It omits a repeated call ID within a reply. It answers a call without a
// settlement with [OutcomeUnknown]. A compaction leaves out messages at the beginning, in
// place of which a prompt has the summary, and the results of calls. It depends on the
// state alone.
func (s *State) ModelMessages() []ModelMessage {
	var shown []ModelMessage
	if preface := s.Compaction.preface(); preface != "" {
		shown = append(shown, ModelMessage{Role: User, Text: preface})
	}
	shortened := s.Compaction.shortened()
	for _, m := range s.Visible() {
		if m.Prompt != nil {
			shown = append(shown, ModelMessage{Role: User, Message: m.ID, Text: m.Prompt.Text, Media: m.Prompt.Media})
			continue
		}
		calls := distinct(m.Reply.Calls)
		reply := ModelMessage{Role: Assistant, Message: m.ID, Text: m.Reply.Text, Items: m.Reply.Items}
		for _, c := range calls {
			reply.Calls = append(reply.Calls, c.withInput())
		}
		shown = append(shown, reply)
		for _, c := range calls {
			reading := c.ToolResult()
			if size, ok := shortened[resultKey{m.ID, c.ID}]; ok {
				reading = shortResult(size)
			}
			shown = append(shown, ModelMessage{Role: ToolRole, Message: m.ID, Call: c.withInput(), Reading: reading})
		}
	}
	return shown
}

// ToolResult returns the result of the call as a model reads it, computed from the
// settlement alone. Without a settlement it is the error [OutcomeUnknown].
func (c ReplyCall) ToolResult() domain.ToolResult {
	if c.Settlement == nil {
		return domain.ToolResult{Error: OutcomeUnknown}
	}
	return c.Settlement.ToolResult()
}

// withInput returns the call as the model wrote it, with {} for an absent
// input.
func (c ReplyCall) withInput() domain.Call {
	asked := c.Call
	if len(asked.Input) == 0 {
		asked.Input = json.RawMessage("{}")
	}
	return asked
}

// distinct returns the first call of each ID, in order. A provider accepts one answer
// for each ID.
func distinct(calls []ReplyCall) []ReplyCall {
	var first []ReplyCall
	seen := map[domain.CallID]bool{}
	for _, c := range calls {
		if !seen[c.ID] {
			seen[c.ID] = true
			first = append(first, c)
		}
	}
	return first
}
