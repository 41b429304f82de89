package index

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// A CallQuery selects calls that a reply asks for. The zero CallQuery selects all of them.
type CallQuery struct {
	Session  domain.SessionID
	Turn     domain.TurnID
	Tool     string
	Open     bool             // calls without a settlement
	Outcomes []domain.Outcome // calls settled with one of these; with Open, those too
	From, To time.Time        // the time of the reply; To is excluded; zero: unbounded
	Limit    int              // the last so many; 0: all
}

// Calls returns the selected calls in the order of their first events.
func (s *Snapshot) Calls(q CallQuery) ([]calls.Call, error) {
	rows, err := s.newest(q)
	if err != nil {
		return nil, err
	}
	endings := q.endings()
	if rows != nil {
		endings = nil
	}
	for _, ending := range endings {
		text, args := q.statement(ending)
		found, err := s.callRows(text, args...)
		if err != nil {
			return nil, err
		}
		rows = append(rows, found...)
	}
	slices.SortFunc(rows, func(a, b callRow) int { return cmp.Compare(a.id, b.id) })
	if q.Limit > 0 {
		rows = rows[max(0, len(rows)-q.Limit):]
	}
	all := make([]calls.Call, len(rows))
	for i := range rows {
		all[i] = rows[i].Call
	}
	return all, nil
}

// newestCalls is the number of calls that newest reads.
const newestCalls = 2048

// newest returns the selected calls if a period and a limit are the only conditions and the
// newest calls have as many as the limit, and otherwise nil. The index of times would read
// the whole period.
func (s *Snapshot) newest(q CallQuery) ([]callRow, error) {
	if q.Limit == 0 || q.From.IsZero() && q.To.IsZero() || !q.Session.IsZero() || !q.Turn.IsZero() || q.Tool != "" || q.Open || len(q.Outcomes) > 0 {
		return nil, nil
	}
	text := selection("calls", callColumns) + " WHERE id > (SELECT max(id) FROM calls) - ? AND +asked_time >= ?"
	args := []any{newestCalls, q.From.UTC().Format(timeLayout)}
	if !q.To.IsZero() {
		text, args = text+" AND +asked_time < ?", append(args, q.To)
	}
	rows, err := s.callRows(text+" ORDER BY id DESC LIMIT ?", append(args, q.Limit)...)
	if err != nil || len(rows) < q.Limit {
		return nil, err
	}
	return rows, nil
}

// anyEnding is the ending of a statement for open and settled calls.
const anyEnding = "any"

// endings returns the endings for each of which Calls executes a statement.
func (q CallQuery) endings() []string {
	var all []string
	if q.Open {
		all = append(all, "")
	}
	for _, o := range q.Outcomes {
		if o := o.String(); !slices.Contains(all, o) {
			all = append(all, o)
		}
	}
	if all == nil {
		return []string{anyEnding}
	}
	return all
}

// statement returns the statement for one ending. One condition selects the index: the
// first of session, turn, ending, tool and time that the query has. The others have a unary
// plus, by which SQLite uses no index for them, because it cannot know which is the best.
func (q CallQuery) statement(ending string) (string, []any) {
	var where []string
	var args []any
	add := func(condition string, more ...any) {
		if len(where) > 0 {
			condition = "+" + condition
		}
		where, args = append(where, condition), append(args, more...)
	}
	if !q.Session.IsZero() {
		add("session = ?", q.Session)
	}
	if !q.Turn.IsZero() {
		add("turn = ?", q.Turn)
	}
	switch ending {
	case anyEnding:
	case "":
		add("state <> 'settled'")
	case domain.Succeeded.String():
		where, args = append(where, "+outcome = ?"), append(args, ending)
	default:
		add("outcome = ?", ending)
		where = append(where, "outcome <> 'succeeded'")
	}
	if q.Tool != "" {
		add("tool = ?", q.Tool)
	}
	if len(where) > 0 {
		add("asked_time IS NOT NULL")
	} else if q.From.IsZero() && q.To.IsZero() {
		where = append(where, "+asked_time IS NOT NULL")
	}
	plus := strings.Repeat("+", min(1, len(where)))
	if !q.From.IsZero() {
		where, args = append(where, plus+"asked_time >= ?"), append(args, q.From)
	}
	if !q.To.IsZero() {
		where, args = append(where, plus+"asked_time < ?"), append(args, q.To)
	}
	return selection("calls", callColumns) + " WHERE " + strings.Join(where, " AND ") + " ORDER BY id DESC LIMIT ?", append(args, atMost(q.Limit))
}

// atMost returns the argument of LIMIT for a limit, of which 0 means all.
func atMost(limit int) int {
	if limit == 0 {
		return -1
	}
	return limit
}

// readOrphans selects the orphans.
var readOrphans = selection("calls", callColumns) + " WHERE asked_time IS NULL ORDER BY id"

// Orphans returns the calls of which the log has a start or a result, and no reply that
// asks for them, in the order of their first events.
func (s *Snapshot) Orphans() ([]calls.Call, error) {
	rows, err := s.callRows(readOrphans)
	all := make([]calls.Call, len(rows))
	for i := range rows {
		all[i] = rows[i].Call
	}
	return all, err
}

// A SessionQuery selects sessions. The zero SessionQuery selects all of them.
type SessionQuery struct {
	Agent string
	// From and To bound a period, which overlaps the time from the first to the last event
	// of the session. To is excluded; zero: unbounded.
	From, To time.Time
	Limit    int // the last so many; 0: all
}

// Sessions returns the selected sessions in the order of their first events.
func (s *Snapshot) Sessions(q SessionQuery) ([]calls.Session, error) {
	where, args := []string{"number > 0"}, []any(nil)
	add := func(condition string, arg any) { where, args = append(where, condition), append(args, arg) }
	if q.Agent != "" {
		where = nil
		add("agent = ?", q.Agent)
	}
	if !q.From.IsZero() && q.Agent == "" {
		where = nil
		add("last_time >= ?", q.From)
	} else if !q.From.IsZero() {
		add("+last_time >= ?", q.From)
	}
	if !q.To.IsZero() {
		add("opened_time < ?", q.To)
	}
	rows, err := s.sessionRows(selection("sessions", sessionColumns)+" WHERE "+strings.Join(where, " AND ")+" ORDER BY number DESC LIMIT ?", append(args, atMost(q.Limit))...)
	slices.Reverse(rows)
	all := make([]calls.Session, len(rows))
	for i := range rows {
		all[i] = rows[i].Session
	}
	return all, err
}
