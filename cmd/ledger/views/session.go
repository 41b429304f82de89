package views

import (
	"fmt"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// ListSessions prints the selected sessions in the order of the log.
func ListSessions(out *render.Printer, r *index.Snapshot, filter query.Filter) error {
	selected, err := filter.Resolve(out, r, query.SessionList)
	if err != nil {
		return err
	}
	q := index.SessionQuery{Session: selected.Session, Agent: filter.Agent, Calls: selected.Calls, Where: selected.Where, Limit: filter.Limit, Skip: filter.Skip}
	q.From, q.To = filter.When.Bounds()
	sessions, err := r.Sessions(q)
	if err != nil {
		return err
	}
	outcomes, err := r.OutcomesOf(sessions)
	if err != nil {
		return err
	}
	rows := make([]sessionListRow, len(sessions))
	for i, s := range sessions {
		rows[i] = newSessionListRow(s, outcomes[s.ID])
	}
	return render.Rows(out, rows, func() {
		t := sessionTable(out, sessions, rows)
		t.Empty = filter.Empty(out, query.SessionList)
		out.Table(t)
	})
}

// sessionTable returns the table of sessions for a person.
func sessionTable(out *render.Printer, sessions []index.Session, rows []sessionListRow) render.Table {
	t := render.Table{Head: []string{"SESSION", "~AGENT", "?ORIGIN", "?PROJECT", "STATE", "?>PROMPTS", ">CALLS", "?>TOKENS IN", "?>OUT", "?>LASTED", "LAST EVENT", "~OUTCOMES", "~TITLE"}}
	for i, s := range sessions {
		tokens := s.Tokens
		t.Add(render.ShortID(s.ID), render.OneLine(string(s.Agent), 20), originText(s.Origin), render.OneLine(render.ValueOf(rows[i].Project), 20), sessionState(out, s.Session), fmt.Sprint(s.Prompts), fmt.Sprint(s.Calls),
			fmt.Sprint(tokens.Input+tokens.CacheRead+tokens.CacheWrite), fmt.Sprint(tokens.Output), render.Duration(s.LastEvent.Sub(s.Opened)), out.ShortTime(s.LastEvent),
			countedOutcomes(out, rows[i].Outcomes), render.OneLine(s.Title, render.TextWidth))
	}
	return t
}

// sessionState returns the state of a session for a person. A session is shown as
// resting if it is neither closed nor interrupted and has no open call.
func sessionState(out *render.Printer, s calls.Session) string {
	switch {
	case s.Closed:
		return out.Styled(render.Dim, "closed")
	case s.Interrupted:
		return out.Styled(render.Yellow, "■ interrupted")
	case s.Open > 0:
		return out.Outcome(render.OpenOutcome)
	}
	return "rests"
}
