package index

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// newLedger returns a ledger over a store in memory that has a history.
func newLedger(t *testing.T, history []events.Envelope) (*events.Ledger, *eventstest.Slice) {
	t.Helper()
	store := eventstest.NewSlice()
	noError(t, projectionstest.Append(t.Context(), store, history))
	return events.NewLedger(store, domain.NewMint(time.Now, zeros{}), time.Now), store
}

// zeros is an entropy source of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newIndex returns an index in a new folder that has every event of a ledger.
func newIndex(t *testing.T, l *events.Ledger) *Index {
	t.Helper()
	x := New(filepath.Join(t.TempDir(), "index"))
	noError(t, x.CatchUp(t.Context(), l, nil))
	return x
}

// table returns the rows of a statement, one line for each.
func table(t *testing.T, x *Index, statement string) []string {
	t.Helper()
	rows, err := x.Query(t.Context(), statement)
	noError(t, err)
	defer rows.Close()
	var lines []string
	for row, err := range rows.All() {
		noError(t, err)
		cells := make([]string, len(row))
		for i, v := range row {
			cells[i] = fmt.Sprint(v)
			if v == nil {
				cells[i] = ""
			}
		}
		lines = append(lines, strings.Join(cells, "|"))
	}
	return lines
}

// dump returns the rows of all tables.
func dump(t *testing.T, x *Index) []string {
	t.Helper()
	var all []string
	for _, table0 := range Tables() {
		if table0.Name == "text_search" || slices.Contains(textTables, table0.Name) && !x.hasText(t.Context()) {
			continue
		}
		statement := "SELECT * FROM " + table0.Name
		if !table0.Virtual {
			statement += " ORDER BY " + strings.Join(table0.key(), ", ")
		}
		for _, line := range table(t, x, statement) {
			all = append(all, table0.Name+": "+line)
		}
	}
	return all
}

// same fails the test at the first difference of two dumps.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: row %d is\n  %s\nwant\n  %s", what, i, at(got, i), at(want, i))
		}
	}
}

// at returns an element, or a text that says that there is none.
func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(none)"
}

// rounds returns the number of rounds of a random test: many with LEDGER_TEST_LONG.
func rounds(few, many int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return many
	}
	return few
}

// length returns the number of events of a random history: n, and a tenth of that with the
// race detector.
func length(n int) int {
	if raceEnabled {
		return n / 10
	}
	return n
}

// fold returns the state of a projection over a whole ledger.
func fold[S any](t *testing.T, p projections.Projection[S], l *events.Ledger) S {
	t.Helper()
	state, err := projections.Fold(p, p.Init(), l.ReadAll(t.Context(), events.Position{}))
	noError(t, err)
	return state
}

// The calls and the sessions of the index are those of projections/calls.
func TestCallsAndSessionsAreThoseOfTheFold(t *testing.T) {
	t.Parallel()
	for seed := range uint64(rounds(2, 60)) {
		l, _ := newLedger(t, projectionstest.History(seed, length(600)))
		x := newIndex(t, l)
		state := fold(t, calls.Projection(), l)
		var want []string
		for _, c := range append(state.Calls(), state.Orphans()...) {
			want = append(want, callLine(c))
		}
		got := table(t, x, `SELECT session, message, call, turn, parent, tool, title, agent, location, imported, state, outcome, began, interruption, input, input_complete,
			shown, error, detail, registration, process, asked_time, started_time, settled_time, asked_position, started_position, settled_position, asked_event, started_event,
			settled_event, ran_ms, waited_ms, requests, late_results FROM calls ORDER BY asked_time IS NULL, id`)
		same(t, fmt.Sprintf("calls of seed %d", seed), got, want)

		want = nil
		for i, s := range state.Sessions() {
			want = append(want, fmt.Sprintf("%d|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%s|%d|%s|%d|%d|%d|%d|%d|%s|%s", i+1, s.ID, s.Agent, s.Location, s.Model, s.Parent,
				s.Origin.Kind, s.Origin.Format, s.Origin.Source, when(s.Opened), when(s.LastEvent), "", s.Revision, s.Title, s.Prompts, s.Replies, s.Calls, s.Open, s.Failed, bit(s.Interrupted), bit(s.Closed)))
		}
		got = table(t, x, `SELECT number, session, agent, location, model, parent, origin, origin_format, origin_source, opened_time, last_time, NULL, revision, title,
			prompts, replies, calls, open_calls, failed_calls, interrupted, closed FROM sessions ORDER BY number`)
		same(t, fmt.Sprintf("sessions of seed %d", seed), got, want)

		want = nil
		for _, r := range state.Retained() {
			pruned := ""
			if r.Pruned {
				pruned = when(r.PrunedAt)
			}
			want = append(want, fmt.Sprintf("%s|%s|%s|%s|%d|%s|%s", r.Ref, r.Call.Session, r.Call.Call, r.Settlement, r.Bytes, pruned, r.Policy))
		}
		slices.Sort(want)
		same(t, "outputs", table(t, x, "SELECT output, session, call, settlement, bytes, pruned_time, policy FROM outputs ORDER BY output"), want)
	}
}

// callLine returns the row that a call has in the query above.
func callLine(c calls.Call) string {
	input := string(c.Input)
	if c.InputPreview != "" {
		input = c.InputPreview
	}
	place := func(p calls.Place) string {
		if p.Position.IsZero() {
			return ""
		}
		return p.Position.String()
	}
	s := c.Settlement
	return strings.Join([]string{
		c.Session.String(), c.Message.String(), string(c.ID), c.Turn.String(), string(c.Parent), c.Tool, c.Title, string(c.Agent), c.Location, bit(c.Imported), string(c.State),
		s.Outcome.String(), bit(s.Began), s.Interruption.String(), input, bit(c.InputPreview == ""), c.Preview, s.Text, s.Detail, c.Registration().String(), c.Process.String(),
		when(c.Asked), when(c.Started), when(c.Settled), place(c.AskedAt), place(c.StartedAt), place(c.SettledAt),
		c.AskedAt.Event.String(), c.StartedAt.Event.String(), c.SettledBy.String(), fmt.Sprint(s.RanMS), fmt.Sprint(c.WaitedMS), fmt.Sprint(c.Requests), fmt.Sprint(c.Late),
	}, "|")
}

func when(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(timeLayout)
}

func bit(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
