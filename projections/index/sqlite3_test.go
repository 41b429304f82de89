package index

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// The program sqlite3 of the system answers ten questions over a copy of an index as a fold
// of the log does.
func TestSQLite3AnswersAsTheLogDoes(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("sqlite3 is not installed: apt-get install sqlite3")
	}
	for seed := range uint64(rounds(1, 20)) {
		l, _ := newLedger(t, projectionstest.History(seed+50, length(800)))
		x := newIndex(t, l)
		data, err := os.ReadFile(x.Path()) // through the link, as cp does
		noError(t, err)
		copied := filepath.Join(t.TempDir(), "copy.db")
		noError(t, os.WriteFile(copied, data, 0o600))
		for question, want := range answers(t, l) {
			text, err := exec.CommandContext(t.Context(), program, "-readonly", "-batch", copied, question).CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v: %s", question, err, text)
			}
			got := strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
			same(t, question, got, want)
			same(t, "this program: "+question, table(t, x, question), want)
		}
	}
}

// answers returns ten questions in SQL with the rows that a fold of the log gives.
func answers(t *testing.T, l *events.Ledger) map[string][]string {
	t.Helper()
	state, registered := fold(t, calls.Projection(), l), fold(t, catalog.Projection(), l)
	var log []events.Envelope
	word, perKind, decided, turns := "", map[string]int{}, map[string]int{}, 0
	seen, ended := map[string]bool{}, map[string]bool{}
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		noError(t, err)
		log = append(log, v)
		switch e := v.Event.(type) {
		case events.PromptAdmitted:
			if words := wordsOf(e.Text); word == "" && len(words) > 0 {
				word = words[0]
			}
		case events.Unknown:
			perKind[e.Name]++
		case events.TurnMaterialized:
			if key := string(v.Stream) + e.Turn.String(); !seen[key] {
				seen[key] = true
				turns++
			}
		case events.PermissionDecided:
			if key := e.Permission.String(); !ended[key] {
				ended[key] = true
				decided[string(e.By)]++
			}
		}
	}
	byTool, bySession, open, slow := map[string]int{}, map[string]int{}, 0, []string{}
	for _, c := range state.Calls() {
		byTool[c.Tool+"|"+c.Settlement.Outcome.String()]++
		bySession[c.Session.String()]++
		if c.State != calls.Settled {
			open++
		}
		slow = append(slow, fmt.Sprintf("%012d|%s", c.Settlement.RanMS, c.Session))
	}
	slices.Sort(slow)
	inEffect, prompts := 0, 0
	for _, layer := range registered.Layers() {
		for _, r := range layer.Registrations {
			if layer.Ended == 0 && r.Ended == 0 {
				inEffect++
			}
		}
	}
	for _, v := range log {
		if e, ok := v.Event.(events.PromptAdmitted); ok && slices.Contains(wordsOf(e.Text), word) {
			prompts++
		}
	}
	titles := []string{}
	for _, s := range state.Sessions() {
		titles = append(titles, fmt.Sprintf("%s|%d|%d", s.ID, s.Prompts, s.Replies))
	}
	slices.Sort(titles)
	return map[string][]string{
		"SELECT events, last_event FROM index_state":                                                                                   {fmt.Sprintf("%d|%s", len(log), log[len(log)-1].ID)},
		"SELECT session, prompts, replies FROM sessions ORDER BY 1":                                                                    titles,
		"SELECT tool, coalesce(outcome, ''), count(*) FROM calls WHERE asked_time IS NOT NULL GROUP BY 1, 2":                           counted(byTool),
		"SELECT count(*) FROM calls WHERE state <> 'settled'":                                                                          {fmt.Sprint(open)},
		"SELECT session, count(*) FROM calls WHERE asked_time IS NOT NULL GROUP BY 1":                                                  counted(bySession),
		"SELECT printf('%012d', ran_ms), session FROM calls WHERE asked_time IS NOT NULL ORDER BY 1, 2":                                slow,
		"SELECT decided_by, count(*) FROM permissions WHERE decided_event IS NOT NULL GROUP BY 1":                                      counted(decided),
		"SELECT count(*) FROM registrations JOIN layers USING (layer) WHERE ended_position IS NULL AND layers.closed_position IS NULL": {fmt.Sprint(inEffect)},
		"SELECT kind, count(*) FROM unknown_events GROUP BY 1":                                                                         counted(perKind),
		"SELECT (SELECT count(*) FROM turns), (SELECT count(*) FROM texts JOIN text_search ON texts.id = text_search.rowid WHERE kind = 'prompt' AND text_search MATCH '" + word + "')": {
			fmt.Sprintf("%d|%d", turns, prompts)},
	}
}

// counted returns a line for each key, in order, with its count.
func counted(counts map[string]int) (lines []string) {
	for key, n := range counts {
		lines = append(lines, fmt.Sprintf("%s|%d", key, n))
	}
	slices.Sort(lines)
	return lines
}

// wordsOf returns the words of a text as the full-text index has them, for texts of ASCII.
func wordsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
