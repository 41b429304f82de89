package index

import (
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/index/where"
)

// A TurnQuery selects turns. The zero TurnQuery selects all of them.
type TurnQuery struct {
	Session  domain.SessionID
	Agent    string
	From, To time.Time   // the time of the turn; To is excluded; zero: unbounded
	Calls    CallQuery   // turns with such a call; zero: all turns
	Where    *where.Expr // over TurnFields; nil: all turns
	Limit    int         // the last so many; 0: all
	Skip     int         // leave the last so many out, before Limit
}

// A ListedTurn is a turn with the facts that a list shows.
type ListedTurn struct {
	Turn
	Message                 domain.MessageID // of the reply
	Agent                   domain.AgentID
	Model, Provider, Client string
	Time                    time.Time
	Hidden, Calls           int // numbers of hidden tools, and of calls
	Disabled, Observed      bool
}

// listedTurnColumns are the columns of a ListedTurn, in the order of scan.
const listedTurnColumns = turnColumns + ", turns.message, turns.agent, turns.model, turns.provider, turns.client, turns.time, turns.hidden, " + turnCalls + ", turns.disabled, turns.observed"

// scan reads listedTurnColumns.
func (t *ListedTurn) scan(c *columnReader) error {
	if err := t.Turn.scan(c); err != nil {
		return err
	}
	c.text(&t.Message)
	t.Agent, t.Model, t.Provider, t.Client, t.Time = domain.AgentID(c.string()), c.string(), c.string(), c.string(), c.time()
	t.Hidden, t.Calls, t.Disabled, t.Observed = int(c.integer()), int(c.integer()), c.flag(), c.flag()
	return c.err
}

// conditions returns the conditions of the query, without the limit.
func (q TurnQuery) conditions() *conditions {
	w := &conditions{}
	if !q.Session.IsZero() {
		w.add("turns.session = ?", q.Session)
	}
	if condition, args := q.Calls.subqueries("turns.turn", "calls.turn"); condition != "" {
		w.add(condition, args...)
	}
	w.within("turns.time", q.From, q.To)
	plain := len(w.parts) == 0
	if q.Agent != "" {
		w.also("+turns.agent = ?", q.Agent)
	}
	w.where(q.Where, plain)
	return w
}

// Turns returns the selected turns in the order of their first events.
func (s *Snapshot) Turns(q TurnQuery) (all []ListedTurn, err error) {
	w := q.conditions()
	err = s.each(func(c *columnReader) error {
		all = append(all, ListedTurn{})
		return all[len(all)-1].scan(c)
	}, "SELECT "+listedTurnColumns+" FROM turns WHERE "+w.text()+" ORDER BY position DESC LIMIT ?", append(w.args, atMost(q.Limit, q.Skip))...)
	slices.Reverse(all)
	return page(all, q.Limit, q.Skip), err
}

// readTurnBefore selects the last turn of a session before a position.
const readTurnBefore = "SELECT " + turnColumns + " FROM turns WHERE session = ? AND position < ? ORDER BY position DESC LIMIT 1"

// TurnBefore returns the turn of the same session before a turn, and whether there is one.
func (s *Snapshot) TurnBefore(t Turn) (before Turn, ok bool, err error) {
	err = s.each(func(c *columnReader) error {
		ok = true
		return before.scan(c)
	}, readTurnBefore, t.Session, t.Position)
	return before, ok, err
}

// Condition returns a condition of SQL over the table turns that holds for the selected turns,
// with its arguments, which are texts and int64 numbers. It ignores the limit.
func (q TurnQuery) Condition() (string, []any) {
	w := q.conditions()
	if len(w.parts) == 0 {
		return "", nil
	}
	return "turns.turn IN (SELECT turns.turn FROM turns WHERE " + w.text() + ")", columnValues(w.args)
}
