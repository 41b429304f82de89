package replay

import (
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// excused returns the reason for which a field of an event cannot be compared, or "".
func (c *comparison) excused(e labeled, field string) string {
	switch ev := e.Event.(type) {
	case events.CallSettled:
		return c.excusedEnd(e, ev, field)
	case events.CallStarted:
		if c.tape.imported {
			return "an import has no registrations"
		}
	case events.TurnMaterialized:
		if c.tape.imported {
			return "an import has no offers"
		}
	case events.SessionInterrupted:
		if field == "detail" && ev.Detail != "" {
			return "the failure that ended the run is not on the tape"
		}
	}
	return ""
}

// excusedEnd is excused for the end of a call.
func (c *comparison) excusedEnd(e labeled, end events.CallSettled, field string) string {
	if c.gone[e.label] {
		switch field {
		case "text", "content", "structured", "retained":
			return "an output of the call is not kept any more"
		}
	}
	if end.Outcome == domain.RetentionFailed || end.Outcome == domain.MediaTooLarge {
		switch field {
		case "outcome", "text", "detail":
			return "the output that could not be kept is not on record"
		}
	}
	if !c.tape.imported {
		return ""
	}
	if _, err := domain.ParseName(end.Tool); err != nil && end.Outcome != domain.UnknownTool {
		return "no tool can be registered under the name of the call"
	}
	switch field {
	case "outcome", "interruption":
		return ""
	case "text", "content", "structured":
		return c.foreignText(end)
	}
	return "an import has neither registrations nor kept outputs"
}

// foreignText returns the reason for which the text of a call of an import cannot be
// compared, or "".
func (c *comparison) foreignText(end events.CallSettled) string {
	switch end.Outcome {
	case domain.UnknownTool, domain.DeniedByRule, domain.DeclinedByUser, domain.Interrupted:
		return "the text is that of the program which ran the session"
	}
	over := func(text string) bool { return registry.DefaultLimits.Cut(text) != text }
	if over(end.Text) || over(end.Content.Text()) || len(end.Structured) > registry.DefaultLimits.Bytes {
		return "the output is over the limits of this program, which bounds it"
	}
	return ""
}

// unlike reports whether the message of an event can differ although the event does not
// count as different.
func (c *comparison) unlike(label string) bool {
	i, ok := c.old.index[label]
	if !ok {
		return c.tape.imported
	}
	end, ok := c.old.entries[i].Event.(events.CallSettled)
	return ok && (c.excusedEnd(c.old.entries[i], end, "text") != "" || c.excusedEnd(c.old.entries[i], end, "structured") != "")
}

// notes lists the parts of the recording that cannot be compared.
func (c *comparison) notes() {
	add := func(where, format string, args ...any) {
		c.Incomparable = append(c.Incomparable, Incomparable{where, fmt.Sprintf(format, args...)})
	}
	c.Incomparable = append(c.Incomparable, c.tape.notes...)
	if c.tape.imported {
		add("offers", "the session was imported: its transcript has no offers and no registrations, so the tools of each turn, hidden tools and staleness are not compared")
	}
	rules := map[string]bool{}
	for _, e := range c.old.entries {
		switch ev := e.Event.(type) {
		case events.TurnMaterialized:
			if ev.Rules != "" && ev.RulesText == "" && !rules[ev.Rules] {
				rules[ev.Rules] = true
				add(e.label, "the permission rules in force are on record by their digest alone, %s", ev.Rules[:min(12, len(ev.Rules))])
			}
		case events.CallSettled:
			for _, field := range []string{"outcome", "text"} {
				if why := c.excusedEnd(e, ev, field); why != "" {
					add(e.label, "%s", why)
					break
				}
			}
			if ev.Tool == "task" && ev.Began && !c.tape.imported {
				add(e.label, "the subsession of the call has a tape of its own; here the call returns its recorded result")
			}
		case events.LateResultObserved:
			add(e.label, "a result that came after the end of its call is not replayed")
		case events.OutputPruned:
			add(e.label, "pruning is not replayed")
		case events.SessionInterrupted:
			if ev.Detail != "" && !strings.HasPrefix(ev.Detail, "declined ") && !c.tape.imported {
				add(e.label, "the failure that ended the run is not on the tape: %s", ev.Detail)
			}
		}
	}
}
