package index

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// quoted returns a text as a literal of SQL.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// A hostile full-text query gives rows or an ErrStatement, and leaves the index as it is.
func TestAHostileSearchIsRefusedOrAnswered(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(41, 60))
	x := newIndex(t, l)
	want := dump(t, x)
	long := maxStatement - 1000
	for _, query := range []string{
		"", "'", "\"", "\"\"", "'; DROP TABLE calls; --", "a OR", "NEAR(", "NEAR(a b, 99999999999999999999)", "^", "*", "a*", "-a", "text : a", "nowhere : a", "{text nowhere} : a",
		"a NOT", "NOT a", "+", "()", ")(", "a\x00b", "\x00", "\xff\xfe", "\u202e", "🦊", "AND OR NOT", "rank", "text_search",
		strings.Repeat("(", long), strings.Repeat("a ", long/2), strings.Repeat("a OR ", long/5) + "a", strings.Repeat("a NOT ", long/6) + "a", strings.Repeat("\"", long),
		strings.Repeat("x", long), strings.Repeat("a + ", long/4) + "a", strings.Repeat("NEAR(", long/5), strings.Repeat("{text} : ", long/9) + "a",
		strings.Repeat("a ", 5<<20),
	} {
		for _, statement := range []string{
			"SELECT rowid FROM text_search WHERE text_search MATCH " + quoted(query),
			"SELECT count(*) FROM text_words WHERE term = " + quoted(query),
		} {
			rows, err := x.Query(t.Context(), statement)
			if err == nil {
				for _, later := range rows.All() {
					err = errors.Join(err, later)
				}
				err = errors.Join(err, rows.Close())
			}
			if err != nil && !errors.Is(err, ErrStatement) {
				t.Errorf("Query of %.40q = %.200v, want rows or ErrStatement", query, err)
			}
		}
	}
	same(t, "afterwards", dump(t, x), want)
}

// Texts with bytes that are no characters, with NUL, and of 10 MB are indexed as they are,
// up to the bounds, and so are events of a clock that goes back and a stream name of 10,000
// bytes.
func TestHostileEventsAreIndexed(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(42)
	session := log.Mint.Session()
	stream := events.SessionStream(session)
	log.Add(stream, events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}})
	for _, text := range []string{"a\x00b weasel", "'; DROP TABLE calls; --", "\u202eotter", strings.Repeat("x", 10<<20), strings.Repeat("ferret ", 1<<20), "\"NEAR(\""} {
		log.Add(stream, events.PromptAdmitted{Message: log.Mint.Message(), Text: text})
	}
	history := log.Envelopes()
	for i := range history {
		history[i].Time = history[0].Time.Add(-time.Duration(i) * time.Hour)
	}
	l, store := newLedger(t, history)
	x := New(filepath.Join(t.TempDir(), "index"))
	noError(t, x.CatchUp(t.Context(), l, nil))
	same(t, "weasel, otter, ferret", table(t, x, "SELECT rowid FROM text_search WHERE text_search MATCH 'weasel OR otter OR ferret' ORDER BY rowid"), []string{"1", "3", "5"})
	same(t, "times", table(t, x, "SELECT opened_time > last_time FROM sessions"), []string{"1"})

	name := events.Stream("other_" + strings.Repeat("n", 10_000-len("other_")))
	r, err := events.Encode(events.Draft{ID: log.Mint.Event(), Time: history[0].Time, Event: events.Unknown{Name: "SomethingElse", Version: 1, Data: []byte("{}")}})
	noError(t, err)
	noError(t, store.Append(t.Context(), name, 0, r))
	for range 2 { // the second one finds the event by its stream
		noError(t, x.CatchUp(t.Context(), l, nil))
		s, err := x.Status(t.Context(), l)
		if err != nil || s.State != Current {
			t.Errorf("Status = %s %q, %v, want current", s.State, s.Reason, err)
		}
	}
	same(t, "the stream", table(t, x, "SELECT length(stream), kind FROM unknown_events"), []string{"10000|SomethingElse"})
	if found, err := Compare(t.Context(), l, x, nil); err != nil || found != nil {
		t.Errorf("Compare = %v, %v, want no difference", found, err)
	}
	same(t, "filled in one pass", dump(t, newIndex(t, l)), dump(t, x))
}

// The rows in memory of a fill are bounded, however long a session is.
func TestALongSessionIsFilledInBoundedMemory(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(43)
	session := log.Mint.Session()
	stream := events.SessionStream(session)
	log.Add(stream, events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}})
	turns := rounds(length(7000), 250_000)
	for i := range turns {
		turn, message := log.Mint.Turn(), log.Mint.Message()
		id := domain.CallID(fmt.Sprint("call_", i))
		log.Add(stream, events.TurnMaterialized{Turn: turn, Message: message, Agent: "build"})
		log.Add(stream, events.ReplyReceived{Turn: turn, Message: message, Calls: []domain.Call{{ID: id, Name: "read", Input: []byte("{}")}}})
		log.Add(stream, events.CallStarted{Turn: turn, Message: message, Call: id, Tool: "read"})
		log.Add(stream, events.CallSettled{Turn: turn, Message: message, Call: id, Tool: "read", Outcome: domain.Succeeded, Began: true, Text: "ok"})
	}
	d, err := connect(filepath.Join(t.TempDir(), linkName), writing, bulkPragmas)
	noError(t, err)
	f, err := newBulkFiller(d, maxBatchEvents, true)
	noError(t, err)
	most := 0
	for i, v := range log.Envelopes() {
		v.Position = events.NewPosition(uint64(i+1), uint64(i+1))
		noError(t, f.add(v))
		most = max(most, len(f.calls), len(f.messages), len(f.changed.calls))
	}
	noError(t, errors.Join(f.finish(), d.close()))
	if bound := maxCachedMessages + maxBatchEvents; most > bound {
		t.Errorf("the fill had %d rows in memory, want at most %d", most, bound)
	}
	if len(f.changed.calls) > maxBatchEvents || !slices.Equal([]int64{f.last.call, f.last.message}, []int64{int64(turns), int64(turns)}) {
		t.Errorf("the fill made %d calls and %d messages, want %d of each", f.last.call, f.last.message, turns)
	}
}
