package calls

import (
	"unicode/utf8"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// Apply folds an event of the session's stream into the fields that depend on the
// session alone: all fields but ID, Opened, Replies, Calls, Open and Failed.
func (s *Session) Apply(v events.Envelope) {
	switch e := v.Event.(type) {
	case events.SessionOpened:
		s.Agent, s.Location, s.Model, s.Origin, s.Parent = e.Agent, e.Location, e.Model, e.Origin, e.Parent
	case events.PromptAdmitted:
		if s.Prompts == 0 {
			s.Title = cut(e.Text)
		}
		s.Prompts++
		s.Interrupted = false
	case events.TurnMaterialized:
		s.Interrupted = false
	case events.AgentSwitched:
		s.Agent = e.Agent
	case events.SessionInterrupted:
		s.Interrupted = true
	case events.SessionClosed:
		s.Closed = true
	case events.SettingChanged:
		s.set(e)
	case events.SessionSpawned:
		s.Parent = e.Parent
	}
	s.LastEvent, s.Revision = v.Time, v.Revision
}

// set fills a setting that the opening of the session left empty.
func (s *Session) set(e events.SettingChanged) {
	switch {
	case e.Setting == events.SettingModel && s.Model == "":
		s.Model = e.Value
	case e.Setting == events.SettingLocation && s.Location == "":
		s.Location = e.Value
	}
}

// NewCall returns a call of the session before its first event. The tool is the name in
// that event.
func (s *Session) NewCall(message domain.MessageID, id domain.CallID, tool string) Call {
	return Call{
		Session: s.ID, Message: message, ID: id, Tool: tool, Agent: s.Agent, Location: s.Location, Imported: s.Imported(),
	}
}

// Count adds n to a counter of the session: Open if the call c is not settled, Failed
// if it is settled without success. It does nothing for a successful call or one that
// no reply asks for. The caller passes -1 before it changes the stage of c and +1
// afterwards.
func (s *Session) Count(c *Call, n int) {
	switch {
	case c.Asked.IsZero():
	case c.State != Settled:
		s.Open += n
	case c.Settlement.Outcome != domain.Succeeded:
		s.Failed += n
	}
}

// Ask folds the event v, a reply or an addition that asks for the call, at a place of the
// log, and reports whether it is the first such event; a later one changes nothing. In an
// import the result may come before the reply, so the call may have ended.
func (c *Call) Ask(turn domain.TurnID, parent domain.CallID, asked domain.Call, v events.Envelope, at Place) bool {
	if !c.Asked.IsZero() {
		return false
	}
	c.Turn, c.Parent, c.Tool, c.Asked, c.AskedAt = turn, parent, asked.Name, v.Time, at
	if len(asked.Input) <= previewBytes {
		c.Input = asked.Input
	} else {
		c.InputPreview = cut(string(asked.Input))
	}
	if c.State == "" {
		c.State = Asked
	}
	return true
}

// Start folds the start of the call in the event v, at a place of the log, and reports
// whether it counts. It does not if the call has a start or a settlement.
func (c *Call) Start(e events.CallStarted, v events.Envelope, at Place) bool {
	if c.State == Settled || !c.Started.IsZero() {
		return false
	}
	c.State, c.Started, c.StartedAt, c.Process = Begun, v.Time, at, e.Process
	c.Offered, c.Title = e.Offered, cut(e.Title)
	return true
}

// Settle folds the settlement of the call in the event v, at a place of the log, and
// reports whether it counts: the first one does. The call keeps the parts of the event
// that lists of calls and the checks need, with Text and Detail cut.
func (c *Call) Settle(e events.CallSettled, v events.Envelope, at Place) bool {
	if c.State == Settled {
		return false
	}
	c.State, c.Settled, c.SettledAt, c.SettledBy = Settled, v.Time, at, v.ID
	c.Settlement, c.Preview = trimmed(e), preview(e)
	if !e.Offered.IsZero() {
		c.Offered = e.Offered
	}
	return true
}

// Shown returns the complete text that the model reads of a settlement, as far as the
// event has it. For a call that did not succeed, that is the error. Otherwise it is the
// first text of the content, or, if there is no content, the structured output. For
// content without text, Shown returns an empty string.
func Shown(e events.CallSettled) string {
	if e.Outcome != domain.Succeeded {
		return e.Text
	}
	for _, part := range e.Content {
		if text, ok := part.(domain.Text); ok {
			return string(text)
		}
	}
	if len(e.Content) == 0 {
		return string(e.Structured)
	}
	return ""
}

// trimmed returns a settlement event without its long fields, which remain in the
// stream, and with Text and Detail cut. It drops Lost, which only call show prints,
// from the event.
func trimmed(e events.CallSettled) events.CallSettled {
	e.Input, e.Structured, e.Content, e.Progress, e.Files = nil, nil, nil, nil, nil
	e.Text, e.Detail, e.Lost = cut(e.Text), cut(e.Detail), 0
	return e
}

// preview returns the beginning of the text that the model reads.
func preview(e events.CallSettled) string { return cut(Shown(e)) }

// cut returns the beginning of a text: whole runes, at most previewBytes bytes. A
// shortened text is a copy, so that the State does not keep the whole.
func cut(text string) string {
	if len(text) <= previewBytes {
		return text
	}
	end := previewBytes
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return string([]byte(text[:end]))
}
