package verify

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/projections/spill"
)

// checked returns what a Checker over a temporary database finds in a history: its counts
// and exceptions.
func checked(t *testing.T, history []events.Envelope) (calls.Counts, []calls.Exception) {
	t.Helper()
	memory, err := spill.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := memory.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := calls.NewChecker(memory, 60)
	for _, v := range history {
		c.Apply(v)
	}
	counts, found := c.Counts(), c.Exceptions()
	if err := memory.Err(); err != nil {
		t.Fatal(err)
	}
	return counts, found
}

// broken returns a history with breaches planted at random: events that are missing,
// repeated, in the stream of another session, or after their time.
func broken(seed uint64, n int) []events.Envelope {
	log := projectionstest.NewLog(seed + 1000)
	history := projectionstest.History(seed, n)
	var sessions []events.Stream
	var all []events.Envelope
	for _, v := range history {
		if _, ok := v.Stream.Session(); ok && !slices.Contains(sessions, v.Stream) {
			sessions = append(sessions, v.Stream)
		}
		switch log.Rand.IntN(25) {
		case 0: // missing
			continue
		case 1: // repeated, under another ID
			all = append(all, v)
			v.ID = log.Mint.Event()
		case 2: // in another session
			if _, ok := v.Stream.Session(); ok {
				v.Stream = sessions[log.Rand.IntN(len(sessions))]
			}
		case 3: // late
			if len(all) > 3 {
				at := len(all) - 1 - log.Rand.IntN(3)
				all = slices.Insert(all, at, v)
				continue
			}
		}
		all = append(all, v)
	}
	revisions := map[events.Stream]events.Revision{}
	for i := range all {
		revisions[all[i].Stream]++
		all[i].Revision, all[i].Position = revisions[all[i].Stream], events.NewPosition(uint64(i+1), uint64(i+1))
	}
	return all
}

// A check that moves nearly everything to the disk finds the exceptions and the counts of
// a fold in memory, in histories with planted breaches.
func TestTheCheckFromDiskIsTheFoldInMemory(t *testing.T) {
	t.Parallel()
	rounds := 8
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		rounds = 200
	}
	laws := map[calls.Law]bool{}
	for seed := range uint64(rounds) {
		history := broken(seed, 600)
		p := calls.Projection()
		state := p.Init()
		for _, v := range history {
			state = p.Apply(state, v)
		}
		want := calls.Counts{Sessions: len(state.Sessions()), Calls: len(state.Calls()), Outputs: len(state.Retained())}
		for _, c := range state.Calls() {
			if c.State != calls.Settled {
				want.Open++
			}
		}
		for _, e := range state.Unfinished() {
			session, _ := state.Session(e.Session)
			switch {
			case e.Law == calls.WaitsForDecision:
				want.Waiting++
			case session.Imported():
				want.OpenImported++
			}
		}
		for _, c := range state.Orphans() {
			if c.Imported {
				want.OrphansImported++
			}
		}
		counts, found := checked(t, history)
		if counts != want {
			t.Errorf("seed %d: counts %+v, want %+v", seed, counts, want)
		}
		if got, want := fmt.Sprintf("%+v", found), fmt.Sprintf("%+v", state.Exceptions()); got != want {
			t.Fatalf("seed %d: exceptions\n%s\nwant\n%s", seed, got, want)
		}
		for _, e := range found {
			laws[e.Law] = true
		}
	}
	if len(laws) < 12 {
		t.Errorf("the histories break only %d laws: %v", len(laws), laws)
	}
}

// One long session, and a stream with a name of 10,000 bytes, are checked as any other.
func TestALongSessionAndALongNameAreChecked(t *testing.T) {
	t.Parallel()
	n := 2_000
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		n = 1_000_000
	}
	memory, err := spill.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	c, v := calls.NewChecker(memory, 60), newReport(memory)
	mint := projectionstest.NewLog(1).Mint
	session := mint.Session()
	position, revision := uint64(0), events.Revision(0)
	add := func(stream events.Stream, e events.Event) {
		position++
		revision++
		at := events.Envelope{ID: mint.Event(), Stream: stream, Revision: revision, Position: events.NewPosition(position, position), Time: time.Unix(1, 0).UTC(), Event: e}
		v.checkPlace(at)
		c.Apply(at)
	}
	stream := events.SessionStream(session)
	add(stream, events.SessionOpened{Session: session, Origin: events.Origin{Kind: events.Imported, Format: "x"}})
	for i := range n / 2 {
		m, id := mint.Message(), domain.CallID(fmt.Sprint("c", i))
		add(stream, events.ReplyReceived{Message: m, Calls: []domain.Call{{ID: id, Name: "read", Input: json.RawMessage(`{}`)}}})
		add(stream, events.CallSettled{Message: m, Call: id, Tool: "read", Outcome: domain.Succeeded, Began: true})
	}
	revision = 0
	for range 3 {
		add(events.Stream("x-"+strings.Repeat("n", 10_000)), events.Unknown{Name: "Unheard", Version: 1})
	}
	revision++
	add(events.Stream("x-"+strings.Repeat("n", 10_000)), events.Unknown{Name: "Unheard", Version: 1})
	got := c.Counts()
	if got.Calls != n/2 || got.Open != 0 || len(c.Exceptions()) != 0 || memory.Err() != nil {
		t.Errorf("counts %+v, exceptions %v, error %v", got, c.Exceptions(), memory.Err())
	}
	if len(v.Exceptions) != 1 || v.Exceptions[0].Law != StreamInOrder || !strings.HasPrefix(v.Exceptions[0].Detail, "revision 4 is missing") {
		t.Errorf("exceptions %+v, want the gap in the stream with a long name", v.Exceptions)
	}
}
