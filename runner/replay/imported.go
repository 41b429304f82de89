package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
)

// asRun returns the events of an imported session as a runner would have recorded it. A
// transcript has the messages and the results of the calls; the order of the events in it
// is that of another program. asRun takes the conversation of the session: each reply is a
// turn, whose calls start, then end, those that were interrupted last. The registrations
// come first, because the transcript does not have the moment of any.
//
// A runner asks no model behind a reply without calls until there is a prompt. So a reply
// that follows such a reply is part of it, and a session that begins with a reply gets an
// empty prompt. The notes say so.
func asRun(recorded []events.Envelope) (run []events.Envelope, notes []Incomparable) {
	projection := conversation.Projection()
	state := projection.Init()
	for _, v := range recorded {
		state = projection.Apply(state, v)
		switch v.Event.(type) {
		case events.LayerOpened, events.ToolsRegistered:
			run = append(run, v)
		}
	}
	for _, v := range recorded {
		if _, ok := v.Event.(events.SessionOpened); ok {
			run = append(run, v)
			break
		}
	}
	stream := events.SessionStream(state.Session)
	add := func(id domain.EventID, e events.Event) {
		run = append(run, events.Envelope{ID: id, Stream: stream, Revision: events.Revision(len(run) + 1), Event: e})
	}
	if len(state.Messages) > 0 && state.Messages[0].Prompt == nil {
		add(domain.EventID{}, events.PromptAdmitted{Message: domain.MessageID(state.Session)})
		notes = append(notes, Incomparable{"prompt 1", "the transcript begins with a reply: an empty prompt was put before it"})
	}
	joined := 0
	for i := 0; i < len(state.Messages); i++ {
		m := state.Messages[i]
		if m.Prompt != nil {
			add(m.Prompt.Event, events.PromptAdmitted{Message: m.ID, Text: m.Prompt.Text, Media: m.Prompt.Media})
			continue
		}
		reply := *m.Reply
		for ; len(reply.Calls) == 0 && i+1 < len(state.Messages) && state.Messages[i+1].Reply != nil; i++ {
			joined++
			next := state.Messages[i+1].Reply
			reply.Text += next.Text
			reply.Calls, reply.Offer = next.Calls, next.Offer
			reply.Model, reply.Finish = cmp.Or(next.Model, reply.Model), next.Finish
		}
		addImportedReply(add, m.ID, reply, state.Agent)
	}
	if joined > 0 {
		notes = append(notes, Incomparable{"replies", fmt.Sprintf("replies that follow a reply without calls are part of it: %d", joined)})
	}
	return run, notes
}

// addImportedReply adds the events of a turn with its calls.
func addImportedReply(add func(domain.EventID, events.Event), message domain.MessageID, reply conversation.Reply, agent domain.AgentID) {
	turn := events.TurnMaterialized{
		Turn: domain.TurnID(message), Message: message, Agent: agent, Model: reply.Model, Tools: reply.Offer.Tools, Observed: true,
	}
	received := events.ReplyReceived{
		Turn: turn.Turn, Message: message, Text: reply.Text, Model: reply.Model, Tokens: reply.Tokens, Finish: reply.Finish, Items: reply.Items,
	}
	var calls []conversation.ReplyCall
	for _, c := range reply.Calls {
		same := func(other conversation.ReplyCall) bool { return other.ID == c.ID }
		if c.ID == "" || slices.ContainsFunc(calls, same) {
			continue
		}
		calls = append(calls, c)
		if len(c.Input) == 0 {
			c.Call.Input = []byte("{}")
		}
		received.Calls = append(received.Calls, c.Call)
		if c.Settlement != nil && c.Settlement.Outcome == domain.UnknownTool {
			turn.Hidden = append(turn.Hidden, unknownTool(c.Name))
		}
	}
	add(domain.EventID{}, turn)
	add(reply.Event, received)
	for _, c := range calls {
		if end := importedEnd(c); runs(end) {
			add(c.StartedBy, events.CallStarted{Turn: turn.Turn, Message: message, Call: c.ID, Tool: c.Name})
		}
	}
	interrupted := func(c conversation.ReplyCall) int {
		if importedEnd(c).Outcome == domain.Interrupted {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(calls, func(a, b conversation.ReplyCall) int { return interrupted(a) - interrupted(b) })
	for _, c := range calls {
		end := importedEnd(c)
		add(end.ID, events.Settled(turn.Turn, message, c.Call, end))
	}
}

// unknownTool returns a tool that the turn did not offer.
func unknownTool(name string) events.HiddenTool {
	return events.HiddenTool{
		Offered: domain.Offered{Name: domain.Name(name)},
		Unmet:   []domain.UnmetCondition{{Kind: "agent", Wanted: "agents that list " + name}},
	}
}

// importedEnd returns the end of a call. A call without an end failed with the text that the
// model reads then.
func importedEnd(c conversation.ReplyCall) domain.Settlement {
	if c.Settlement == nil {
		return domain.Settlement{Outcome: domain.Failed, Text: conversation.OutcomeUnknown, Began: true}
	}
	return *c.Settlement
}

// runs reports whether the tool of a call runs in the replay.
func runs(end domain.Settlement) bool {
	switch end.Outcome {
	case domain.UnknownTool, domain.InvalidInput, domain.Stale, domain.Disabled:
		return false
	case domain.Interrupted:
		return end.Began
	}
	return true
}
