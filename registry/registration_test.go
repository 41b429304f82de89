package registry_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// says returns the text that a call of a name gives in a new turn.
func (w *world) says(r *registry.Registry, name string) string {
	w.t.Helper()
	reading := w.settle(w.materialize(r), w.mint.Turn().String(), name, `{}`).ToolResult()
	return reading.Text + reading.Error
}

func (w *world) wantSays(r *registry.Registry, name, want string) {
	w.t.Helper()
	if got := w.says(r, name); got != want {
		w.t.Errorf("a call of %s = %q, want %q", name, got, want)
	}
}

// placements returns one new layer of each placement.
func placements(w *world) map[string]*registry.Layer {
	session := w.mint.Session()
	return map[string]*registry.Layer{
		"application": w.application(),
		"location":    w.location("/src"),
		"session":     w.layer(w.layers.Session(context.Background(), session)),
	}
}

// Register registers no tool of a list with an invalid name.
// Scenario 16.
// Scenario 19.
func TestListWithABadNameRegistersNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, l := range placements(w) {
		err := l.Scope().Register(t.Context(), registry.Tools{"good": answers(t, "a").Tool, "9bad": answers(t, "b").Tool, "no.dots": answers(t, "c").Tool})
		wantIs(t, "Register of bad names", err, domain.ErrBadName)
		for _, bad := range []string{"9bad", "no.dots"} {
			if !strings.Contains(err.Error(), `"`+bad+`"`) {
				t.Errorf("Register = %q, want it to name %q", err, bad)
			}
		}
		if got := names(w.materialize(w.registry(registry.Config{}, l))); len(got) != 0 {
			t.Errorf("%s offers %v, want nothing", name, got)
		}
		w.wantKinds(events.LayerStream(l.ID()), "LayerOpened")
	}
}

// Names of the greatest length are registered, and longer or otherwise invalid ones are
// refused.
// Scenario 17.
func TestNamesAreHeldToTheGrammarAtItsLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	a63 := strings.Repeat("a", 63)
	for name, good := range map[string]bool{
		"Z" + a63: true, "a": true, "a_-9": true,
		"aa" + a63: false, "9a": false, "_a": false, "-a": false, "": false, "a.b": false, "é": false, "aé": false, "a b": false, "a\n": false,
	} {
		err := l.Scope().Register(t.Context(), registry.Tools{name: answers(t, "a").Tool})
		if good && err != nil || !good && !errors.Is(err, domain.ErrBadName) {
			t.Errorf("Register(%q) = %v, want it good: %t", name, err, good)
		}
	}
}

// Register refuses the zero Tool.
func TestZeroToolIsNotRegistered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	wantIs(t, "Register of a zero tool", l.Scope().Register(t.Context(), registry.Tools{"a": {}}), domain.ErrBadTool)
	w.wantKinds(events.LayerStream(l.ID()), "LayerOpened")
}

// RegisterValid registers the valid entries of a list and records the invalid ones with
// their reason.
func TestBadEntriesOfAListFromOutsideCostNothingAndAreOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	s := l.Scope()
	refused, err := s.RegisterValid(t.Context(), registry.Tools{"good": answers(t, "a").Tool, "no.dots": answers(t, "b").Tool, "zero": {}})
	if err != nil || len(refused) != 2 || refused[0].Name != "no.dots" || refused[1].Name != "zero" {
		t.Fatalf("RegisterValid = %v, %v, want the two bad entries in order", refused, err)
	}
	wantIs(t, "refusal of a name", refused[0].Err, domain.ErrBadName)
	wantIs(t, "refusal of a zero tool", refused[1].Err, domain.ErrBadTool)
	w.wantSays(w.registry(registry.Config{}, l), "good", "a")
	e := w.read(events.LayerStream(l.ID()))[1].Event.(events.ToolsRegistered)
	if len(e.Tools) != 1 || len(e.Refused) != 2 || e.Refused[0].Name != "no.dots" || e.Refused[0].Reason != refused[0].Err.Error() || e.Scope != s.ID() {
		t.Errorf("on record is %+v, want one tool and two refusals with their reasons", e)
	}
}

// Entries that the caller could not make a tool of are on record in the same event as the
// tools and the entries that the registry refuses, and before these.
func TestUnusableEntriesAreOnRecordWithTheTools(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	unusable := registry.Refusal{Name: "broken\xff", Err: errors.New("its manifest ends early")}
	refused, err := l.Scope().RegisterValid(t.Context(), registry.Tools{"good": answers(t, "a").Tool, "no.dots": answers(t, "b").Tool}, unusable)
	if err != nil || len(refused) != 2 || refused[0] != unusable || refused[1].Name != "no.dots" {
		t.Fatalf("RegisterValid = %v, %v, want the unusable entry, then the bad one", refused, err)
	}
	w.wantSays(w.registry(registry.Config{}, l), "good", "a")
	e := w.read(events.LayerStream(l.ID()))[1].Event.(events.ToolsRegistered)
	if len(e.Tools) != 1 || len(e.Refused) != 2 || e.Refused[0].Name != "broken\uFFFD" || e.Refused[0].Reason != "its manifest ends early" {
		t.Errorf("on record is %+v, want one tool and two refusals", e)
	}
	if _, err := l.Scope().RegisterValid(t.Context(), nil, unusable); err != nil {
		t.Errorf("RegisterValid of an unusable entry alone = %v, want nil", err)
	}
	w.wantKinds(events.LayerStream(l.ID()), "LayerOpened", "ToolsRegistered", "ToolsRegistered")
}

// RegisterValid records a list without a valid entry.
func TestListOfOnlyBadEntriesIsOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	if refused, err := l.Scope().RegisterValid(t.Context(), registry.Tools{"no.dots": answers(t, "b").Tool}); err != nil || len(refused) != 1 {
		t.Fatalf("RegisterValid = %v, %v, want one refusal", refused, err)
	}
	w.wantKinds(events.LayerStream(l.ID()), "LayerOpened", "ToolsRegistered")
}

// Registering an empty list has no effect and appends no event.
func TestNoToolsAreNothingToDo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	w.register(l, nil)
	w.wantKinds(events.LayerStream(l.ID()), "LayerOpened")
}

// Closing a scope takes its tools out of effect, and no others.
// Scenario 20.
func TestClosingAScopeTakesItsToolsOutOfEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, l := range placements(w) {
		w.register(l, registry.Tools{"stays": answers(t, "b").Tool})
		s := w.register(l, registry.Tools{"goes": answers(t, "a").Tool})
		if err := s.Register(t.Context(), registry.Tools{"goes_too": answers(t, "c").Tool}); err != nil {
			t.Fatal(err)
		}
		w.close(s)
		if got := names(w.materialize(w.registry(registry.Config{}, l))); !slices.Equal(got, []string{"stays"}) {
			t.Errorf("%s offers %v after closing, want [stays]", name, got)
		}
		w.close(s)
		w.wantKinds(events.LayerStream(l.ID()), "LayerOpened", "ToolsRegistered", "ToolsRegistered", "ToolsRegistered", "RegistrationClosed", "RegistrationClosed")
	}
}

// The end of the context after a registration does not end the registration.
// Scenario 22.
// Scenario 23.
func TestInterruptionAfterARegistrationLeavesItUntilItsScopeCloses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, l := range placements(w) {
		ctx, cancel := context.WithCancel(t.Context())
		s := l.Scope()
		if err := s.Register(ctx, registry.Tools{"a": answers(t, "a").Tool}); err != nil {
			t.Fatal(err)
		}
		cancel()
		r := w.registry(registry.Config{}, l)
		w.wantSays(r, "a", "a")
		w.close(s)
		w.wantSays(r, "a", "Unknown tool: a")
	}
}

// Register in a context that has ended registers no tool of the list and appends no
// event.
// Scenario 28.
func TestInterruptedRegistrationIsWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(domain.ByUser)
	err := l.Scope().Register(ctx, registry.Tools{"a": answers(t, "a").Tool, "b": answers(t, "b").Tool})
	wantIs(t, "Register in a context that ended", err, domain.ErrInterrupted)
	if got := names(w.materialize(w.registry(registry.Config{}, l))); len(got) != 0 {
		t.Errorf("offered is %v, want nothing", got)
	}
	w.wantKinds(events.LayerStream(l.ID()), "LayerOpened")
}

// The tools of one list are recorded in one event.
// Scenario 29.
func TestToolsOfOneListAreOneEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	w.register(l, registry.Tools{"b": answers(t, "b").Tool, "a": answers(t, "a").Tool, "c": answers(t, "c").Tool})
	w.wantKinds(events.LayerStream(l.ID()), "LayerOpened", "ToolsRegistered")
	m := w.materialize(w.registry(registry.Config{}, l))
	if got := names(m); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("offered is %v, want [a b c]", got)
	}
	id := domain.RegistrationOf(w.read(events.LayerStream(l.ID()))[1].ID)
	for _, o := range m.Offer().Tools {
		if o.Registration != id || o.Layer != l.ID() {
			t.Errorf("offered is %v, want the registration %s", o, id)
		}
	}
}

// Closing a scope reveals the registration that it hid.
// Scenario 25.
func TestClosingAScopeRevealsWhatItHid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	r := w.registry(registry.Config{}, l)
	w.register(l, registry.Tools{"contextual": answers(t, "first").Tool})
	middle := w.register(l, registry.Tools{"contextual": answers(t, "middle").Tool})
	last := w.register(l, registry.Tools{"contextual": answers(t, "last").Tool})
	w.wantSays(r, "contextual", "last")
	w.close(middle)
	w.wantSays(r, "contextual", "last")
	w.close(last)
	w.wantSays(r, "contextual", "first")
}

// A layer of a higher placement hides the names of a lower one.
// Scenario 26.
func TestHigherPlacementHidesTheLower(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	low, high := answers(t, "application"), answers(t, "location")
	app, loc := w.application(), w.location("/src")
	w.register(loc, registry.Tools{"a": high.Tool})
	w.register(app, registry.Tools{"a": low.Tool})
	w.wantSays(w.registry(registry.Config{}, app, loc), "a", "location")
	low.ran(t, 0)
	high.ran(t, 1)
}

// Two locations share the application layer and no tool of each other.
func TestLocationsShareTheApplicationAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	app, one, two := w.application(), w.location("/one"), w.location("/two")
	first, second := w.registry(registry.Config{}, app, one), w.registry(registry.Config{}, app, two)
	w.register(app, registry.Tools{"shared": answers(t, "shared").Tool})
	w.register(one, registry.Tools{"own": answers(t, "one").Tool})
	w.wantSays(first, "shared", "shared")
	w.wantSays(second, "shared", "shared")
	w.wantSays(first, "own", "one")
	w.wantSays(second, "own", "Unknown tool: own")
	m := w.materialize(second)
	w.register(one, registry.Tools{"shared": answers(t, "hidden in one").Tool})
	w.want(w.settle(m, "c", "shared", `{}`), domain.Succeeded, "shared")
	w.wantSays(first, "shared", "hidden in one")
}

// Registry returns ErrMisplaced for layers that are not in rising placement.
func TestLayersAreOverlaidInRisingPlacementOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.layers.Registry(registry.Config{Outputs: w.outputs}, w.location("/src"), w.application())
	wantIs(t, "Registry(location, application)", err, registry.ErrMisplaced)
}

// A registration does not change with the map that the caller passed.
func TestWhatIsRegisteredDoesNotChangeWithTheCallersMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	tools := registry.Tools{"a": answers(t, "a").Tool}
	w.register(l, tools)
	tools["b"] = answers(t, "b").Tool
	tools["a"] = answers(t, "changed").Tool
	r := w.registry(registry.Config{}, l)
	w.register(l, registry.Tools{"c": answers(t, "c").Tool})
	w.wantSays(r, "a", "a")
	w.wantSays(r, "b", "Unknown tool: b")
}

// A materialization does not change with the slices that the caller passed or received.
func TestWhatIsOfferedDoesNotChangeWithTheCallersOffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	w.register(l, registry.Tools{"a": answers(t, "a").Tool})
	r := w.registry(registry.Config{}, l)
	m := w.materialize(r)
	offer := m.Offer()
	recalled := r.Recall(offer)
	offer.Tools[0].Name = "b"
	w.want(w.settle(m, "1", "a", `{}`), domain.Succeeded, "a")
	w.want(w.settle(recalled, "2", "a", `{}`), domain.Succeeded, "a")
}

// A closed scope and a scope of a closed layer return ErrClosed.
func TestClosedScopeAndClosedLayerRegisterNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	s := w.register(l, registry.Tools{"a": answers(t, "a").Tool})
	other := w.register(l, registry.Tools{"b": answers(t, "b").Tool})
	w.close(s)
	wantIs(t, "Register in a closed scope", s.Register(t.Context(), registry.Tools{"c": answers(t, "c").Tool}), registry.ErrClosed)
	w.close(l)
	wantIs(t, "Register in a closed layer", l.Scope().Register(t.Context(), registry.Tools{"c": answers(t, "c").Tool}), registry.ErrClosed)
	w.close(other)
	w.close(l)
	if got := names(w.materialize(w.registry(registry.Config{}, l))); len(got) != 0 {
		t.Errorf("a closed layer offers %v, want nothing", got)
	}
	w.wantKinds(events.LayerStream(l.ID()), "LayerOpened", "ToolsRegistered", "ToolsRegistered", "RegistrationClosed", "LayerClosed")
}

// A layer whose opening could not be recorded is not open.
func TestLayerThatIsNotOnRecordIsNotOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.suffer(always(nothing))
	if l, err := w.layers.Application(t.Context()); l != nil || !errors.Is(err, errPower) {
		t.Errorf("Application = %v, %v, want no layer and why", l, err)
	}
}

// A closing takes effect at once, and Materialize returns ErrUnrecorded until the
// closing is on record.
func TestClosingIsInEffectAtOnceAndHoldsMaterializeUntilItIsOnRecord(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mishap{"nothing was added": nothing, "everything was added": added} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t), answers(t, "a")
			l := w.application()
			w.register(l, registry.Tools{"a": answers(t, "under").Tool})
			s := w.register(l, registry.Tools{"a": p.Tool})
			other := w.register(l, registry.Tools{"b": answers(t, "b").Tool})
			r := w.registry(registry.Config{}, l)
			before := w.materialize(r)
			w.store.suffer(always(m))
			wantIs(t, "Close without power", s.Close(t.Context()), registry.ErrUnrecorded)
			wantIs(t, "Close of another scope", other.Close(t.Context()), registry.ErrUnrecorded)
			_, err := r.Materialize(t.Context(), registry.TurnSpec{ID: w.mint.Turn()})
			wantIs(t, "Materialize of an unrecorded closing", err, registry.ErrUnrecorded)
			wantIs(t, "Register over an unrecorded closing", l.Scope().Register(t.Context(), registry.Tools{"c": p.Tool}), registry.ErrUnrecorded)
			w.store.recover()
			w.want(w.settle(before, "c", "a", `{}`), domain.Stale, "Stale tool call: a")
			p.ran(t, 0)
			w.close(s)
			w.wantSays(r, "a", "under")
			w.wantSays(r, "b", "Unknown tool: b")
			w.wantKinds(events.LayerStream(l.ID()), "LayerOpened", "ToolsRegistered", "ToolsRegistered", "ToolsRegistered", "RegistrationClosed", "RegistrationClosed")
			w.sameAsLog(r, l.ID())
		})
	}
}

// Materialize records pending closings before it returns an offer.
func TestMaterializeRecordsWhatIsOwed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	s := w.register(l, registry.Tools{"a": answers(t, "a").Tool})
	w.store.suffer(always(nothing))
	wantIs(t, "Close without power", s.Close(t.Context()), registry.ErrUnrecorded)
	w.store.recover()
	if got := names(w.materialize(w.registry(registry.Config{}, l))); len(got) != 0 {
		t.Errorf("offered is %v, want nothing", got)
	}
	w.wantKinds(events.LayerStream(l.ID()), "LayerOpened", "ToolsRegistered", "RegistrationClosed")
}

// No layer has a pending closing when Materialize returns, also if a closing in one layer
// fails while Materialize records the closings of another.
func TestNoLayerOwesAClosingWhenATurnIsMaterialized(t *testing.T) {
	t.Parallel()
	for late := range 3 { // the layer whose closing comes late
		for owing := range 3 { // the layer that owes one before
			if late == owing {
				continue
			}
			w := newWorld(t)
			layers := []*registry.Layer{w.application(), w.location("/src"), w.layer(w.layers.Session(t.Context(), w.as.Session))}
			var scopes []*registry.Scope
			for i, l := range layers {
				scopes = append(scopes, w.register(l, registry.Tools{string(rune('a' + i)): answers(t, "x").Tool}))
			}
			r := w.registry(registry.Config{}, layers...)
			w.store.suffer(always(nothing))
			wantIs(t, "Close without power", scopes[owing].Close(t.Context()), registry.ErrUnrecorded)
			closed := false
			w.store.suffer(func(s events.Stream) mishap {
				if s == events.LayerStream(layers[late].ID()) {
					return nothing
				}
				if !closed {
					closed = true
					wantIs(t, "Close while another layer is at it", scopes[late].Close(t.Context()), registry.ErrUnrecorded)
				}
				return none
			})
			_, err := r.Materialize(t.Context(), registry.TurnSpec{ID: w.mint.Turn()})
			wantIs(t, "Materialize over a layer that owes a closing", err, registry.ErrUnrecorded)
			w.store.recover()
			if got := names(w.materialize(r)); len(got) != 1 {
				t.Errorf("offered is %v, want what is left", got)
			}
			for _, i := range []int{late, owing} {
				w.wantKinds(events.LayerStream(layers[i].ID()), "LayerOpened", "ToolsRegistered", "RegistrationClosed")
			}
		}
	}
}

// A registration whose append has an unknown outcome is not in effect, and is closed in
// the log.
func TestRegistrationOfUncertainRecordIsNotInEffectAndClosedOnRecord(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mishap{"nothing was added": nothing, "everything was added": added} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.application()
			w.register(l, registry.Tools{"a": answers(t, "under").Tool})
			r := w.registry(registry.Config{}, l)
			w.store.suffer(always(m))
			wantIs(t, "Register without power", l.Scope().Register(t.Context(), registry.Tools{"a": answers(t, "over").Tool}), errPower)
			_, err := r.Materialize(t.Context(), registry.TurnSpec{})
			wantIs(t, "Materialize while it is uncertain", err, registry.ErrUnrecorded)
			w.store.recover()
			w.wantSays(r, "a", "under")
			w.wantKinds(events.LayerStream(l.ID()), "LayerOpened", "ToolsRegistered", "ToolsRegistered", "RegistrationClosed")
			w.sameAsLog(r, l.ID())
		})
	}
}

// A registration that the store refuses leaves no event and no tool.
func TestRegistrationThatTheStoreRefusesLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	w.store.suffer(always(mistaken))
	wantIs(t, "Register of too much", l.Scope().Register(t.Context(), registry.Tools{"a": answers(t, "a").Tool}), events.ErrTooLarge)
	w.store.recover()
	if got := names(w.materialize(w.registry(registry.Config{}, l))); len(got) != 0 {
		t.Errorf("offered is %v, want nothing", got)
	}
	w.wantKinds(events.LayerStream(l.ID()), "LayerOpened")
}

// If another program appends to the stream of a layer, Register returns a conflict and
// no tool is in effect.
func TestStreamThatAnotherWritesIsAConflictAndNothingIsInEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	intruder := w.ledger.Draft(events.LayerClosed{Layer: l.ID(), Reason: "process lost"}, domain.EventID{})
	if _, err := w.ledger.Append(t.Context(), events.LayerStream(l.ID()), 1, intruder); err != nil {
		t.Fatal(err)
	}
	wantIs(t, "Register in a stream of another length", l.Scope().Register(t.Context(), registry.Tools{"a": answers(t, "a").Tool}), events.ErrConflict)
	w.wantSays(w.registry(registry.Config{}, l), "a", "Unknown tool: a")
}

// registerWeakly calls register with a tool, and returns a weak pointer to memory that
// only the tool refers to.
func registerWeakly(t *testing.T, register func(registry.Tools) error, want error) weak.Pointer[[1 << 16]byte] {
	t.Helper()
	held := new([1 << 16]byte)
	wantIs(t, "Register", register(registry.Tools{"a": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
		return string(held[:1]), nil
	})}), want)
	return weak.Make(held)
}

// A tool whose registration failed or was closed can be garbage-collected.
func TestToolsThatAreNotInEffectAreNotKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mishap mishap
		want   error
		end    func(*world, *registry.Layer, *registry.Scope)
	}{
		"too large":                       {mistaken, events.ErrTooLarge, nil},
		"uncertain, nothing was added":    {nothing, errPower, nil},
		"uncertain, everything was added": {added, errPower, nil},
		"its scope closed":                {none, nil, func(w *world, _ *registry.Layer, s *registry.Scope) { w.close(s) }},
		"its layer closed":                {none, nil, func(w *world, l *registry.Layer, _ *registry.Scope) { w.close(l) }},
		"its scope closed and not on record": {none, nil, func(w *world, _ *registry.Layer, s *registry.Scope) {
			w.store.suffer(always(nothing))
			_ = s.Close(t.Context())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.application()
			s := l.Scope()
			w.store.suffer(always(c.mishap))
			held := registerWeakly(t, func(tools registry.Tools) error { return s.Register(t.Context(), tools) }, c.want)
			w.store.recover()
			if c.end == nil {
				c.end = func(*world, *registry.Layer, *registry.Scope) {}
			} else if runtime.GC(); held.Value() == nil {
				t.Error("a tool in effect is not kept")
			}
			c.end(w, l, s)
			for range 10 {
				runtime.GC()
			}
			if held.Value() != nil {
				t.Error("a tool that is not in effect is kept")
			}
			runtime.KeepAlive(w)
		})
	}
}
