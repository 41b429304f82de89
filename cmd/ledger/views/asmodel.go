package views

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A modelView is the JSON result of `ledger session show --as-model` but its messages: what
// the model was shown in one request, or is shown in the next one.
type modelView struct {
	Session  domain.SessionID `json:"session"`
	Turn     *domain.TurnID   `json:"turn"` // of the request; null: the messages are those of the next request
	Revision events.Revision  `json:"revision"`
	// System, Schemas, Parameters and Instruction are the texts that the turn, or else the
	// last turn, names; null: not recorded. The instruction is behind the messages.
	System      *recordedText `json:"system"`
	Parameters  *recordedText `json:"parameters"`
	Schemas     *recordedText `json:"schemas"`
	Instruction *recordedText `json:"instruction"`
	// Summarizes is the last message, if the request asked for a summary up to it.
	Summarizes *domain.MessageID `json:"summarizes"`
	// Unknown are the kinds of events of the session that this program does not know. They
	// may have had an effect on the messages that is not shown.
	Unknown []string `json:"unknown"`
}

// A recordedText is a text that a session records by its digest.
type recordedText struct {
	Digest string  `json:"digest"`
	Text   *string `json:"text"` // null: the session does not record it
}

// A modelMessage is one message as the model read it.
type modelMessage struct {
	Role    conversation.MessageRole `json:"role"`
	Message *domain.MessageID        `json:"message"` // null: a summary in place of messages
	Text    *string                  `json:"text"`
	Media   domain.Contents          `json:"media"`
	Calls   []domain.Call            `json:"calls"`  // of a reply
	Items   []events.ProviderItem    `json:"items"`  // of a reply: opaque parts for its provider
	Call    *domain.CallID           `json:"call"`   // that a result answers
	Tool    *string                  `json:"tool"`   // of that call
	Result  *modelResult             `json:"result"` // null: not a result
}

// newModelMessage returns the JSON of a message.
func newModelMessage(m conversation.ModelMessage) modelMessage {
	row := modelMessage{
		Role: m.Role, Message: render.OrNull(m.Message), Text: render.OrNull(m.Text), Media: append(domain.Contents{}, m.Media...),
		Calls: append([]domain.Call{}, m.Calls...), Items: append([]events.ProviderItem{}, m.Items...),
	}
	if m.Role == conversation.ToolRole {
		r := m.Reading
		row.Call, row.Tool = render.OrNull(m.Call.ID), render.OrNull(m.Call.Name)
		row.Result = &modelResult{r.Type(), render.OrNull(r.Error), render.OrNull(r.Text), r.Content, r.Structured}
		if row.Result.Type == "text" && row.Result.Text == nil {
			row.Result.Text = new(string)
		}
	}
	return row
}

// showAsModel prints the messages of the session as a model reads them: in the request of a
// turn, or, with an empty turn, those of the next request at the end of session.
func showAsModel(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, session calls.Session, turn string) error {
	view := modelView{Session: session.ID, Revision: session.Revision}
	if turn != "" {
		t, err := query.Turn(r, turn)
		switch {
		case err != nil:
			return err
		case t.Session != session.ID:
			return fault.NotFound("ledger session show "+t.Session.String()+" --as-model --turn "+t.Turn.String(), "turn %s is of session %s, not of %s", t.Turn, t.Session, session.ID)
		}
		view.Turn, view.Revision = &t.Turn, t.Revision
	}
	state, request, err := conversationAt(ctx, s, session.ID, view.Revision)
	if err != nil {
		return err
	}
	view.Unknown = append([]string{}, state.Unknown...)
	messages := state.ModelMessages()
	if request != nil && view.Turn != nil && !request.Summarizes.IsZero() {
		view.Summarizes = &request.Summarizes
		messages = upTo(messages, request.Summarizes)
	}
	if request != nil {
		texts := textReader{ctx, s, r, session.ID}
		for _, part := range []struct {
			to     **recordedText
			digest string
		}{{&view.System, request.System}, {&view.Parameters, request.Parameters}, {&view.Schemas, request.Schemas}, {&view.Instruction, request.Instruction}} {
			if part.to == &view.Instruction && view.Turn == nil {
				continue // it belongs to one request
			}
			if part.digest == "" {
				continue
			}
			text, ok, err := texts.read(part.digest)
			if err != nil {
				return err
			}
			*part.to = &recordedText{Digest: part.digest}
			if ok {
				(*part.to).Text = &text
			}
		}
	}
	if out.Format != render.AsTable {
		return render.ObjectWithList(out, view, "messages", modelRows(messages))
	}
	printAsModel(out, view, messages)
	return nil
}

// modelRows yields the JSON of messages.
func modelRows(messages []conversation.ModelMessage) iter.Seq2[modelMessage, error] {
	return func(yield func(modelMessage, error) bool) {
		for _, m := range messages {
			if !yield(newModelMessage(m), nil) {
				return
			}
		}
	}
}

// forgetting is the number of events after which conversationAt drops the messages that
// requests leave out.
const forgetting = 1024

// conversationAt folds a session up to a revision. It also returns the last turn, one that
// asks for a summary too. Messages that a compaction left out are dropped on the way.
func conversationAt(ctx context.Context, s *stores.Store, session domain.SessionID, until events.Revision) (*conversation.State, *events.TurnMaterialized, error) {
	p := conversation.Projection()
	state := p.Init()
	var request *events.TurnMaterialized
	if until == 0 {
		return state, nil, nil
	}
	for v, err := range s.Ledger.Read(ctx, events.SessionStream(session), 0) {
		if err != nil {
			return nil, nil, err
		}
		state = p.Apply(state, v)
		if e, ok := v.Event.(events.TurnMaterialized); ok {
			request = &e
		}
		if v.Revision%forgetting == 0 {
			state.Forget()
		}
		if v.Revision >= until {
			break
		}
	}
	return state, request, nil
}

// upTo returns the messages up to the last one of a prompt or a reply.
func upTo(messages []conversation.ModelMessage, last domain.MessageID) []conversation.ModelMessage {
	for i := len(messages); i > 0; i-- {
		if messages[i-1].Message == last {
			return messages[:i]
		}
	}
	return messages
}

// printAsModel prints the messages for a person.
func printAsModel(out *render.Printer, view modelView, messages []conversation.ModelMessage) {
	digest := func(t *recordedText) string {
		if t == nil {
			return ""
		}
		return "sha256 " + render.Printable(t.Digest)
	}
	out.Fields(
		"session", view.Session.String(), "request of turn", render.StringOf(view.Turn), "at revision", fmt.Sprint(view.Revision), "messages", fmt.Sprint(len(messages)),
		"system prompt", digest(view.System), "parameters", digest(view.Parameters), "schemas", digest(view.Schemas), "instruction", digest(view.Instruction),
		"asks for a summary up to", render.StringOf(view.Summarizes), "not known to this program", render.Printable(strings.Join(view.Unknown, ", ")),
	)
	text := func(title string, t *recordedText) {
		if t != nil && t.Text != nil {
			body := *t.Text
			if json.Valid([]byte(body)) {
				body = render.Indented(json.RawMessage(body))
			}
			printSection(out, title, body)
		}
	}
	text("system", view.System)
	text("tools as sent", view.Schemas)
	for _, m := range messages {
		switch m.Role {
		case conversation.ToolRole:
			row := newModelMessage(m)
			out.Line("\n%s %s", out.Styled(render.Bold, fmt.Sprintf("tool %s", render.OneLine(m.Call.Name, 60))), render.Printable(string(m.Call.ID)))
			if row.Result.Error != nil {
				out.Line("  %s", out.Styled(render.Red, "error"))
			}
			if body := render.Printable(modelResultText(out, row.Result)); body != "" {
				out.Line("  %s", indented(body))
			}
		default:
			out.Line("\n%s", out.Styled(render.Bold, string(m.Role)))
			if m.Text != "" {
				out.Line("  %s", indented(render.Printable(m.Text)))
			}
			if len(m.Media) > 0 {
				out.Line("  %s", indented(render.Printable(contentText(m.Media))))
			}
			for _, c := range m.Calls {
				out.Line("  → %s %s %s", render.OneLine(c.Name, 60), render.Printable(string(c.ID)), indented(render.Printable(string(c.Input))))
			}
		}
	}
	text("instruction behind the messages", view.Instruction)
}
