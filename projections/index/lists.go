package index

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index/where"
)

// A CallQuery selects calls that a reply asks for. The zero CallQuery selects all of them.
type CallQuery struct {
	Session  domain.SessionID
	Turn     domain.TurnID
	Agent    string
	Tool     string
	Open     bool             // calls without a settlement
	Outcomes []domain.Outcome // calls settled with one of these; with Open, those too
	Paths    Paths            // calls that read, wrote or ran on one of these; zero: all calls
	By       string           // calls with a request that this decided: rule, approval, user, headless, recovery or a person; empty: all calls
	Phrase   Phrase           // calls with these words in their inputs or shown texts; zero: all calls
	From, To time.Time        // the time of the reply; To is excluded; zero: unbounded
	Where    *where.Expr      // over CallFields; nil: all calls
	Limit    int              // the last so many; 0: all
	Skip     int              // leave the last so many out, before Limit
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
	rows = page(rows, q.Limit, q.Skip)
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
	if q.Limit == 0 || q.From.IsZero() && q.To.IsZero() || q.Where != nil || q.restricts() {
		return nil, nil
	}
	text := selection("calls", callColumns) + " WHERE id > (SELECT max(id) FROM calls) - ? AND +asked_time >= ?"
	args := []any{newestCalls, q.From.UTC().Format(timeLayout)}
	if !q.To.IsZero() {
		text, args = text+" AND +asked_time < ?", append(args, q.To)
	}
	rows, err := s.callRows(text+" ORDER BY id DESC LIMIT ?", append(args, q.Limit+q.Skip)...)
	if err != nil || len(rows) < q.Limit+q.Skip {
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

// statement returns the statement for one ending.
func (q CallQuery) statement(ending string) (string, []any) {
	if q.Limit > 0 && !(q.From.IsZero() && q.To.IsZero()) && q.Where == nil && !q.restricts() {
		return q.period()
	}
	condition, args := q.condition(ending)
	return selection("calls", callColumns) + " WHERE " + condition + " ORDER BY id DESC LIMIT ?", append(args, atMost(q.Limit, q.Skip))
}

// condition returns the condition of SQL for one ending. One part of it selects the index:
// the first of session, turn, phrase, paths, decision, ending, tool, agent and time that the
// query has, or else Where. The others have a unary plus, by which SQLite uses no index for
// them, because it cannot know which is the best.
func (q CallQuery) condition(ending string) (string, []any) {
	w := &conditions{}
	if !q.Session.IsZero() {
		w.add("calls.session = ?", q.Session)
	}
	if !q.Turn.IsZero() {
		w.add("calls.turn = ?", q.Turn)
	}
	if q.Phrase.text != "" {
		w.add("calls.id IN (SELECT c.id FROM text_search CROSS JOIN texts ON texts.id = text_search.rowid CROSS JOIN calls AS c ON "+joinsCall("texts")+" WHERE text_search MATCH ?)", q.Phrase.match())
	}
	if q.Paths.selects() {
		in, args := q.Paths.in("path_uses.path")
		w.add("calls.id IN (SELECT path_uses.call FROM path_uses WHERE "+in+")", args...)
	}
	if q.By != "" {
		w.add("calls.id IN ("+decidedCalls+")", q.By, q.By, q.By, q.By)
	}
	switch ending {
	case anyEnding:
	case "":
		w.add("calls.state <> 'settled'")
	case domain.Succeeded.String():
		w.also("+calls.outcome = ?", ending)
	default:
		w.add("calls.outcome = ?", ending)
		w.also("calls.outcome <> 'succeeded'")
	}
	if q.Tool != "" {
		w.add("calls.tool = ?", q.Tool)
	}
	if q.Agent != "" {
		w.add("calls.agent = ?", q.Agent)
	}
	if len(w.parts) > 0 {
		w.add("calls.asked_time IS NOT NULL")
	} else if q.From.IsZero() && q.To.IsZero() {
		w.also("+calls.asked_time IS NOT NULL")
	}
	w.within("calls.asked_time", q.From, q.To)
	w.where(q.Where, !q.restricts() && q.From.IsZero() && q.To.IsZero())
	return w.text(), w.args
}

// restricts reports whether the query has a condition besides its period and Where.
func (q CallQuery) restricts() bool {
	q.From, q.To, q.Where = time.Time{}, time.Time{}, nil
	return q.any()
}

// any reports whether the query has a condition.
func (q CallQuery) any() bool {
	return !q.Session.IsZero() || !q.Turn.IsZero() || q.Agent != "" || q.Tool != "" || q.Open || len(q.Outcomes) > 0 || q.Paths.selects() || q.By != "" ||
		q.Phrase.text != "" || !q.From.IsZero() || !q.To.IsZero() || q.Where != nil
}

// Condition returns a condition of SQL over the table calls that holds for the selected calls,
// with its arguments, which are texts and int64 numbers; empty: all calls are selected. It
// ignores the limit.
func (q CallQuery) Condition() (string, []any) {
	condition, args := q.subqueries("calls.id", "calls.id")
	return condition, columnValues(args)
}

// joinsCall returns the condition of SQL that finds the call c of a row of a table.
func joinsCall(table string) string {
	return "c.message = " + table + ".message AND c.call = " + table + ".call AND c.session = " + table + ".session"
}

// decidedCalls selects the calls with a request that someone decided.
var decidedCalls = strings.Join([]string{
	"SELECT c.id FROM permissions CROSS JOIN calls AS c ON " + joinsCall("permissions") + " WHERE permissions.decided_by = ?",
	"SELECT c.id FROM permissions CROSS JOIN calls AS c ON " + joinsCall("permissions") + " WHERE permissions.person = ?",
	"SELECT c.id FROM questions CROSS JOIN calls AS c ON " + joinsCall("questions") + " WHERE questions.answered_by = ?",
	"SELECT c.id FROM questions CROSS JOIN calls AS c ON " + joinsCall("questions") + " WHERE questions.person = ?",
}, " UNION ALL ")

// subqueries returns a condition of SQL that holds for the rows whose columns are those of a
// selected call, or the empty text if the query selects all calls. It ignores the limit.
func (q CallQuery) subqueries(columns, ofCalls string) (string, []any) {
	if !q.any() {
		return "", nil
	}
	var parts []string
	var args []any
	for _, ending := range q.endings() {
		condition, more := q.condition(ending)
		parts, args = append(parts, "SELECT "+ofCalls+" FROM calls WHERE "+condition), append(args, more...)
	}
	return columns + " IN (" + strings.Join(parts, " UNION ALL ") + ")", args
}

// period returns the statement for a query with a period and a limit as its only
// conditions. It reads the index of times over the period, and the rows that it returns.
func (q CallQuery) period() (string, []any) {
	w := &conditions{}
	w.also("calls.asked_time IS NOT NULL")
	w.within("calls.asked_time", q.From, q.To)
	return selection("calls", callColumns) + " WHERE id IN (SELECT id FROM calls WHERE " + w.text() + " ORDER BY id DESC LIMIT ?) ORDER BY id DESC", append(w.args, atMost(q.Limit, q.Skip))
}

// atMost returns the argument of LIMIT for a limit, of which 0 means all, and the rows that
// page leaves out.
func atMost(limit, skip int) int {
	if limit == 0 {
		return -1
	}
	return limit + skip
}

// page returns the last rows of a list, at most limit, without the last skip ones; 0 is no
// limit.
func page[T any](all []T, limit, skip int) []T {
	all = all[:max(0, len(all)-skip)]
	if limit > 0 {
		all = all[max(0, len(all)-limit):]
	}
	return all
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
	Session domain.SessionID
	Agent   string
	// From and To bound a period, which overlaps the time from the first to the last event
	// of the session. To is excluded; zero: unbounded.
	From, To time.Time
	Parent   domain.SessionID // the session that started them; zero: any or none
	Calls    CallQuery        // sessions with such a call; zero: all sessions
	Where    *where.Expr      // over SessionFields; nil: all sessions
	Limit    int              // the last so many; 0: all
	Skip     int              // leave the last so many out, before Limit
}

// A Session is one session with the sums of its index rows.
type Session struct {
	calls.Session
	Turns            int64
	Tokens           events.Tokens // of its replies
	ProviderFailures int64
	UnknownEvents    int64
}

// Sessions returns the selected sessions in the order of their first events.
func (s *Snapshot) Sessions(q SessionQuery) ([]Session, error) {
	w := &conditions{}
	if !q.Session.IsZero() {
		w.add("sessions.session = ?", q.Session)
	}
	condition, args := q.Calls.subqueries("sessions.session", "calls.session")
	if condition != "" {
		w.add(condition, args...)
	}
	if q.Agent != "" {
		w.add("sessions.agent = ?", q.Agent)
	}
	if !q.From.IsZero() {
		w.add("sessions.last_time >= ?", q.From)
	}
	if !q.Parent.IsZero() {
		w.add("sessions.parent = ?", q.Parent)
	}
	plain := len(w.parts) == 0 && q.To.IsZero()
	if len(w.parts) == 0 {
		w.also("number > 0")
	}
	if !q.To.IsZero() {
		w.also("+sessions.opened_time < ?", q.To)
	}
	w.where(q.Where, plain)
	rows, err := s.sessionRows(selection("sessions", sessionColumns)+" WHERE "+w.text()+" ORDER BY number DESC LIMIT ?", append(w.args, atMost(q.Limit, q.Skip))...)
	slices.Reverse(rows)
	rows = page(rows, q.Limit, q.Skip)
	all := make([]Session, len(rows))
	for i, r := range rows {
		all[i] = Session{r.Session, r.turns, r.tokens, r.providerFailures, r.unknownEvents}
	}
	return all, err
}

// readOutcomes counts the calls of each outcome of a session.
const readOutcomes = "SELECT coalesce(outcome, 'open'), count(*) FROM calls WHERE session = ? AND +asked_time IS NOT NULL GROUP BY 1"

// OutcomesOf returns the number of calls of each outcome for sessions, with OpenOutcome for
// calls without a settlement.
func (s *Snapshot) OutcomesOf(sessions []Session) (map[domain.SessionID]map[string]int, error) {
	all := map[domain.SessionID]map[string]int{}
	for _, one := range sessions {
		counts := map[string]int{}
		if one.Calls > 0 {
			err := s.each(func(c *columnReader) error {
				outcome := c.string()
				counts[outcome] = int(c.integer())
				return nil
			}, readOutcomes, one.ID)
			if err != nil {
				return nil, err
			}
		}
		all[one.ID] = counts
	}
	return all, nil
}
