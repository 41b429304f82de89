package views

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// summary returns the content of an event on one line of at most 120 characters.
func summary(e events.Event) string { return render.OneLine(Describe(e), 120) }

// Describe returns the content of any event as text, which may have several lines and is not
// made printable. It calls describeSessionEvent for the events of a session.
func Describe(e events.Event) string {
	switch e := e.(type) {
	case events.ProcessStarted:
		return fmt.Sprintf("%s %s, process %d on %s", e.Program, e.Version, e.PID, e.Host)
	case events.LeaseRenewed:
		return "lives until " + e.Until.UTC().Format("15:04:05") + " at least"
	case events.ProcessStopped:
		return e.Reason
	case events.LayerOpened:
		return describeLayer(e)
	case events.ToolsRegistered:
		return describeTools(e)
	case events.RegistrationClosed:
		return render.ShortID(e.Registration) + " " + e.Reason
	case events.LayerClosed:
		return e.Reason
	case events.OutputPruned:
		return fmt.Sprintf("%s, %s, by %s", e.Retained.Ref, render.Bytes(e.Retained.Bytes), e.Policy)
	case events.Unknown:
		return fmt.Sprintf("not known to this program, version %d, %s", e.Version, render.Bytes(int64(len(e.Data))))
	}
	return describeSessionEvent(e)
}

// describeSessionEvent returns the content of an event of a session.
func describeSessionEvent(e events.Event) string {
	switch e := e.(type) {
	case events.SessionOpened:
		return fmt.Sprintf("%s in %s, %s", e.Agent, e.Location, originText(e.Origin))
	case events.SessionForked:
		return strings.TrimSpace(fmt.Sprintf("from %s behind %s %s, event %d", render.ShortID(e.Parent), render.ShortID(e.Turn), e.Call, e.Revision))
	case events.PromptAdmitted:
		return e.Text
	case events.TurnMaterialized:
		return describeTurn(e)
	case events.ReplyReceived:
		return describeReply(e)
	case events.ReplyRefused:
		return describeRefusal(e)
	case events.PermissionRequested:
		return e.Action + " " + strings.Join(e.Resources, ", ")
	case events.PermissionDecided:
		return describeDecision(e)
	case events.QuestionAsked:
		return describeQuestions(e)
	case events.QuestionAnswered:
		return describeAnswers(e)
	case events.ApprovalSaved:
		return e.Action + " " + e.Resource
	case events.ApprovalRevoked:
		return e.Action + " " + e.Resource + " " + e.Reason
	case events.SessionInterrupted:
		return strings.TrimSpace(e.Reason.String() + " " + e.Detail)
	case events.SessionClosed:
		return e.Reason
	}
	if text := describeContextEvent(e); text != "" {
		return text
	}
	return describeCallEvent(e)
}

// describeContextEvent returns the content of an event about the surroundings of calls
// (settings, context, commands), and "" for any other kind.
func describeContextEvent(e events.Event) string {
	var parts []string
	switch e := e.(type) {
	case events.SettingChanged:
		parts = []string{e.Setting, e.Value}
	case events.AgentSwitched:
		parts = []string{string(e.Previous), "to", string(e.Agent)}
	case events.TextRecorded:
		parts = []string{e.Digest[:min(12, len(e.Digest))], e.Text}
	case events.TodosReplaced:
		parts = []string{render.Count(len(e.Todos), "task")}
	case events.SessionSpawned:
		parts = []string{render.ShortID(e.Parent), render.ShortCallID(e.Call)}
	case events.ContextAdded:
		if parts = []string{e.Source, e.Text}; e.Bytes > 0 {
			parts = []string{e.Source, "(" + render.Bytes(e.Bytes) + ")", e.Text}
		}
	case events.ContextCompacted:
		return describeCompaction(e)
	case events.CommandRan:
		parts = []string{e.By, e.Name, e.Command, e.Outcome, e.Output}
	case events.ProviderFailed:
		parts = []string{e.Provider, e.Model, e.Failure}
		if e.Status > 0 {
			parts = append(parts, fmt.Sprint(e.Status))
		}
		if e.Attempt > 0 && e.Provider != "" {
			parts = append(parts, fmt.Sprintf("attempt %d", e.Attempt))
		}
		parts = append(parts, e.Detail)
	}
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}

// describeCompaction returns the cause of a compaction, the sizes, what later requests
// leave out, and the summary.
func describeCompaction(e events.ContextCompacted) string {
	parts := []string{e.Trigger}
	if e.Before > 0 {
		parts = append(parts, fmt.Sprintf("from %d tokens", e.Before))
	}
	if e.After > 0 {
		parts = append(parts, fmt.Sprintf("to %d tokens", e.After))
	}
	text := strings.Join(parts, " ")
	var out []string
	for _, c := range []struct {
		n    int
		what string
	}{{int(e.Prompts), "prompt"}, {int(e.Replies), "reply"}, {int(e.Calls), "call"}, {len(e.Shortened), "result"}} {
		if c.n > 0 {
			out = append(out, render.Count(c.n, c.what))
		}
	}
	if len(out) > 0 {
		text += ", leaves out " + strings.Join(out, ", ")
	}
	if e.Detail != "" {
		text += ", summary by the program: " + e.Detail
	}
	if e.Summary != "" {
		text += ": " + e.Summary
	}
	return strings.Join(strings.Fields(text), " ")
}

// describeCallEvent returns the content of an event about a call, and "" for any other
// kind.
func describeCallEvent(e events.Event) string {
	switch e := e.(type) {
	case events.CallsAdded:
		return fmt.Sprintf("%s by %s", render.Count(len(e.Calls), "call"), render.ShortCallID(e.Parent))
	case events.CallStarted:
		return strings.TrimSpace(e.Tool + " " + render.ShortCallID(e.Call) + " " + e.Title)
	case events.CallSettled:
		return fmt.Sprintf("%s %s %s %s", e.Outcome, e.Tool, render.ShortCallID(e.Call), resultText(e))
	case events.LateResultObserved:
		return fmt.Sprintf("%s %s %s, after %s", e.Outcome, e.Tool, render.ShortCallID(e.Call), render.ShortID(e.Settlement))
	case events.LoopDetected:
		return fmt.Sprintf("%s %s: %d calls %d times", e.Tool, render.ShortCallID(e.Call), e.Period, e.Rounds)
	}
	return ""
}

// resultText returns the result of a call in the form that the model reads.
func resultText(e events.CallSettled) string {
	r := e.Settlement(domain.EventID{}).ToolResult()
	switch {
	case r.Error != "":
		return r.Error
	case r.Text != "":
		return r.Text
	case r.Structured != nil:
		return string(r.Structured)
	}
	return r.Content.Text()
}

// describeLayer returns the placement of an opened layer, its location or session, and
// whether an import inferred the layer.
func describeLayer(e events.LayerOpened) string {
	text := e.Placement.String()
	if e.Location != "" {
		text += " " + e.Location
	}
	if !e.Session.IsZero() {
		text += " " + render.ShortID(e.Session)
	}
	if e.Observed {
		text += ", observed"
	}
	return text
}

// describeTools returns the names of the registered tools. If tools were refused, it
// adds their number and the reason for the first refusal.
func describeTools(e events.ToolsRegistered) string {
	names := make([]string, len(e.Tools))
	for i, t := range e.Tools {
		names[i] = string(t.Name)
	}
	text := strings.Join(names, ", ")
	if len(e.Refused) > 0 {
		text += fmt.Sprintf(" (%d refused: %s)", len(e.Refused), e.Refused[0].Reason)
	}
	return strings.TrimSpace(text)
}

// describeTurn returns the number and the names of the tools that a turn offered.
func describeTurn(e events.TurnMaterialized) string {
	names := make([]string, len(e.Tools))
	for i, t := range e.Tools {
		names[i] = string(t.Name)
	}
	text := render.Count(len(e.Tools), "tool")
	switch {
	case !e.Summarizes.IsZero():
		text = "asks for a summary of the messages up to " + render.ShortID(e.Summarizes)
	case e.Disabled:
		text = "no tools: the last step allowed"
	case e.Observed:
		text = "observed " + text
	}
	if len(e.Hidden) > 0 {
		text += fmt.Sprintf(", %d hidden", len(e.Hidden))
	}
	if len(names) > 0 {
		text += ": " + strings.Join(names, ", ")
	}
	return text
}

// describeReply returns the text of a reply, and the name and the input of each call.
func describeReply(e events.ReplyReceived) string {
	parts := []string{replyBody(e)}
	for _, c := range e.Calls {
		parts = append(parts, "["+render.OneLine(c.Name, 30)+" "+render.OneLine(MainField(c.Input), 40)+"]")
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// replyText returns the text of a reply and the number of its calls, for a
// timeline that shows each call in its own row.
func replyText(e events.ReplyReceived) string {
	text := replyBody(e)
	if len(e.Calls) > 0 {
		text += " [" + render.Count(len(e.Calls), "call") + "]"
	}
	return render.OneLine(text, 120)
}

// replyBody returns the text of a reply. A reply with neither text nor calls
// yields the model's thinking.
func replyBody(e events.ReplyReceived) string {
	if e.Text == "" && e.Thinking != "" && len(e.Calls) == 0 {
		return "(thinking) " + e.Thinking
	}
	return e.Text
}

// describeRefusal returns the reason for which a reply was refused, its text and its
// calls.
func describeRefusal(e events.ReplyRefused) string {
	parts := []string{e.Reason + ";"}
	if e.Text != "" {
		parts = append(parts, e.Text)
	}
	for _, c := range e.Calls {
		parts = append(parts, fmt.Sprintf("[%s %q %s]", c.Name, c.ID, MainField(c.Input)))
	}
	return strings.Join(parts, " ")
}

// describeDecision returns the effect of a permission decision, the authority that
// decided, the source of the rule, and the feedback of the person.
func describeDecision(e events.PermissionDecided) string {
	text := fmt.Sprintf("%s %s by %s", e.Effect, e.Scope, e.By)
	if e.Rule.Source != "" {
		text += " " + e.Rule.Source
	}
	if e.Feedback != "" {
		text += ": " + e.Feedback
	}
	return text
}

// describeQuestions returns the texts of questions.
func describeQuestions(e events.QuestionAsked) string {
	texts := make([]string, len(e.Questions))
	for i, q := range e.Questions {
		texts[i] = q.Question
	}
	return strings.Join(texts, " ")
}

// describeAnswers returns the answers to questions, or the authority that dismissed them and
// the feedback of the person.
func describeAnswers(e events.QuestionAnswered) string {
	if e.Dismissed {
		return strings.TrimSuffix(fmt.Sprintf("dismissed by %s: %s", e.By, e.Feedback), ": ")
	}
	texts := make([]string, len(e.Answers))
	for i, a := range e.Answers {
		texts[i] = cmp.Or(strings.Join(a.Chosen, ", "), "no answer")
	}
	return strings.Join(texts, "; ")
}

// originText returns the origin of a session: its kind and the format of an import.
func originText(o events.Origin) string {
	return strings.Join(strings.Fields(string(o.Kind)+" "+o.Format), " ")
}
