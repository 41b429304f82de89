package verify

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// verify reports a gap in the revisions of a stream, and a position that does not
// increase. No store of this module has either.
func TestVerifyFindsAGap(t *testing.T) {
	t.Parallel()
	v := newReport(nil)
	for position, revision := range []events.Revision{1, 2, 4, 5} {
		v.checkPlace(events.Envelope{Stream: "process-x", Revision: revision, Position: events.NewPosition(uint64(position+1), uint64(position+1))})
	}
	v.checkPlace(events.Envelope{Stream: "process-y", Revision: 1, Position: events.NewPosition(4, 4)})
	if len(v.Exceptions) != 2 || *v.Exceptions[0].Revision != 4 || *v.Exceptions[1].Stream != "process-y" {
		t.Errorf("exceptions %v, want the gap and the position that does not increase", v.Exceptions)
	}
}

// verify compares the first index that exists with the log. The second log has another event
// under an ID of the first one, which only a comparison of the rows shows.
func TestVerifyComparesTheIndex(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(1)
	session := log.Mint.Session()
	for _, e := range []events.Event{
		events.SessionOpened{Session: session, Origin: events.Origin{Kind: events.RunHere}},
		events.PromptAdmitted{Message: log.Mint.Message(), Text: "one"},
		events.PromptAdmitted{Message: log.Mint.Message(), Text: "last"},
	} {
		log.Add(events.SessionStream(session), e)
	}
	ledgerOf := func(history []events.Envelope) *events.Ledger {
		store := eventstest.NewSlice()
		if err := projectionstest.Append(t.Context(), store, history); err != nil {
			t.Fatal(err)
		}
		return events.NewLedger(store, log.Mint, time.Now)
	}
	history := log.Envelopes()
	l, filled := ledgerOf(history), index.New(t.TempDir())
	if err := filled.CatchUp(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(history)
	other[1].Event = events.PromptAdmitted{Message: log.Mint.Message(), Text: "two"}
	for _, c := range []struct {
		ledger *events.Ledger
		index  *index.Index
		want   string
		laws   int
	}{
		{l, filled, indexEqual, 0},
		{ledgerOf(other), filled, indexDifferent, 1},
		{l, index.New(t.TempDir()), indexAbsent, 0},
	} {
		v := newReport(nil)
		err := v.checkIndex(t.Context(), &stores.Store{Ledger: c.ledger}, []*index.Index{index.New(t.TempDir()), c.index}, &render.ProgressBar{})
		if err != nil || v.Index != c.want || len(v.Exceptions) != c.laws || c.laws > 0 && v.Exceptions[0].Law != IndexAgrees {
			t.Errorf("the index is %s with the exceptions %+v, %v; want %s with %d", v.Index, v.Exceptions, err, c.want, c.laws)
		}
	}
}

// verify reports a fork whose past is not the event that it names, or is not on record
// before the fork.
func TestVerifyFindsAForkWithoutItsPast(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	log := projectionstest.NewLog(1)
	parent, fork := log.Mint.Session(), log.Mint.Session()
	log.Add(events.SessionStream(parent), events.SessionOpened{Session: parent, Origin: events.Origin{Kind: events.RunHere}})
	log.Add(events.SessionStream(parent), events.PromptAdmitted{Message: log.Mint.Message(), Text: "one"})
	log.Add(events.SessionStream(fork), events.SessionOpened{Session: fork, Origin: events.Origin{Kind: events.Forked}})
	history := log.Envelopes()
	if err := projectionstest.Append(t.Context(), store, history); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		e        events.SessionForked
		position uint64
		wants    int
	}{
		"its past":               {events.SessionForked{Parent: parent, Revision: 2, Event: history[1].ID}, 9, 0},
		"another event":          {events.SessionForked{Parent: parent, Revision: 1, Event: history[1].ID}, 9, 1},
		"behind the end":         {events.SessionForked{Parent: parent, Revision: 3, Event: history[1].ID}, 9, 1},
		"no revision":            {events.SessionForked{Parent: parent, Event: history[1].ID}, 9, 1},
		"an unknown session":     {events.SessionForked{Parent: log.Mint.Session(), Revision: 1, Event: history[1].ID}, 9, 1},
		"a past that came later": {events.SessionForked{Parent: parent, Revision: 2, Event: history[1].ID}, 1, 1},
	} {
		v := newReport(nil)
		at := events.Envelope{Stream: events.SessionStream(fork), Revision: 2, Position: events.NewPosition(c.position, c.position), Event: c.e}
		if err := v.checkPast(t.Context(), store, at, c.e); err != nil {
			t.Fatal(err)
		}
		if len(v.Exceptions) != c.wants || c.wants > 0 && v.Exceptions[0].Law != PastResolves {
			t.Errorf("%s: exceptions %v, want %d of the law", name, v.Exceptions, c.wants)
		}
	}
}

// An index that the next command replaces, and one that cannot be read, is no exception: verify
// says so and reports on the log.
func TestVerifyGoesOnWithoutAnIndexThatItCannotCompare(t *testing.T) {
	t.Parallel()
	ledgerOf := func(seed uint64) *events.Ledger {
		store := eventstest.NewSlice()
		if err := projectionstest.Append(t.Context(), store, projectionstest.History(seed, 30)); err != nil {
			t.Fatal(err)
		}
		return events.NewLedger(store, domain.NewMint(time.Now, nil), time.Now)
	}
	l := ledgerOf(1)
	filled := func(l *events.Ledger) (*index.Index, string) {
		dir := t.TempDir()
		x := index.New(dir)
		if err := x.CatchUp(t.Context(), l, nil); err != nil {
			t.Fatal(err)
		}
		return x, dir
	}
	write := func(x *index.Index, content string) *index.Index {
		if err := os.WriteFile(x.Path(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return x
	}
	foreign, _ := filled(ledgerOf(2))
	garbage, _ := filled(l)
	current, _ := filled(l)
	closed, dir := filled(l)
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Error(err)
		}
	})
	_, err := os.ReadDir(dir)
	privileged := err == nil // permissions do not bind this user
	for name, c := range map[string]struct {
		index   *index.Index
		damaged bool
		want    string
	}{
		"of another log":        {index: foreign, want: indexUnfit},
		"no database":           {index: write(garbage, strings.Repeat("no database ", 2000)), want: indexUnfit},
		"of a damaged log":      {index: current, damaged: true, want: indexUnread},
		"in a forbidden folder": {index: closed, want: indexUnread},
	} {
		if c.index == closed && privileged {
			continue
		}
		v := newReport(nil)
		v.damaged = c.damaged
		if err := v.checkIndex(t.Context(), &stores.Store{Ledger: l}, []*index.Index{c.index}, &render.ProgressBar{}); err != nil || v.Index != c.want || len(v.Exceptions) > 0 {
			t.Errorf("an index %s is %s with the exceptions %+v, %v; want %s", name, v.Index, v.Exceptions, err, c.want)
		}
	}
}
