package openwork_test

import (
	"os"
	"reflect"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/openwork"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// repeats returns short, or long under LEDGER_TEST_LONG.
func repeats(short, long int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return long
	}
	return short
}

func TestOpenWorkKeepsTheLawsOfAProjection(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(5, 50)) {
		projectionstest.Test(t, openwork.Projection(), projectionstest.History(seed, 200))
	}
}

// The projection and the fold of all calls agree on the open work of the sessions that ran
// here, after each event of random histories. In some histories decisions are missing, so
// that permission requests and questions outlive the calls of their session.
func TestOpenWorkIsThatOfAllCalls(t *testing.T) {
	t.Parallel()
	type work struct {
		calls map[openwork.Call]bool
		asks  int
	}
	seen, permissions, questions := 0, 0, 0
	for seed := range uint64(repeats(20, 200)) {
		all, open := calls.Projection(), openwork.Projection()
		a, o := all.Init(), open.Init()
		for i, v := range projectionstest.History(seed, 200) {
			if kind := v.Event.Kind(); seed%2 == 1 && (kind == events.PermissionDecided{}.Kind() || kind == events.QuestionAnswered{}.Kind()) {
				continue
			}
			a, o = all.Apply(a, v), open.Apply(o, v)
			here, imported := map[domain.SessionID]bool{}, map[domain.SessionID]bool{}
			for _, s := range a.Sessions() {
				here[s.ID], imported[s.ID] = s.Origin.Kind == events.RunHere, s.Imported()
			}
			want, got := map[domain.SessionID]work{}, map[domain.SessionID]work{}
			for _, e := range a.Unfinished() {
				if !here[e.Session] {
					continue
				}
				w, ok := want[e.Session]
				if !ok {
					w.calls = map[openwork.Call]bool{}
				}
				if e.Law == calls.Open {
					w.calls[openwork.Call{Message: e.Message, Call: e.Call}] = true
				} else {
					w.asks++
				}
				want[e.Session] = w
			}
			for _, s := range o.Sessions() {
				if !here[s.ID] && !imported[s.ID] { // never opened
					continue
				}
				w := work{map[openwork.Call]bool{}, len(s.Permissions) + len(s.Questions)}
				for _, c := range s.Calls {
					w.calls[c] = true
				}
				got[s.ID] = w
				switch {
				case len(s.Calls)+len(s.Questions) == 0:
					permissions++
				case len(s.Calls)+len(s.Permissions) == 0:
					questions++
				}
			}
			seen += len(want)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, event %d, %s: open are\n%v\nwant\n%v", seed, i, v.Event.Kind(), got, want)
			}
		}
	}
	if seen == 0 || permissions == 0 || questions == 0 {
		t.Errorf("%d sessions had open work, %d only permission requests and %d only questions; want some of each", seen, permissions, questions)
	}
}
