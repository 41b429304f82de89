package views

import (
	"fmt"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A turnRow is one turn of `ledger turn ls` in JSON results.
type turnRow struct {
	Turn     domain.TurnID    `json:"turn"`
	Session  domain.SessionID `json:"session"`
	Message  domain.MessageID `json:"message"` // the reply that the turn was made for
	Agent    *domain.AgentID  `json:"agent"`
	Model    *string          `json:"model"`
	Provider *string          `json:"provider"`
	Client   *string          `json:"client"`
	Event    domain.EventID   `json:"event"`
	Position events.Position  `json:"position"`
	Time     render.Timestamp `json:"time"`
	Tools    int              `json:"tools"`    // the number of offered tools
	Hidden   int              `json:"hidden"`   // the number of hidden tools
	Calls    int              `json:"calls"`    // the number of calls of the reply
	Disabled bool             `json:"disabled"` // no tool was offered, as the turn was the last step allowed
	Observed bool             `json:"observed"` // an import saw the use of the tools
}

// newTurnRow returns the row of a turn.
func newTurnRow(t index.ListedTurn) turnRow {
	return turnRow{
		Turn: t.Turn.Turn, Session: t.Session, Message: t.Message, Agent: render.OrNull(t.Agent), Model: render.OrNull(t.Model), Provider: render.OrNull(t.Provider),
		Client: render.OrNull(t.Client), Event: t.Event, Position: t.Position, Time: render.Timestamp(t.Time), Tools: t.Tools, Hidden: t.Hidden, Calls: t.Calls,
		Disabled: t.Disabled, Observed: t.Observed,
	}
}

// ListTurns prints the turns that filter selects, in the order of the log.
func ListTurns(out *render.Printer, r *index.Snapshot, filter query.Filter) error {
	selected, err := filter.Resolve(out, r, query.TurnList)
	if err != nil {
		return err
	}
	q := index.TurnQuery{Session: selected.Session, Agent: filter.Agent, Calls: selected.Calls, Where: selected.Where, Limit: filter.Limit, Skip: filter.Skip}
	q.From, q.To = filter.When.Bounds()
	turns, err := r.Turns(q)
	if err != nil {
		return err
	}
	rows := make([]turnRow, len(turns))
	for i, t := range turns {
		rows[i] = newTurnRow(t)
	}
	return render.Rows(out, rows, func() {
		t := render.Table{Head: []string{"TURN", "TIME", "SESSION", "~AGENT", "~MODEL", ">TOOLS", ">HIDDEN", ">CALLS"}, Empty: filter.Empty(out, query.TurnList)}
		for _, one := range turns {
			t.Add(render.ShortID(one.Turn.Turn), out.ShortTime(one.Time), render.ShortID(one.Session), render.OneLine(string(one.Agent), 20), render.OneLine(one.Model, 40),
				fmt.Sprint(one.Tools), fmt.Sprint(one.Hidden), fmt.Sprint(one.Calls))
		}
		out.Table(t)
	})
}
