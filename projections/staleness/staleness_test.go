package staleness_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/projections/staleness"
)

// The projection keeps every law of projectionstest over random histories.
func TestStalenessKeepsTheLawsOfAProjection(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(2, 6)) {
		t.Logf("seed %d", seed)
		projectionstest.Test(t, staleness.Projection(), projectionstest.History(seed, 250))
	}
}

// everything makes cmp compare unexported fields too.
var everything = cmp.Exporter(func(reflect.Type) bool { return true })

// fold returns the state of a sequence of envelopes.
func fold(envelopes []events.Envelope) *staleness.State {
	p := staleness.Projection()
	s := p.Init()
	for _, v := range envelopes {
		s = p.Apply(s, v)
	}
	return s
}

// A watch follows one tool that a turn offered.
type watch struct {
	turn  staleness.TurnOffer
	offer staleness.OfferedTool
	// changed is the event since which the registration in effect differs from the
	// offered one, or zero while it is the same.
	changed domain.EventID
}

// watched returns a watch for each tool that the turns of a history offered. It asks
// the catalog after every event, which is slow and simple.
func watched(history []events.Envelope, s *staleness.State) []watch {
	var all []watch
	p := catalog.Projection()
	c := p.Init()
	for _, v := range history {
		c = p.Apply(c, v)
		if e, ok := v.Event.(events.TurnMaterialized); ok {
			if turn, _ := s.Turn(e.Turn); turn.Event == v.ID {
				for _, o := range turn.Offers {
					all = append(all, watch{turn: turn, offer: o})
				}
			}
		}
		if v.Stream.Category() != events.LayerCategory {
			continue
		}
		for i := range all {
			e, _ := c.Effective(all[i].turn.Layers, all[i].offer.Name)
			switch same := e.Offered == all[i].offer.Offered; {
			case same:
				all[i].changed = domain.EventID{}
			case all[i].changed.IsZero():
				all[i].changed = v.ID
			}
		}
	}
	return all
}

// Stale and ChangedBy are the ones that asking the catalog after every event gives.
func TestChangedByIsTheEventSinceWhichTheOfferDiffers(t *testing.T) {
	t.Parallel()
	stale := 0
	rapid.Check(t, func(t *rapid.T) {
		history := projectionstest.History(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 150).Draw(t, "events"))
		history = history[:rapid.IntRange(0, len(history)).Draw(t, "cut")]
		for _, w := range watched(history, fold(history)) {
			if w.offer.ChangedBy != w.changed || w.offer.Stale != !w.changed.IsZero() {
				t.Errorf("%s of %s: stale %v since %s, want since %q", w.offer.Name, w.turn.Turn, w.offer.Stale, w.offer.ChangedBy, w.changed)
			}
			if w.offer.Stale {
				stale++
			}
		}
	})
	if stale == 0 {
		t.Error("no offer of any history became stale")
	}
}

// A bench appends layers and turns event by event.
type bench struct {
	log     *projectionstest.Log
	process domain.ProcessID
	session domain.SessionID
	// app, loc, own and far are the layers of the application, of the session's
	// location, of the session, and of another location.
	app, loc, own, far domain.LayerID
}

// here is the location of the session, there another one.
const (
	here  = "/home/ada/here"
	there = "/home/ada/there"
)

// newBench returns a bench with a session and four layers of one process, opened in
// the reverse order of their precedence.
func newBench() *bench {
	log := projectionstest.NewLog(1)
	b := &bench{log: log, process: log.Mint.Process(), session: log.Mint.Session()}
	b.log.Add(events.SessionStream(b.session), events.SessionOpened{Session: b.session, Location: here})
	b.far = b.open(events.LayerOpened{Placement: domain.Location, Location: there, Process: b.process})
	b.own = b.open(events.LayerOpened{Placement: domain.PerSession, Session: b.session, Process: b.process})
	b.loc = b.open(events.LayerOpened{Placement: domain.Location, Location: here, Process: b.process})
	b.app = b.open(events.LayerOpened{Placement: domain.Application, Process: b.process})
	return b
}

// open opens a layer and returns its ID.
func (b *bench) open(e events.LayerOpened) domain.LayerID {
	e.Layer = b.log.Mint.Layer()
	b.log.Add(events.LayerStream(e.Layer), e)
	return e.Layer
}

// register registers tools in a layer. The words are their description, and so decide
// their fingerprints.
func (b *bench) register(layer domain.LayerID, words string, tools ...domain.Name) events.Envelope {
	e := events.ToolsRegistered{Scope: b.log.Mint.Scope()}
	for _, name := range tools {
		e.Tools = append(e.Tools, projectionstest.Tool(name, words))
	}
	return b.log.Add(events.LayerStream(layer), e)
}

// close closes the registration that r recorded.
func (b *bench) close(layer domain.LayerID, r events.Envelope) events.Envelope {
	return b.log.Add(events.LayerStream(layer), events.RegistrationClosed{Registration: domain.RegistrationOf(r.ID), Reason: events.ScopeClosed})
}

// layers returns the layers of the session in rising precedence.
func (b *bench) layers() []domain.LayerID { return []domain.LayerID{b.app, b.loc, b.own} }

// catalog returns the catalog of the log so far.
func (b *bench) catalog() *catalog.State {
	p := catalog.Projection()
	s := p.Init()
	for _, v := range b.log.Envelopes() {
		s = p.Apply(s, v)
	}
	return s
}

// turn appends a turn that offers the tools in effect, and returns its ID.
func (b *bench) turn() domain.TurnID {
	e := events.TurnMaterialized{Turn: b.log.Mint.Turn()}
	for _, entry := range b.catalog().Catalog(b.layers()) {
		e.Tools = append(e.Tools, entry.Offered)
	}
	b.log.Add(events.SessionStream(b.session), e)
	return e.Turn
}

// compare returns the comparison of a name that a turn offered, and checks that State.Turn
// and Compare agree.
func (b *bench) compare(t *testing.T, turn domain.TurnID, name domain.Name) staleness.Comparison {
	t.Helper()
	judged, _ := fold(b.log.Envelopes()).Turn(turn)
	if !slices.Equal(judged.Layers, b.layers()) {
		t.Errorf("the turn was taken from %v, want %v", judged.Layers, b.layers())
	}
	for _, o := range judged.Offers {
		if o.Name == name {
			if got := staleness.Compare(b.catalog(), b.layers(), o.Offered); got != o.Comparison {
				t.Errorf("Compare = %+v, and the turn says %+v", got, o.Comparison)
			}
			return o.Comparison
		}
	}
	t.Fatalf("turn %s does not offer %s", turn, name)
	return staleness.Comparison{}
}

// stale checks that a comparison is stale since an event.
func stale(t *testing.T, v staleness.Comparison, since events.Envelope) {
	t.Helper()
	if !v.Stale || v.ChangedBy != since.ID {
		t.Errorf("comparison %+v, want stale since %s", v, since.ID)
	}
}

// current checks that a comparison is not stale.
func current(t *testing.T, v staleness.Comparison) {
	t.Helper()
	if v.Stale || !v.ChangedBy.IsZero() {
		t.Errorf("comparison %+v, want not stale", v)
	}
}

// An offer without a later change is current and agrees with itself (Scenario 41).
func TestUnchangedRegistrationIsCurrent(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.register(b.app, "a", "read")
	turn := b.turn()
	b.turn()
	v := b.compare(t, turn, "read")
	current(t, v)
	if !v.Agrees {
		t.Error("a registration does not agree with itself")
	}
}

// Registering one name again makes that name stale and no other, and the definitions
// agree (Scenario 43).
func TestOnlyTheReplacedNameIsStale(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.register(b.app, "a", "first", "second")
	turn := b.turn()
	again := b.register(b.app, "a", "first")
	v := b.compare(t, turn, "first")
	stale(t, v, again)
	if !v.Agrees || v.Effective.Registration != domain.RegistrationOf(again.ID) {
		t.Errorf("comparison %+v, want the same definition under another registration", v)
	}
	current(t, b.compare(t, turn, "second"))
}

// A later registration with another definition makes the offer stale, and the two do
// not agree.
func TestAnotherDefinitionDoesNotAgree(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.register(b.app, "a", "read")
	turn := b.turn()
	again := b.register(b.app, "b", "read")
	stale(t, b.compare(t, turn, "read"), again)
	if b.compare(t, turn, "read").Agrees {
		t.Error("two definitions agree")
	}
}

// An offer is stale since the closing of its registration, with no tool in effect.
func TestRemovedRegistrationIsStale(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := b.register(b.loc, "a", "read")
	turn := b.turn()
	closing := b.close(b.loc, r)
	v := b.compare(t, turn, "read")
	stale(t, v, closing)
	if !v.Effective.IsZero() || v.Agrees {
		t.Errorf("comparison %+v, want nothing in effect", v)
	}
}

// An offer whose registration closed is stale even if that reveals an earlier
// registration of the name (Scenario 44).
func TestClosedOverlayIsStaleThoughAnotherIsInEffect(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.register(b.app, "a", "read")
	second := b.register(b.app, "b", "read")
	turn := b.turn()
	closing := b.close(b.app, second)
	stale(t, b.compare(t, turn, "read"), closing)
	if b.compare(t, turn, "read").Effective.IsZero() {
		t.Error("the earlier registration is not in effect")
	}
}

// An offer is stale since the registration of a higher layer hid it, also after
// another registration hides it in place of the first.
func TestOverlayFromAboveIsStale(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.register(b.app, "a", "read")
	turn := b.turn()
	hides := b.register(b.loc, "b", "read")
	stale(t, b.compare(t, turn, "read"), hides)
	b.register(b.own, "c", "read")
	b.close(b.loc, hides)
	stale(t, b.compare(t, turn, "read"), hides)
}

// An offer of a location is stale after its closing even if the application has a
// tool of the name (Scenario 46).
func TestRemovedOverlayIsStaleThoughTheApplicationHasTheName(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.register(b.app, "a", "read")
	over := b.register(b.loc, "b", "read")
	turn := b.turn()
	closing := b.close(b.loc, over)
	stale(t, b.compare(t, turn, "read"), closing)
}

// An offer that was hidden is current again once it is revealed, and ChangedBy names
// the later hiding.
func TestARevealedRegistrationIsCurrentAgain(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.register(b.app, "a", "read")
	turn := b.turn()
	hides := b.register(b.own, "b", "read")
	stale(t, b.compare(t, turn, "read"), hides)
	b.close(b.own, hides)
	current(t, b.compare(t, turn, "read"))
	hides = b.register(b.loc, "c", "read")
	stale(t, b.compare(t, turn, "read"), hides)
}

// Closing a registration that is hidden does not change ChangedBy.
func TestClosingAHiddenRegistrationChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench()
	offered := b.register(b.app, "a", "read")
	turn := b.turn()
	hides := b.register(b.app, "b", "read")
	b.close(b.app, offered)
	stale(t, b.compare(t, turn, "read"), hides)
}

// An offer is stale since the closing of its layer.
func TestClosedLayerMakesItsOffersStale(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.register(b.loc, "a", "read")
	turn := b.turn()
	closing := b.log.Add(events.LayerStream(b.loc), events.LayerClosed{Layer: b.loc, Reason: events.ProcessLost})
	stale(t, b.compare(t, turn, "read"), closing)
}

// Registrations of the same name in another location, session or process leave an
// offer current.
func TestOtherLocationsAndSessionsMakeNothingStale(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.register(b.app, "a", "read")
	turn := b.turn()
	b.register(b.far, "b", "read")
	other := b.open(events.LayerOpened{Placement: domain.PerSession, Session: b.log.Mint.Session(), Process: b.process})
	b.register(other, "c", "read")
	elsewhere := b.open(events.LayerOpened{Placement: domain.Application, Process: b.log.Mint.Process()})
	b.register(elsewhere, "d", "read")
	current(t, b.compare(t, turn, "read"))
}

// The layers of a turn are in order of placement and opening, and do not include a
// layer that opened later.
func TestLayersOfOnePlacementAreInOrderOfOpening(t *testing.T) {
	t.Parallel()
	b := newBench()
	later := b.open(events.LayerOpened{Placement: domain.Location, Location: here, Process: b.process})
	r := b.register(later, "a", "read")
	turn := b.log.Mint.Turn()
	offered := domain.Offered{Name: "read", Registration: domain.RegistrationOf(r.ID), Layer: later}
	b.log.Add(events.SessionStream(b.session), events.TurnMaterialized{Turn: turn, Tools: []domain.Offered{offered}})
	b.open(events.LayerOpened{Placement: domain.Location, Location: here, Process: b.process})
	judged, _ := fold(b.log.Envelopes()).Turn(turn)
	if want := []domain.LayerID{b.app, b.loc, later, b.own}; !slices.Equal(judged.Layers, want) {
		t.Errorf("the turn was taken from %v, want %v", judged.Layers, want)
	}
}

// An offer that was never registered is stale, with a zero ChangedBy.
func TestAnUnregisteredOfferIsStaleSinceNoEvent(t *testing.T) {
	t.Parallel()
	b := newBench()
	r := b.register(b.app, "a", "read")
	ghost := domain.Offered{Name: "read", Registration: domain.RegistrationOf(b.log.Mint.Event()), Layer: b.app}
	v := staleness.Compare(b.catalog(), b.layers(), ghost)
	if !v.Stale || !v.ChangedBy.IsZero() || v.Agrees || v.Effective.Registration != domain.RegistrationOf(r.ID) {
		t.Errorf("comparison %+v", v)
	}
}

// A turn that several events record has all their tools, each once.
func TestATurnInSeveralEventsIsOne(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(1)
	session, layer, turn := log.Mint.Session(), log.Mint.Layer(), log.Mint.Turn()
	log.Add(events.LayerStream(layer), events.LayerOpened{Layer: layer, Placement: domain.PerSession, Session: session, Observed: true})
	var offered []domain.Offered
	for _, name := range []domain.Name{"Bash", "Read", "Bash"} {
		if len(offered) < 2 {
			r := log.Add(events.LayerStream(layer), events.ToolsRegistered{Tools: []events.RegisteredTool{{Name: name}}})
			offered = append(offered, domain.Offered{Name: name, Registration: domain.RegistrationOf(r.ID), Layer: layer})
		}
		i := slices.IndexFunc(offered, func(o domain.Offered) bool { return o.Name == name })
		log.Add(events.SessionStream(session), events.TurnMaterialized{Turn: turn, Tools: offered[i : i+1], Observed: true})
	}
	turns := fold(log.Envelopes()).Turns(session)
	if len(turns) != 1 || len(turns[0].Offers) != 2 {
		t.Fatalf("turns are %+v, want one that offers two tools", turns)
	}
	for _, o := range turns[0].Offers {
		current(t, o.Comparison)
		if o.Agrees {
			t.Error("definitions that are not known agree")
		}
	}
}

// A state from a checkpoint returns the same verdicts.
func TestADecodedStateJudgesTheSame(t *testing.T) {
	t.Parallel()
	for seed := range uint64(repeats(2, 4)) {
		history := projectionstest.History(seed, 300)
		s := fold(history)
		data, err := projections.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		again := staleness.Projection().Init()
		if err := json.Unmarshal(data, again); err != nil {
			t.Fatal(err)
		}
		for _, v := range history {
			e, ok := v.Event.(events.SessionOpened)
			if ok && !reflect.DeepEqual(s.Turns(e.Session), again.Turns(e.Session)) {
				diff := cmp.Diff(s.Turns(e.Session), again.Turns(e.Session), everything)
				t.Fatalf("seed %d: Turns(%s) (-before +after decoding):\n%s", seed, e.Session, diff)
			}
		}
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
