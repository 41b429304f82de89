package catalog_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// The projection keeps every law of projectionstest over random histories.
func TestCatalogKeepsTheLawsOfAProjection(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(2, 6)) {
		t.Logf("seed %d", seed)
		projectionstest.Test(t, catalog.Projection(), projectionstest.History(seed, 250))
	}
}

// fold returns the state of a sequence of envelopes.
func fold(envelopes []events.Envelope) *catalog.State {
	p := catalog.Projection()
	s := p.Init()
	for _, v := range envelopes {
		s = p.Apply(s, v)
	}
	return s
}

// decoded returns a state encoded as a checkpoint and decoded.
func decoded(t interface{ Fatal(...any) }, s *catalog.State) *catalog.State {
	data, err := projections.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	again := catalog.New()
	if err := json.Unmarshal(data, again); err != nil {
		t.Fatal(err)
	}
	return again
}

// A naive is a history that answers the questions of a catalog by scanning all events
// each time. It is the model with which the tests compare a State.
type naive []events.Envelope

// active returns the registrations of a layer that are not closed, oldest
// first.
func (h naive) active(layer domain.LayerID) (active []events.Envelope) {
	for _, v := range h {
		if v.Stream != events.LayerStream(layer) {
			continue
		}
		switch e := v.Event.(type) {
		case events.ToolsRegistered:
			active = append(active, v)
		case events.RegistrationClosed:
			active = slices.DeleteFunc(active, func(r events.Envelope) bool { return domain.RegistrationOf(r.ID) == e.Registration })
		case events.LayerClosed:
			return nil
		}
	}
	return active
}

// overlay returns the active registrations of a name in layers, the effective one
// first.
func (h naive) overlay(layers []domain.LayerID, name domain.Name) (found []domain.Offered) {
	for _, layer := range slices.Backward(layers) {
		for _, v := range slices.Backward(h.active(layer)) {
			for _, tool := range v.Event.(events.ToolsRegistered).Tools {
				if tool.Name == name {
					found = append(found, domain.Offered{Name: name, Registration: domain.RegistrationOf(v.ID), Layer: layer, Fingerprint: tool.Fingerprint})
				}
			}
		}
	}
	return found
}

// catalog returns the registrations in effect in layers, each name at its first
// place.
func (h naive) catalog(layers []domain.LayerID) (found []domain.Offered) {
	for _, layer := range layers {
		for _, v := range h.active(layer) {
			for _, tool := range v.Event.(events.ToolsRegistered).Tools {
				top := h.overlay(layers, tool.Name)[0]
				if !slices.Contains(found, top) {
					found = append(found, top)
				}
			}
		}
	}
	return found
}

// offers returns the offered parts of entries.
func offers(entries []catalog.ToolEntry) (offers []domain.Offered) {
	for _, e := range entries {
		offers = append(offers, e.Offered)
	}
	return offers
}

// Catalog, Overlay and Effective give the results of a scan of the whole history,
// folded and from a checkpoint.
func TestCatalogAnswersAsTheWholeHistoryDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		history := projectionstest.History(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 150).Draw(t, "events"))
		history = history[:rapid.IntRange(0, len(history)).Draw(t, "cut")]
		s := fold(history)
		var layers []domain.LayerID
		for _, l := range s.Layers() {
			layers = append(layers, l.ID)
		}
		for _, s := range []*catalog.State{s, decoded(t, s)} {
			if got, want := offers(s.Catalog(layers)), naive(history).catalog(layers); !slices.Equal(got, want) {
				t.Errorf("Catalog = %v, want %v", got, want)
			}
			for _, name := range []domain.Name{"read", "write", "edit", "glob", "grep", "bash", "none"} {
				want := naive(history).overlay(layers, name)
				if got := offers(s.Overlay(layers, name)); !slices.Equal(got, want) {
					t.Errorf("Overlay(%s) = %v, want %v", name, got, want)
				}
				got, ok := s.Effective(layers, name)
				if ok != (len(want) > 0) || ok && got.Offered != want[0] {
					t.Errorf("Effective(%s) = %v, %v, want the first of %v", name, got.Offered, ok, want)
				}
			}
		}
	})
}

// A bench appends events of layers one by one.
type bench struct {
	log *projectionstest.Log
}

// open opens a layer of a placement and returns its ID.
func (b bench) open(p domain.Placement) domain.LayerID {
	id := b.log.Mint.Layer()
	b.log.Add(events.LayerStream(id), events.LayerOpened{Layer: id, Placement: p})
	return id
}

// register registers tools in a layer with one event.
func (b bench) register(layer domain.LayerID, tools ...domain.Name) domain.RegistrationID {
	e := events.ToolsRegistered{Scope: b.log.Mint.Scope()}
	for _, name := range tools {
		e.Tools = append(e.Tools, projectionstest.Tool(name, "does "+string(name)))
	}
	return domain.RegistrationOf(b.log.Add(events.LayerStream(layer), e).ID)
}

// close closes a registration and returns the event.
func (b bench) close(layer domain.LayerID, r domain.RegistrationID) domain.EventID {
	return b.log.Add(events.LayerStream(layer), events.RegistrationClosed{Registration: r, Reason: events.ScopeClosed}).ID
}

// closeLayer closes a layer and returns the event.
func (b bench) closeLayer(layer domain.LayerID) domain.EventID {
	return b.log.Add(events.LayerStream(layer), events.LayerClosed{Layer: layer, Reason: events.ProcessEnded}).ID
}

// state returns the state of the events so far.
func (b bench) state() *catalog.State { return fold(b.log.Envelopes()) }

// effective returns the registration of a name that is in effect in layers, or zero.
func (b bench) effective(layers []domain.LayerID, name domain.Name) domain.RegistrationID {
	e, _ := b.state().Effective(layers, name)
	return e.Registration
}

// Closing a registration removes its tools from the catalog and no others, and
// ClosedBy names the closing (Scenario 20).
func TestClosedRegistrationIsGone(t *testing.T) {
	t.Parallel()
	b := bench{projectionstest.NewLog(1)}
	app := b.open(domain.Application)
	r := b.register(app, "read", "write")
	kept := b.register(app, "grep")
	closing := b.close(app, r)
	s := b.state()
	if got := s.Catalog([]domain.LayerID{app}); len(got) != 1 || got[0].Registration != kept {
		t.Errorf("Catalog = %v, want grep alone", offers(got))
	}
	if got, ok := s.ClosedBy(r, app); !ok || got != closing {
		t.Errorf("ClosedBy = %v, %v, want %v", got, ok, closing)
	}
	if got, ok := s.ClosedBy(kept, app); ok {
		t.Errorf("ClosedBy of an active registration = %v", got)
	}
}

// Closing the latest registration of a name puts the one before into effect that is
// still active (Scenario 25).
func TestClosingRevealsWhatWasHidden(t *testing.T) {
	t.Parallel()
	b := bench{projectionstest.NewLog(1)}
	app := []domain.LayerID{b.open(domain.Application)}
	first := b.register(app[0], "contextual")
	second := b.register(app[0], "contextual")
	third := b.register(app[0], "contextual")
	if got := b.effective(app, "contextual"); got != third {
		t.Errorf("in effect is %v, want the latest", got)
	}
	b.close(app[0], second)
	if got := b.effective(app, "contextual"); got != third {
		t.Errorf("closing one below changed what is in effect to %v", got)
	}
	b.close(app[0], third)
	if got := b.effective(app, "contextual"); got != first {
		t.Errorf("in effect is %v, want the first again", got)
	}
}

// An entry of a higher layer takes the place of the entry that it hides, and closing
// the layer reveals that entry (Scenario 26).
func TestHigherLayerHidesLowerInPlace(t *testing.T) {
	t.Parallel()
	b := bench{projectionstest.NewLog(1)}
	layers := []domain.LayerID{b.open(domain.Application), b.open(domain.Location), b.open(domain.PerSession)}
	b.register(layers[1], "deploy", "write")
	b.register(layers[0], "read", "write", "edit")
	b.register(layers[2], "ask", "read")
	b.register(layers[0], "bash", "read")
	var got []string
	for _, e := range b.state().Catalog(layers) {
		got = append(got, fmt.Sprintf("%s/%s", e.Placement, e.Name))
	}
	want := []string{"session/read", "location/write", "application/edit", "application/bash", "location/deploy", "session/ask"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Catalog (-want +got):\n%s", diff)
	}
	b.closeLayer(layers[1])
	if got := b.effective(layers, "write"); got.IsZero() {
		t.Error("the application's write is not revealed by closing the layer above it")
	}
	if got := b.effective(layers, "deploy"); !got.IsZero() {
		t.Errorf("a closed layer has %v in effect", got)
	}
}

// A name is listed at its oldest active registration, and moves when that closes.
func TestOrderIsThatOfTheOldestActiveRegistration(t *testing.T) {
	t.Parallel()
	b := bench{projectionstest.NewLog(1)}
	app := b.open(domain.Application)
	first := b.register(app, "x")
	b.register(app, "y")
	b.register(app, "x")
	names := func() (names []domain.Name) {
		for _, e := range b.state().Catalog([]domain.LayerID{app}) {
			names = append(names, e.Name)
		}
		return names
	}
	if got, want := names(), []domain.Name{"x", "y"}; !slices.Equal(got, want) {
		t.Errorf("names are %v, want %v", got, want)
	}
	b.close(app, first)
	if got, want := names(), []domain.Name{"y", "x"}; !slices.Equal(got, want) {
		t.Errorf("names are %v, want %v", got, want)
	}
}

// The first closing of a registration or of its layer ends it; later closings change
// neither.
func TestTheFirstEndOfARegistrationStands(t *testing.T) {
	t.Parallel()
	b := bench{projectionstest.NewLog(1)}
	one, two := b.open(domain.Application), b.open(domain.Application)
	closed, left := b.register(one, "read"), b.register(two, "read")
	first := b.close(one, closed)
	b.close(one, closed)
	b.closeLayer(one)
	ended := b.closeLayer(two)
	b.close(two, left)
	b.closeLayer(two)
	s := b.state()
	if got, ok := s.ClosedBy(closed, one); !ok || got != first {
		t.Errorf("ClosedBy = %v, %v, want the registration's first closing %v", got, ok, first)
	}
	if got, ok := s.ClosedBy(left, two); !ok || got != ended {
		t.Errorf("ClosedBy = %v, %v, want the layer's first closing %v", got, ok, ended)
	}
	if l, ok := s.Layer(two); !ok || l.Closed != ended || l.Reason != events.ProcessEnded {
		t.Errorf("Layer = %+v, %v, want it closed by %v", l, ok, ended)
	}
}

// OpenOf lists the open layers of one process in order of opening, without their
// registrations.
func TestOpenLayersOfAProcessAreListedInOrder(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(1)
	process := log.Mint.Process()
	var opened []domain.LayerID
	for range 3 {
		id := log.Mint.Layer()
		log.Add(events.LayerStream(id), events.LayerOpened{Layer: id, Placement: domain.Location, Process: process})
		opened = append(opened, id)
	}
	bench{log}.open(domain.Application)
	bench{log}.register(opened[2], "read")
	bench{log}.closeLayer(opened[1])
	s := fold(log.Envelopes())
	var got []domain.LayerID
	for _, l := range s.OpenOf(process) {
		if brief, ok := s.Brief(l.ID); !ok || brief.Registrations != nil || l.Registrations != nil {
			t.Errorf("Brief(%s) = %+v, %v", l.ID, brief, ok)
		}
		got = append(got, l.ID)
	}
	if want := []domain.LayerID{opened[0], opened[2]}; !slices.Equal(got, want) {
		t.Errorf("OpenOf = %v, want %v", got, want)
	}
}

// A layer that was never opened has no entry, even after a registration in its
// stream.
func TestUnknownLayersHaveNothing(t *testing.T) {
	t.Parallel()
	b := bench{projectionstest.NewLog(1)}
	app, other := b.open(domain.Application), b.log.Mint.Layer()
	r := b.register(app, "read")
	b.register(other, "ghost")
	s := b.state()
	if _, ok := s.Layer(other); ok {
		t.Error("a layer that was never opened is known")
	}
	if _, ok := s.Effective([]domain.LayerID{app, other}, "ghost"); ok {
		t.Error("a layer that was never opened has something in effect")
	}
	if e, ok := s.Effective([]domain.LayerID{other, app}, "read"); !ok || e.Registration != r {
		t.Errorf("Effective = %v, %v", e, ok)
	}
}

// A Layer that the State returned does not show later events.
func TestLaterEventsDoNotChangeReturnedValues(t *testing.T) {
	t.Parallel()
	b := bench{projectionstest.NewLog(1)}
	app := b.open(domain.Application)
	r := b.register(app, "read")
	s := b.state()
	before, _ := s.Layer(app)
	b.close(app, r)
	catalog.Projection().Apply(s, b.log.Envelopes()[2])
	after, _ := s.Layer(app)
	if !before.Registrations[0].Closed.IsZero() {
		t.Error("a layer that was returned before shows the closing")
	}
	if after.Registrations[0].Closed.IsZero() || after.Registrations[0].Reason != events.ScopeClosed {
		t.Errorf("the layer is %+v, want its registration closed", after)
	}
	if _, err := projections.Encode(s); err != nil {
		t.Error(err)
	}
}

// repeats returns how often a test repeats: short, or long if the environment
// sets LEDGER_TEST_LONG.
func repeats(short, long int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return long
	}
	return short
}
