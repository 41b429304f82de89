package index

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// touched returns a history with one session of a workspace that reads each path.
func touched(location string, paths ...string) []events.Envelope {
	log := projectionstest.NewLog(3)
	stream := events.SessionStream(log.Mint.Session())
	log.Add(stream, events.SessionOpened{Agent: "build", Location: location})
	reply := events.ReplyReceived{Message: log.Mint.Message()}
	for i, path := range paths {
		reply.Calls = append(reply.Calls, domain.Call{ID: domain.CallID(fmt.Sprint("call_", i)), Name: "read", Input: fmt.Appendf(nil, `{"path":%q}`, path)})
	}
	log.Add(stream, reply)
	return log.Envelopes()
}

// A name means the path itself and the paths below it, and otherwise the paths that end
// with it.
func TestANameMeansPaths(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, touched("/w", "a.go", "src/a.go", "src/b_c.go", "/x/src/a.go", "src", "~/notes.md", "100%.txt", "1000.txt"))
	s := snapshot(t, newIndex(t, l))
	for _, c := range []struct {
		folder, name         string
		exact, below, ending []string
	}{
		{"/w", "a.go", []string{"/w/a.go"}, nil, nil},
		{"/w", "./src/../a.go", []string{"/w/a.go"}, nil, nil},
		{"/w/src", "../a.go", []string{"/w/a.go"}, nil, nil},
		{"/w", "src", []string{"/w/src"}, []string{"/w/src/a.go", "/w/src/b_c.go"}, nil},
		{"/x", "src/", nil, []string{"/x/src/a.go"}, nil},
		{"/other", "a.go", nil, nil, []string{"/w/a.go", "/w/src/a.go", "/x/src/a.go"}},
		{"/other", "src/a.go", nil, nil, []string{"/w/src/a.go", "/x/src/a.go"}},
		{"/other", "rc/a.go", nil, nil, nil},
		{"/other", "../a.go", nil, nil, nil},
		{"/other", "/src/a.go", nil, nil, nil},
		{"/other", ".", nil, nil, nil},
		{"/other", "~/notes.md", []string{"~/notes.md"}, nil, nil},
		{"/other", "*/a.go", []string{"/w/a.go", "/w/src/a.go", "/x/src/a.go"}, nil, nil},
		{"/other", "*b_c*", []string{"/w/src/b_c.go"}, nil, nil},
		{"/other", "*100%.*", []string{"/w/100%.txt"}, nil, nil},
		{"/other", "*_*", []string{"/w/src/b_c.go"}, nil, nil},
		{"/", "", nil, []string{"/w/100%.txt", "/w/1000.txt", "/w/a.go", "/w/src", "/w/src/a.go", "/w/src/b_c.go", "/x/src/a.go"}, nil},
	} {
		exact, below, ending, err := s.FindPaths(c.folder, c.name)
		if err != nil || !slices.Equal(exact.Names(), c.exact) || !slices.Equal(below.Names(), c.below) || !slices.Equal(ending.Names(), c.ending) {
			t.Errorf("%q in %s means %q, %q, %q, %v; want %q, %q, %q", c.name, c.folder, exact.Names(), below.Names(), ending.Names(), err, c.exact, c.below, c.ending)
		}
	}
	if raceEnabled {
		return // the bound takes long with the race detector, and has no race
	}
	var many []string
	for i := range maxPaths + 1 {
		many = append(many, fmt.Sprintf("many/%d.go", i))
	}
	l, _ = newLedger(t, touched("/w", many...))
	s = snapshot(t, newIndex(t, l))
	if _, _, _, err := s.FindPaths("/w", "many"); !errors.Is(err, ErrManyPaths) {
		t.Errorf("a name of %d paths: %v", maxPaths+1, err)
	}
	five, _, _, err := s.FindPaths("/w", "*/many/*5*")
	noError(t, err)
	if all, err := s.Sessions(SessionQuery{Calls: CallQuery{Paths: five, Open: true, Outcomes: domain.Outcomes()}}); err != nil || len(all) != 1 || len(five.Names()) < 3000 {
		t.Errorf("sessions by %d paths and every outcome: %v, %v", len(five.Names()), all, err)
	}
	if _, below, _, err := s.FindPaths("/w", "many/7.go"); err != nil || len(below.Names()) != 0 {
		t.Errorf("many/7.go: %v, %v", below, err)
	}
}
