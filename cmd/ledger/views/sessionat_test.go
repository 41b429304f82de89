package views

import (
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A sessionCounter gives every prefix of a session the state that package calls folds.
func TestASessionIsCountedAsItWas(t *testing.T) {
	t.Parallel()
	compared := 0
	for seed := range uint64(10) {
		fold := calls.Projection()
		state := fold.Init()
		counters := map[domain.SessionID]*sessionCounter{}
		for _, v := range projectionstest.History(seed, 300) {
			state = fold.Apply(state, v)
			id, ok := v.Stream.Session()
			if !ok {
				continue
			}
			if counters[id] == nil {
				counters[id] = &sessionCounter{Session: calls.Session{ID: id}}
			}
			counters[id].apply(v)
			want, _ := state.Session(id)
			if got := counters[id].Session; got != want {
				t.Fatalf("seed %d, after %s: the session is\n%+v, want\n%+v", seed, v.ID, got, want)
			}
			compared++
		}
	}
	if compared == 0 {
		t.Error("the histories have no event of a session")
	}
}

// A settlement that comes before the reply that asks for the call, as in an import, and a
// second settlement count as in package calls.
func TestACallThatEndsBeforeItIsAskedIsCountedOnce(t *testing.T) {
	t.Parallel()
	l := projectionstest.NewLog(1)
	id, m := l.Mint.Session(), l.Mint.Message()
	stream := events.SessionStream(id)
	l.Add(stream, events.CallSettled{Message: m, Call: "a", Tool: "read", Outcome: domain.Failed})
	l.Add(stream, events.ReplyReceived{Message: m, Calls: []domain.Call{{ID: "a", Name: "read"}, {ID: "b", Name: "read"}}})
	l.Add(stream, events.CallSettled{Message: m, Call: "a", Tool: "read", Outcome: domain.Succeeded})
	n, fold := sessionCounter{Session: calls.Session{ID: id}}, calls.Projection()
	state := fold.Init()
	for _, v := range l.Envelopes() {
		n.apply(v)
		state = fold.Apply(state, v)
	}
	if want, _ := state.Session(id); n.Session != want || n.Calls != 2 || n.Open != 1 || n.Failed != 1 {
		t.Errorf("the session is %+v, want %+v", n.Session, want)
	}
}
