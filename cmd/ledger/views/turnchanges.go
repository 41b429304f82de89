package views

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A turnChange is a difference between a turn and the one before in JSON results.
type turnChange struct {
	// What is agent, model, provider, client, flags, disabled, rules, system, instruction,
	// parameters, tool or hidden.
	What   string  `json:"what"`
	Name   *string `json:"name"`   // of a tool
	Change string  `json:"change"` // added, removed, changed, or registered again: the same definition
	Before *string `json:"before"` // a short value, the fingerprint of a tool, its registration if it was registered again, or why it was hidden
	After  *string `json:"after"`
	Diff   *string `json:"diff"` // of texts and definitions
}

// compare sets the differences to the turn of the session before.
func (d *turnDetail) compare(ctx context.Context, s *stores.Store, r *index.Snapshot, turn index.Turn) error {
	d.Changes = []turnChange{}
	last, ok, err := r.TurnBefore(turn)
	if err != nil || !ok {
		return err
	}
	before, err := loadTurn(ctx, s, r, last)
	if err != nil {
		return err
	}
	d.Before, d.Changes = &last.Turn, turnChanges(before, *d)
	return nil
}

// turnChanges returns the differences between two turns.
func turnChanges(a, b turnDetail) []turnChange {
	all := []turnChange{}
	value := func(what, before, after string) {
		if before != after {
			all = append(all, turnChange{What: what, Change: changeOf(before, after), Before: render.OrNull(before), After: render.OrNull(after)})
		}
	}
	text := func(what, before, after string) {
		if before != after {
			all = append(all, turnChange{What: what, Change: changeOf(before, after), Diff: render.OrNull(hunks(before, after))})
		}
	}
	value("agent", stringOf(a.Agent), stringOf(b.Agent))
	value("model", render.ValueOf(a.Model), render.ValueOf(b.Model))
	value("provider", render.ValueOf(a.Provider), render.ValueOf(b.Provider))
	value("client", render.ValueOf(a.Client), render.ValueOf(b.Client))
	value("flags", strings.Join(a.Flags, ", "), strings.Join(b.Flags, ", "))
	value("disabled", fmt.Sprint(a.Disabled), fmt.Sprint(b.Disabled))
	value("rules", render.ValueOf(a.Rules), render.ValueOf(b.Rules))
	text("system", a.system, b.system)
	text("instruction", a.instruction, b.instruction)
	text("parameters", pretty(a.Parameters), pretty(b.Parameters))
	all = append(all, toolChanges(a.Tools, b.Tools)...)
	return append(all, hiddenChanges(a.Hidden, b.Hidden)...)
}

// changeOf returns the word for a change of a value, of which an empty one is absent.
func changeOf(before, after string) string {
	switch {
	case before == "":
		return "added"
	case after == "":
		return "removed"
	}
	return "changed"
}

// toolChanges returns the differences between two offers: first the tools of b, then those
// that it lacks.
func toolChanges(a, b []turnTool) (all []turnChange) {
	find := func(tools []turnTool, of turnTool) (turnTool, bool) {
		i := slices.IndexFunc(tools, func(t turnTool) bool { return t.Tool == of.Tool })
		if i < 0 {
			return turnTool{}, false
		}
		return tools[i], true
	}
	for _, after := range b {
		before, ok := find(a, after)
		c := turnChange{What: "tool", Name: render.OrNull(string(after.Tool)), Before: before.Fingerprint, After: after.Fingerprint}
		switch {
		case !ok:
			c.Change = "added"
		case definition(before) != definition(after) || render.ValueOf(before.Fingerprint) != render.ValueOf(after.Fingerprint):
			c.Change, c.Diff = "changed", render.OrNull(hunks(definition(before), definition(after)))
		case before.Registration != after.Registration:
			c.Change, c.Before, c.After = "registered again", render.OrNull(before.Registration.String()), render.OrNull(after.Registration.String())
		default:
			continue
		}
		all = append(all, c)
	}
	for _, before := range a {
		if _, ok := find(b, before); !ok {
			all = append(all, turnChange{What: "tool", Name: render.OrNull(string(before.Tool)), Change: "removed", Before: before.Fingerprint})
		}
	}
	return all
}

// hiddenChanges returns the differences between the hidden tools of two turns.
func hiddenChanges(a, b []hiddenTool) (all []turnChange) {
	why := func(tools []hiddenTool, of hiddenTool) string {
		for _, t := range tools {
			if t.Tool == of.Tool {
				return t.Why
			}
		}
		return ""
	}
	for _, after := range b {
		if before := why(a, after); before != after.Why {
			all = append(all, turnChange{What: "hidden", Name: render.OrNull(string(after.Tool)), Change: changeOf(before, after.Why), Before: render.OrNull(before), After: render.OrNull(after.Why)})
		}
	}
	for _, before := range a {
		if why(b, before) == "" {
			all = append(all, turnChange{What: "hidden", Name: render.OrNull(string(before.Tool)), Change: "removed", Before: render.OrNull(before.Why)})
		}
	}
	return all
}

// definition returns the description and the schemas of a tool as a text.
func definition(t turnTool) string {
	return render.ValueOf(t.Description) + "\n" + pretty(t.Input) + "\n" + pretty(t.Output) + "\n"
}

// pretty returns JSON with a line for each value, or the empty text for null and nil.
func pretty(raw json.RawMessage) string {
	var b bytes.Buffer
	if string(raw) == "null" || json.Indent(&b, raw, "", "  ") != nil {
		return ""
	}
	return b.String()
}

// printSchemas prints the definitions of the tools of a turn, and what had changed since the
// turn before.
func printSchemas(out *render.Printer, d turnDetail) {
	for _, t := range d.Tools {
		text := render.ValueOf(t.Description)
		if schema := pretty(t.Input); schema != "" {
			text += "\ninput " + schema
		}
		if schema := pretty(t.Output); schema != "" {
			text += "\noutput " + schema
		}
		printSection(out, string(t.Tool), text)
	}
	switch {
	case d.Before == nil:
		out.Line("\n%s", out.Styled(render.Bold, "this is the first turn of the session"))
		return
	case len(d.Changes) == 0:
		out.Line("\n%s", out.Styled(render.Bold, "nothing had changed since the turn before, "+render.ShortID(*d.Before)))
		return
	}
	out.Line("\n%s", out.Styled(render.Bold, "changed since the turn before, "+render.ShortID(*d.Before)))
	for _, c := range d.Changes {
		values := ""
		if c.Before != nil || c.After != nil {
			values = strings.TrimSpace(render.OneLine(render.ValueOf(c.Before), render.TextWidth) + " → " + render.OneLine(render.ValueOf(c.After), render.TextWidth))
		}
		out.Line("  %s", strings.TrimRight(strings.TrimSpace(c.What+" "+render.Printable(render.ValueOf(c.Name)))+" "+c.Change+"  "+values, " "))
		if c.Diff != nil {
			out.Line("      %s", strings.ReplaceAll(render.Printable(strings.TrimRight(*c.Diff, "\n")), "\n", "\n      "))
		}
	}
}
