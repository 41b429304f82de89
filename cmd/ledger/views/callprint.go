package views

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
)

// printCall prints a call for a person: its fields, then one section for each text, then its
// events. Empty fields and sections are omitted.
func printCall(out *render.Printer, d callDetail) {
	c := d.call
	out.Fields(
		"call", render.Printable(string(c.ID)), "tool", render.Printable(c.Tool), "title", render.Printable(c.Title), "made by", render.Printable(string(c.Parent)), "outcome", out.Outcome(d.Outcome)+outcomeSuffix(out, d),
		"session", c.Session.String(), "turn", render.StringOf(d.Turn), "message", c.Message.String(), "agent", render.Printable(string(c.Agent)),
		"asked", out.LongTime(c.Asked), "started", out.LongTime(c.Started), "settled", strings.TrimSpace(out.LongTime(c.Settled)+"  "+render.Took(c)),
		"settlement", render.StringOf(d.Settlement), "process", render.StringOf(d.Process),
		"offered", offeredText(out, d.Offered), "effective", effectiveText(out, d), "changed by", placeText(out, d.ChangedBy),
		"rule", ruleText(d.Rule), "allowed by", rulesText(d.Allowed), "detail", indented(render.ValueOf(d.Detail)),
	)
	printSection(out, "input", render.Indented(d.Input))
	printSection(out, "input that ran", render.Indented(d.InputRan))
	printPermissions(out, d.Permissions)
	printQuestions(out, d.Questions)
	if len(d.Added) > 0 {
		printSection(out, "calls that it made", joinIDs(d.Added))
	}
	printSection(out, "the model reads", modelResultText(out, d.Reading))
	if d.Reading != nil && d.Reading.Structured == nil {
		printSection(out, "structured", render.Indented(d.Structured))
	}
	printRetained(out, d.Retained, d.Lost)
	printFiles(out, d.Files)
	if d.Progress != nil {
		printSection(out, "last progress", strings.TrimSpace(contentText(d.Progress.Content)+"\n"+render.Indented(d.Progress.Structured)))
	}
	for _, late := range d.LateResults {
		printSection(out, "late result", fmt.Sprintf("%s %s\n%s", out.Outcome(late.Outcome), out.LongTime(render.TimeOf(late.Time)), render.ValueOf(late.Text)))
	}
	out.Line("\n%s", out.Styled(render.Bold, "events"))
	out.Table(placeTable(out, d.Timeline))
}

// outcomeSuffix returns a text to print after the outcome of a call: that no reply asked
// for the call, whether the call began, or the cause of its interruption. It is empty
// for a call that ran to its end.
func outcomeSuffix(out *render.Printer, d callDetail) string {
	switch {
	case d.call.Asked.IsZero():
		return ", and nobody asked for it"
	case d.Outcome == render.OpenOutcome && d.Began:
		return ", it began"
	case d.Outcome == render.OpenOutcome:
		return ", it did not begin"
	case d.Interruption != nil && d.Began:
		return " by " + *d.Interruption + " while it ran"
	case d.Interruption != nil:
		return " by " + *d.Interruption + " before it began"
	case d.Began:
		return ""
	}
	return ", it did not run"
}

// offeredText describes a registration: ID, layer and the first 12 digits of the fingerprint.
func offeredText(out *render.Printer, o *offeredRow) string {
	if o == nil {
		return ""
	}
	fingerprint := "definition not known"
	if o.Fingerprint != nil {
		fingerprint = "fingerprint " + (*o.Fingerprint)[:12]
	}
	return fmt.Sprintf("%s in %s, %s", o.Registration, o.Layer, fingerprint)
}

// effectiveText describes the registration that was in effect. It returns "the same" if
// the turn offered this registration, "nothing" if no registration was in effect, and an
// empty text if neither registration is on record.
func effectiveText(out *render.Printer, d callDetail) string {
	switch {
	case d.Offered == nil && d.Effective == nil || d.settled == nil && d.Effective == nil:
		return ""
	case d.Effective == nil:
		return "nothing"
	case d.Offered != nil && d.Offered.Registration == d.Effective.Registration:
		return "the same"
	case d.Agrees != nil && *d.Agrees:
		return offeredText(out, d.Effective) + " (the same definition)"
	}
	return offeredText(out, d.Effective)
}

// placeText describes the event that changed the registration in effect. If findChange
// did not find that event, the Kind of p is empty.
func placeText(out *render.Printer, p *eventPlace) string {
	if p == nil {
		return ""
	}
	if p.Kind == "" {
		return p.Event.String() + " " + p.What
	}
	return fmt.Sprintf("%s at position %s, %s: %s", p.Kind, p.Position, out.ShortTime(render.TimeOf(p.Time)), p.What)
}

// ruleText returns a permission rule in one line: effect, action, resource and source.
func ruleText(r *domain.Rule) string {
	if r == nil {
		return ""
	}
	return render.Printable(strings.TrimSpace(fmt.Sprintf("%s %s %s  %s", r.Effect, r.Action, r.Resource, r.Source)))
}

// rulesText returns one line for each rule, indented for a field of printCall.
func rulesText(rules []domain.Rule) string {
	lines := make([]string, len(rules))
	for i, r := range rules {
		lines[i] = ruleText(&r)
	}
	return indented(strings.Join(lines, "\n"))
}

// printPermissions prints each permission request of a call with its decision, the preview
// that the person saw, the rule that decided, and the feedback of the person.
func printPermissions(out *render.Printer, all []permissionRow) {
	if len(all) == 0 {
		return
	}
	out.Line("\n%s", out.Styled(render.Bold, "permissions"))
	for _, p := range all {
		answer := out.Styled(render.Yellow, "waits for a decision")
		if p.Effect != nil {
			by := strings.TrimSpace(render.ValueOf(p.By) + " " + render.Printable(render.ValueOf(p.Person)))
			answer = fmt.Sprintf("%s (%s) by %s after %dms", effect(out, *p.Effect), render.ValueOf(p.Scope), by, *p.WaitedMS)
		}
		out.Line("  %s %s: %s", render.Printable(p.Action), render.Printable(strings.Join(p.Resources, ", ")), answer)
		if p.Shown != nil {
			out.Line("    shown: %s", shownText(*p.Shown))
		}
		for _, a := range p.Approvals {
			out.Line("    by the approval %s: %s", render.ShortID(a.Event), render.Printable(a.Resource))
		}
		for _, more := range []string{ruleText(p.Rule), render.Printable(render.ValueOf(p.Feedback))} {
			if more != "" {
				out.Line("    %s", indented(more))
			}
		}
	}
}

// printQuestions prints the questions of a call with their answers.
func printQuestions(out *render.Printer, all []questionRow) {
	if len(all) == 0 {
		return
	}
	out.Line("\n%s", out.Styled(render.Bold, "questions"))
	for _, q := range all {
		for i, asked := range q.Questions {
			out.Line("  %s: %s", render.OneLine(asked.Question, 200), answerText(out, q, i))
		}
	}
}

// answerText returns the answer to question i, or the state of the request.
func answerText(out *render.Printer, q questionRow, i int) string {
	switch {
	case q.By == nil:
		return out.Styled(render.Yellow, "waits for an answer")
	case q.Dismissed:
		return out.Styled(render.Magenta, "dismissed") + " by " + render.Printable(strings.TrimSpace(*q.By+" "+render.ValueOf(q.Person)+" "+render.ValueOf(q.Feedback)))
	case i < len(q.Answers) && len(q.Answers[i].Chosen) > 0:
		return render.OneLine(strings.Join(q.Answers[i].Chosen, ", "), 200)
	}
	return "not answered"
}

// printFiles lists the files that a call read or changed.
func printFiles(out *render.Printer, files []domain.FileAccess) {
	if len(files) == 0 {
		return
	}
	out.Line("\n%s", out.Styled(render.Bold, "files"))
	for _, f := range files {
		out.Line("  %s", render.Printable(strings.TrimSpace(fmt.Sprintf("%-6s  %s  %s", f.Access, f.Path, f.Version))))
	}
}

// joinIDs returns IDs of calls, one on each line.
func joinIDs(ids []domain.CallID) string {
	lines := make([]string, len(ids))
	for i, id := range ids {
		lines[i] = string(id)
	}
	return strings.Join(lines, "\n")
}

// shownText returns the preview that a permission request displayed, with its kind, size
// and digest.
func shownText(s domain.Preview) string {
	head := fmt.Sprintf("%s, %s, sha256 %s", s.Kind, render.Bytes(s.Bytes), s.SHA256)
	if s.Cut > 0 {
		head += fmt.Sprintf(", %d bytes left out", s.Cut)
	}
	return render.Printable(head + strings.ReplaceAll("\n"+strings.TrimSuffix(s.Text, "\n"), "\n", "\n      | "))
}

// effect colors the effect of a decision: green for allow, magenta for any other.
func effect(out *render.Printer, word string) string {
	if word == domain.Allow.String() {
		return out.Styled(render.Green, word)
	}
	return out.Styled(render.Magenta, word)
}

// printRetained lists the stored outputs of a call, each with the command that prints
// it. lost is the number of bytes that the tool dropped.
func printRetained(out *render.Printer, all []retainedRow, lost int64) {
	if len(all) == 0 {
		return
	}
	if lost > 0 {
		out.Line("\n%s", out.Styled(render.Yellow, fmt.Sprintf("%d bytes of the output were lost by the tool; the rest is kept", lost)))
	} else {
		out.Line("\n%s", out.Styled(render.Bold, "kept whole"))
	}
	for _, r := range all {
		out.Line("  %s  %s, %d lines, %s", r.Ref, render.Bytes(r.Bytes), r.Lines, r.MIME)
		out.Line("    sha256 %s", r.SHA256)
		if pruned := render.TimeOf(r.Pruned); !pruned.IsZero() {
			out.Line("    %s", out.Styled(render.Yellow, "pruned "+out.LongTime(pruned)))
			continue
		}
		out.Line("    read it: %s", r.Command)
	}
}

// modelResultText returns the result that the model reads, as text.
func modelResultText(out *render.Printer, r *modelResult) string {
	if r == nil {
		return ""
	}
	switch {
	case r.Error != nil:
		return *r.Error
	case r.Text != nil:
		return *r.Text
	case r.Structured != nil:
		return render.Indented(r.Structured)
	}
	return contentText(r.Content)
}

// contentText returns the texts of content. In place of an item that is not text it
// returns the item's name, media type and size.
func contentText(content domain.Contents) string {
	var parts []string
	for _, c := range content {
		switch c := c.(type) {
		case domain.Text:
			parts = append(parts, string(c))
		case domain.Media:
			parts = append(parts, fmt.Sprintf("[%s %s, %s]", cmp.Or(c.Name, "media"), c.MIME, render.Bytes(int64(len(c.Data)))))
		}
	}
	return strings.Join(parts, "\n")
}

// printSection prints a title and an indented body. It prints nothing if the body is empty.
func printSection(out *render.Printer, title, body string) {
	if body = strings.TrimRight(body, "\n"); body == "" {
		return
	}
	out.Line("\n%s\n  %s", out.Styled(render.Bold, title), indented(render.Printable(body)))
}

// indented indents every line but the first by two columns.
func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// placeTable returns a table of events with their positions.
func placeTable(out *render.Printer, places []eventPlace) render.Table {
	t := render.Table{Head: []string{">POSITION", "?>REVISION", "TIME", "?EVENT", "~KIND", "~WHAT"}, Empty: "None."}
	for _, p := range places {
		t.Add(p.Position.String(), fmt.Sprint(p.Revision), out.Milliseconds(render.TimeOf(p.Time)), render.ShortID(p.Event), p.Kind, render.OneLine(p.What, render.TextWidth))
	}
	return t
}
