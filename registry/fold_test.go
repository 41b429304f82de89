package registry_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/staleness"
	"github.com/settlement-ledger/ledger/registry"
)

// folded returns the catalog that a fold of the log gives.
func (w *world) folded() *catalog.State {
	w.t.Helper()
	p := catalog.Projection()
	state, err := projections.Fold(p, p.Init(), w.ledger.ReadAll(context.Background(), events.Position{}))
	if err != nil {
		w.t.Fatalf("fold the log: %v", err)
	}
	return state
}

// sameAsLog fails the test unless the offer of a registry over layers equals that of a
// fresh fold of the log.
func (w *world) sameAsLog(r *registry.Registry, layers ...domain.LayerID) {
	w.t.Helper()
	want := []domain.Offered{}
	for _, e := range w.folded().Catalog(layers) {
		want = append(want, e.Offered)
	}
	if got := w.materialize(r).Offer().Tools; !slices.Equal(got, want) {
		w.t.Errorf("offered is %v, and by the log it is %v", got, want)
	}
}

// A shuffle is a process whose layers, scopes and store are used at random.
type shuffle struct {
	*world
	rapid  *rapid.T
	layers []*registry.Layer
	scopes []*registry.Scope
	over   *registry.Registry
	ids    []domain.LayerID
	offers []domain.Offer
	tool   domain.Tool
}

func newShuffle(t *testing.T, r *rapid.T, tool domain.Tool) *shuffle {
	w := newProcess(t, &shaky{Slice: eventstest.NewSlice()}, 1)
	s := &shuffle{world: w, rapid: r, tool: tool}
	s.layers = []*registry.Layer{w.application(), w.location("/src"), w.layer(w.layers.Session(context.Background(), w.as.Session))}
	for _, l := range s.layers {
		s.ids = append(s.ids, l.ID())
		s.scopes = append(s.scopes, l.Scope())
	}
	s.over = w.registry(registry.Config{}, s.layers...)
	return s
}

func (s *shuffle) luck() {
	m := rapid.SampledFrom([]mishap{none, none, none, nothing, added}).Draw(s.rapid, "mishap")
	s.store.suffer(always(m))
}

func (s *shuffle) register(r *rapid.T) {
	tools := registry.Tools{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3, rapid.ID).Draw(r, "names") {
		tools[name] = s.tool
	}
	s.luck()
	_ = rapid.SampledFrom(s.scopes).Draw(r, "scope").Register(context.Background(), tools)
}

func (s *shuffle) open(r *rapid.T) {
	i := rapid.IntRange(0, len(s.layers)-1).Draw(r, "layer")
	s.scopes = append(s.scopes, s.layers[i].Scope())
}

func (s *shuffle) closeScope(r *rapid.T) {
	s.luck()
	_ = rapid.SampledFrom(s.scopes).Draw(r, "scope").Close(context.Background())
}

func (s *shuffle) closeLayer(r *rapid.T) {
	if rapid.IntRange(0, 9).Draw(r, "die") > 0 {
		return
	}
	s.luck()
	_ = rapid.SampledFrom(s.layers).Draw(r, "layer").Close(context.Background())
}

// check records the pending events, and fails the test unless the offer of the registry,
// and its verdict on every earlier offer, equal the offer and the verdict of a fresh fold
// of the log.
func (s *shuffle) check(r *rapid.T) {
	s.store.recover()
	m, err := s.over.Materialize(context.Background(), registry.TurnSpec{ID: s.mint.Turn()})
	if err != nil {
		r.Fatalf("Materialize = %v, want nil", err)
	}
	state := s.folded()
	var want []domain.Offered
	for _, e := range state.Catalog(s.ids) {
		want = append(want, e.Offered)
	}
	if got := m.Offer().Tools; !slices.Equal(got, want) {
		r.Fatalf("offered is %v, and by the log it is %v", got, want)
	}
	s.offers = append(s.offers, m.Offer())
	offer := rapid.SampledFrom(s.offers).Draw(r, "offer")
	if len(offer.Tools) > 0 {
		s.checkOffered(r, state, offer, rapid.SampledFrom(offer.Tools).Draw(r, "tool"))
	}
}

func (s *shuffle) checkOffered(r *rapid.T, state *catalog.State, offer domain.Offer, o domain.Offered) {
	compared := staleness.Compare(state, s.ids, o)
	call := ask(s.mint.Turn().String(), string(o.Name), `{}`)
	got, err := s.over.Recall(offer).Settle(context.Background(), s.journal, s.as, call)
	if err != nil {
		r.Fatal(err)
	}
	if got.Effective != compared.Effective || (got.Outcome == domain.Stale) != compared.Stale || got.Agrees() != compared.Agrees {
		r.Fatalf("a call of %v settles as %v with %v in effect, and by the log it is %+v", o, got.Outcome, got.Effective, compared)
	}
	if got.ChangedBy.IsZero() != !compared.Stale {
		r.Fatalf("a call of %v is changed by %v, and by the log by %v", o, got.ChangedBy, compared.ChangedBy)
	}
}

// At each step of a random history, the offer of the registry equals that of a fresh
// fold of the log.
func TestNothingIsKnownOfRegistrationsThatTheLogDoesNotHold(t *testing.T) {
	t.Parallel()
	tool := answers(t, "a").Tool
	rapid.Check(t, func(r *rapid.T) {
		s := newShuffle(t, r, tool)
		r.Repeat(map[string]func(*rapid.T){
			"register": s.register, "open scope": s.open, "close scope": s.closeScope, "close layer": s.closeLayer, "": s.check,
		})
	})
}

// The settlement of a stale call names the change and the registration in effect that a
// fold of the log gives, also after several changes in two layers.
func TestWithoutMishapsTheChangeIsTheOneOfTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	app, loc := w.application(), w.location("/src")
	r := w.registry(registry.Config{}, app, loc)
	first := w.register(app, registry.Tools{"a": answers(t, "1").Tool})
	m := w.materialize(r)
	over := w.register(loc, registry.Tools{"a": answers(t, "2").Tool})
	w.register(app, registry.Tools{"a": answers(t, "3").Tool})
	w.close(over)
	w.close(first)
	offered, _ := m.Offer().Find("a")
	want := staleness.Compare(w.folded(), []domain.LayerID{app.ID(), loc.ID()}, offered)
	got := w.settle(m, "c", "a", `{}`)
	if got.ChangedBy != want.ChangedBy || got.ChangedBy.IsZero() || got.Effective != want.Effective {
		t.Errorf("the call is changed by %v with %v in effect, want %v", got.ChangedBy, got.Effective, fmt.Sprint(want))
	}
}
