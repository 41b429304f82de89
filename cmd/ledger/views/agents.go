package views

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/agents"
)

// An agentRow is one agent of `ledger agent ls`, or a file that was refused.
type agentRow struct {
	Agent       *domain.AgentID `json:"agent"` // null: a refused folder
	Mode        *string         `json:"mode"`  // primary, subagent or all; null: refused
	Model       *string         `json:"model"` // null: the model of the session
	Description *string         `json:"description"`
	Source      string          `json:"source"`  // path of the file, or built in
	Refused     *string         `json:"refused"` // reason why the file is not used; null: it is used
}

// An agentDetail is the JSON result of `ledger agent show`.
type agentDetail struct {
	Agent       domain.AgentID  `json:"agent"`
	Mode        string          `json:"mode"`
	Model       *string         `json:"model"`
	Description string          `json:"description"`
	Steps       *int            `json:"steps"` // null: no limit
	Tools       []string        `json:"tools"` // patterns; null: all tools
	Source      string          `json:"source"`
	Digest      string          `json:"digest"`
	RuleSets    domain.RuleSets `json:"rule_sets"` // evaluated apart; the sets of the replaced agent come first
	Prompt      string          `json:"prompt"`
}

// ListAgents prints the agents of a Set by name, and the files that it refused.
func ListAgents(out *render.Printer, set *agents.Set) error {
	rows := []agentRow{}
	for _, a := range set.All() {
		rows = append(rows, agentRow{&a.Name, render.OrNull(a.Mode.String()), render.OrNull(a.Model), &a.Description, a.Source, nil})
	}
	for _, r := range set.Refused() {
		rows = append(rows, agentRow{Agent: render.OrNull(r.Name), Source: r.Path, Refused: &r.Reason})
	}
	return render.Rows(out, rows, func() { agentTable(out, rows) })
}

// agentTable prints the agents as a table, and below it the reasons of refused files.
func agentTable(out *render.Printer, rows []agentRow) {
	t := render.Table{Head: []string{"NAME", "MODE", "~MODEL", "~DESCRIPTION", "~SOURCE"}, Empty: "No agents."}
	var refused []string
	for _, r := range rows {
		if r.Refused != nil {
			refused = append(refused, *r.Refused)
			continue
		}
		t.Add(string(*r.Agent), render.ValueOf(r.Mode), render.Printable(render.ValueOf(r.Model)), render.OneLine(*r.Description, render.TextWidth), render.OneLine(r.Source, render.TextWidth))
	}
	out.Table(t)
	for i, reason := range refused {
		if i == 0 {
			out.Line("\nNot used:")
		}
		out.Line("  %s", render.Printable(strings.ReplaceAll(reason, "\n", "\n  ")))
	}
}

// ShowAgent prints one agent with its rules and its prompt.
func ShowAgent(out *render.Printer, a agents.Agent) error {
	d := agentDetail{
		Agent: a.Name, Mode: a.Mode.String(), Model: render.OrNull(a.Model), Description: a.Description, Steps: render.OrNull(a.Steps),
		Tools: a.Tools, Source: a.Source, Digest: a.Digest, RuleSets: a.RuleSets(), Prompt: a.Prompt,
	}
	return out.Object(d, func() {
		steps := ""
		if a.Steps > 0 {
			steps = fmt.Sprint(a.Steps)
		}
		out.Fields("agent", string(a.Name), "mode", d.Mode, "description", render.Printable(a.Description), "model", render.Printable(a.Model), "steps", steps,
			"tools", cmp.Or(strings.Join(a.Tools, ", "), "all"), "source", render.Printable(a.Source), "digest", a.Digest)
		for i, set := range d.RuleSets {
			title := "Rules:"
			if i < len(a.Base) {
				title = "Rules of an agent that this file replaces:"
			}
			agentRules(out, title, set)
		}
		if a.Prompt != "" {
			out.Line("\nPrompt:\n\n%s", render.Printable(a.Prompt))
		}
	})
}

// agentRules prints a set of rules under a title, each with its source.
func agentRules(out *render.Printer, title string, set domain.Rules) {
	out.Line("\n%s", title)
	t := render.Table{Head: []string{"EFFECT", "~ACTION", "~RESOURCE", "~SOURCE"}}
	for _, r := range set {
		t.Add(r.Effect.String(), render.Printable(r.Action), render.OneLine(r.Resource, render.TextWidth), render.OneLine(r.Source, render.TextWidth))
	}
	out.Table(t)
}
