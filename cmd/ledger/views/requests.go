package views

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A requestRow is one permission request or question of `ledger permission ls` in JSON
// results.
type requestRow struct {
	Request   domain.PermissionID `json:"request"`
	Kind      string              `json:"kind"` // permission or question
	Session   domain.SessionID    `json:"session"`
	Message   *domain.MessageID   `json:"message"`
	Call      *domain.CallID      `json:"call"`
	Tool      *string             `json:"tool"`
	Agent     *domain.AgentID     `json:"agent"`
	Action    string              `json:"action"`    // question for a question
	Resources json.RawMessage     `json:"resources"` // the objects of the action, or the questions
	Position  events.Position     `json:"position"`
	Requested render.Timestamp    `json:"requested"`
	Effect    *string             `json:"effect"` // allow or deny, answered or dismissed; null: open
	By        *string             `json:"by"`     // rule, approval, user, headless or recovery
	Scope     *string             `json:"scope"`  // once, always or reject; null: no person was asked
	Person    *string             `json:"person"` // the OS user who decided
	Rule      *string             `json:"rule"`   // the rule that denied, with its file and line
	Feedback  *string             `json:"feedback"`
	Answers   json.RawMessage     `json:"answers"` // of a question
	Decided   render.Timestamp    `json:"decided"`
	WaitedMS  *int64              `json:"waited_ms"`
}

// newRequestRow returns the row of a request.
func newRequestRow(r index.Request) requestRow {
	row := requestRow{
		Request: r.ID, Kind: "permission", Session: r.Session, Message: render.OrNull(r.Message), Call: render.OrNull(r.Call), Tool: render.OrNull(r.Tool), Agent: render.OrNull(r.Agent),
		Action: r.Action, Resources: r.Resources, Position: r.Position, Requested: render.Timestamp(r.Time), Effect: render.OrNull(r.Effect), By: render.OrNull(r.By), Scope: render.OrNull(r.Scope),
		Person: render.OrNull(r.Person), Feedback: render.OrNull(r.Feedback), Answers: render.RawJSON(r.Answers), Decided: render.Timestamp(r.Decided),
	}
	if r.Question {
		row.Kind = "question"
	}
	if r.RuleSource != "" || r.RuleAction != "" {
		row.Rule = render.OrNull(strings.TrimSpace(strings.TrimPrefix(r.RuleSource+": ", ": ") + r.RuleAction + " " + r.RuleObjects))
	}
	if !r.Decided.IsZero() {
		row.WaitedMS = &r.WaitedMS
	}
	return row
}

// A RequestFilter selects the permission requests and questions of permission ls.
type RequestFilter struct {
	query.Filter
	Pending bool // only those without a decision
}

// ListRequests prints the permission requests and questions that filter selects, in the order
// of the log.
func ListRequests(out *render.Printer, r *index.Snapshot, filter RequestFilter) error {
	selected, err := filter.Resolve(out, r, query.RequestList)
	if err != nil {
		return err
	}
	q := index.RequestQuery{Session: selected.Session, Agent: filter.Agent, By: filter.By, Pending: filter.Pending, Calls: selected.Calls, Where: selected.Where, Limit: filter.Limit, Skip: filter.Skip}
	q.Calls.By = "" // the request itself was decided so, and not another one of its call
	q.From, q.To = filter.When.Bounds()
	requests, err := r.Requests(q)
	if err != nil {
		return err
	}
	rows := make([]requestRow, len(requests))
	for i, one := range requests {
		rows[i] = newRequestRow(one)
	}
	return render.Rows(out, rows, func() {
		t := render.Table{Head: []string{"REQUEST", "TIME", "~ACTION", "~RESOURCES", "EFFECT", "~BY", "?>WAITED", "SESSION", "?CALL"}, Empty: filter.Empty(out, query.RequestList)}
		if filter.Pending {
			t.Empty = strings.Replace(t.Empty, "No requests", "No open requests", 1)
		}
		for i, one := range requests {
			waited := ""
			if rows[i].WaitedMS != nil {
				waited = render.Duration(time.Duration(one.WaitedMS) * time.Millisecond)
			}
			t.Add(render.ShortID(one.ID), out.ShortTime(one.Time), render.OneLine(one.Action, 30), render.OneLine(resourcesText(one.Resources), render.TextWidth), decisionText(out, one),
				render.OneLine(deciderText(rows[i]), render.TextWidth), waited, render.ShortID(one.Session), render.ShortCallID(one.Call))
		}
		out.Table(t)
	})
}

// resourcesText returns the resources of a request, or the texts of its questions.
func resourcesText(raw json.RawMessage) string {
	var texts []string
	if json.Unmarshal(raw, &texts) == nil {
		return strings.Join(texts, ", ")
	}
	var questions []struct {
		Question string `json:"question"`
	}
	if json.Unmarshal(raw, &questions) != nil {
		return string(raw)
	}
	for _, q := range questions {
		texts = append(texts, q.Question)
	}
	return strings.Join(texts, " ")
}

// decisionText returns the effect of a request for a person.
func decisionText(out *render.Printer, r index.Request) string {
	switch r.Effect {
	case "allow", "answered":
		return out.Styled(render.Green, "✓ "+r.Effect)
	case "":
		return out.Outcome(render.OpenOutcome)
	}
	return out.Styled(render.Magenta, "⊘ "+r.Effect)
}

// deciderText returns who decided a request.
func deciderText(r requestRow) string {
	parts := []string{cmp.Or(render.ValueOf(r.By), ""), render.ValueOf(r.Person)}
	if r.Scope != nil && *r.Scope != "reject" {
		parts = append(parts, *r.Scope)
	}
	if r.Rule != nil {
		parts = append(parts, "by "+*r.Rule)
	}
	return strings.Join(strings.Fields(strings.Join(parts, " ")), " ")
}
