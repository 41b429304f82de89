package registry_test

import (
	"context"
	"slices"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/registry"
)

func deny(action, resource string) domain.Rule {
	return domain.Rule{Action: action, Resource: resource, Effect: domain.Deny}
}

func allow(action, resource string) domain.Rule {
	return domain.Rule{Action: action, Resource: resource, Effect: domain.Allow}
}

// The last rule that matches the action of a tool decides whether the tool is hidden.
// Scenario 31.
// Scenario 32.
// Scenario 34.
func TestToolIsHiddenByTheLastRuleOfItsActionAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	for _, name := range []string{"question", "bash", "edit", "write", "apply_patch"} {
		tool := answers(t, name).Tool
		if name == "write" || name == "apply_patch" {
			tool = domain.WithAction("edit", tool)
		}
		w.register(l, registry.Tools{name: tool})
	}
	r := w.registry(registry.Config{}, l)
	for _, c := range []struct {
		rules  domain.Rules
		offers []string
	}{
		{nil, []string{"question", "bash", "edit", "write", "apply_patch"}},
		{domain.Rules{deny("question", "*")}, []string{"bash", "edit", "write", "apply_patch"}},
		{domain.Rules{deny("*", "*"), allow("question", "private")}, []string{"question"}},
		{domain.Rules{allow("question", "private"), deny("*", "*")}, []string{}},
		{domain.Rules{deny("edit", "*")}, []string{"question", "bash"}},
		{domain.Rules{deny("bash", "*"), allow("bash", "echo *")}, []string{"question", "bash", "edit", "write", "apply_patch"}},
		{domain.Rules{deny("bash", "rm *")}, []string{"question", "bash", "edit", "write", "apply_patch"}},
	} {
		m := w.materialize(r, c.rules...)
		if got := names(m); !slices.Equal(got, c.offers) {
			t.Errorf("offered under %v is %v, want %v", c.rules, got, c.offers)
		}
		for _, h := range m.Hidden() {
			if !slices.Contains(c.rules, h.Rule) || h.Rule.Resource != "*" || h.Rule.Effect != domain.Deny {
				t.Errorf("%s is hidden by %v, want one of %v that denies everything", h.Name, h.Rule, c.rules)
			}
		}
		if got := len(m.Hidden()) + len(m.Offer().Tools); got != 5 || len(m.Definitions()) != len(m.Offer().Tools) {
			t.Errorf("offered and hidden under %v are %d, want 5", c.rules, got)
		}
	}
}

// A call of a hidden tool is unknown, and a call of a visible tool may still be denied
// when it runs.
// Scenario 35.
// Scenario 40.
func TestVisibilityIsNotAuthorization(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	w.register(l, registry.Tools{
		"a": answers(t, "a").Tool,
		"question": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
			return "", &domain.Denied{Action: "question", Resource: "*", Rule: deny("question", "*")}
		}),
	})
	r := w.registry(registry.Config{}, l)
	hidden, open := w.materialize(r, deny("*", "*")), w.materialize(r)
	w.want(w.settle(hidden, "1", "a", `{}`), domain.UnknownTool, "Unknown tool: a")
	w.want(w.settle(open, "2", "a", `{}`), domain.Succeeded, "a")
	got := w.settle(open, "3", "question", `{}`)
	w.want(got, domain.DeniedByRule, "Permission denied: question *")
	if got.Rule != deny("question", "*") {
		t.Errorf("denied by %v, want the rule", got.Rule)
	}
}

// The model reads the feedback of a person who declined a call.
func TestDeclinedByAPersonIsReadAsItsFeedback(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{"a": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
		return "", &domain.Declined{Feedback: "use the other"}
	})})
	w.want(w.settle(m, "c", "a", `{}`), domain.DeclinedByUser, "use the other")
}

// A change is an event between an offer and a call.
type change struct {
	name string
	make func(w *world, app, loc *registry.Layer, first *registry.Scope) (event domain.EventID)
	want string // the text of the call under the policy Strict
}

// last returns the last event of a layer's stream.
func (w *world) last(l *registry.Layer) domain.EventID {
	all := w.read(events.LayerStream(l.ID()))
	return all[len(all)-1].ID
}

const stale = "Stale tool call: first"

var changes = []change{
	{"nothing", func(*world, *registry.Layer, *registry.Layer, *registry.Scope) (none domain.EventID) { return none }, "offered"},
	{"another name", func(w *world, app, loc *registry.Layer, _ *registry.Scope) (none domain.EventID) {
		w.register(app, registry.Tools{"other": answers(w.t, "x").Tool})
		w.close(w.register(loc, registry.Tools{"second": answers(w.t, "x").Tool}))
		return none
	}, "offered"},
	{"removed", func(w *world, app, _ *registry.Layer, s *registry.Scope) domain.EventID {
		w.close(s)
		return w.last(app)
	}, stale},
	{"registered again", func(w *world, app, _ *registry.Layer, _ *registry.Scope) domain.EventID {
		w.register(app, registry.Tools{"first": answers(w.t, "again").Tool})
		return w.last(app)
	}, stale},
	{"hidden by a location", func(w *world, _, loc *registry.Layer, _ *registry.Scope) domain.EventID {
		w.register(loc, registry.Tools{"first": answers(w.t, "again").Tool})
		return w.last(loc)
	}, stale},
	{"hidden and revealed", func(w *world, _, loc *registry.Layer, _ *registry.Scope) (none domain.EventID) {
		w.close(w.register(loc, registry.Tools{"first": answers(w.t, "again").Tool}))
		return none
	}, "offered"},
	{"its layer closed", func(w *world, app, _ *registry.Layer, _ *registry.Scope) domain.EventID {
		w.close(app)
		return w.last(app)
	}, stale},
}

// A call whose offered registration is no longer in effect runs no tool under the
// policy Strict.
// Scenario 41.
// Scenario 43.
func TestStaleCallNeverRuns(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t), answers(t, "offered")
			app, loc := w.application(), w.location("/src")
			w.register(app, registry.Tools{"second": answers(t, "second").Tool})
			s := w.register(app, registry.Tools{"first": p.Tool})
			m := w.materialize(w.registry(registry.Config{}, app, loc))
			offered, _ := m.Offer().Find("first")
			event := c.make(w, app, loc, s)
			got := w.settle(m, "1", "first", `{}`)
			if reading := got.ToolResult(); reading.Text+reading.Error != c.want || got.ChangedBy != event || got.Offered != offered {
				t.Errorf("the call answers %q, changed by %v; want %q, changed by %v", reading.Text+reading.Error, got.ChangedBy, c.want, event)
			}
			if c.want == stale {
				p.ran(t, 0)
			}
			if c.name == "registered again" {
				w.want(w.settle(m, "2", "second", `{}`), domain.Succeeded, "second")
			}
		})
	}
}

// Registering the same tool again makes calls of the earlier registration stale.
func TestSameToolRegisteredAgainIsAnotherRegistration(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	l := w.application()
	w.register(l, registry.Tools{"a": p.Tool})
	m := w.materialize(w.registry(registry.Config{}, l))
	w.register(l, registry.Tools{"a": p.Tool})
	got := w.settle(m, "c", "a", `{}`)
	w.want(got, domain.Stale, "Stale tool call: a")
	if !got.Agrees() || got.Effective.Registration == got.Offered.Registration {
		t.Errorf("offered %v, in effect %v: want one definition in two registrations", got.Offered, got.Effective)
	}
}

// A call of a tool whose layer has closed is stale, although the closing revealed
// another tool of the name.
// Scenario 44.
// Scenario 46.
func TestCallOfAnOverlayThatClosedIsStaleThoughAnotherIsRevealed(t *testing.T) {
	t.Parallel()
	w, under := newWorld(t), answers(t, "under")
	app, loc := w.application(), w.location("/src")
	w.register(app, registry.Tools{"a": under.Tool})
	r := w.registry(registry.Config{}, app, loc)
	for i, l := range []*registry.Layer{app, loc} {
		over := w.register(l, registry.Tools{"a": answers(t, "over").Tool})
		m := w.materialize(r)
		w.close(over)
		got := w.settle(m, string(rune('1'+i)), "a", `{}`)
		w.want(got, domain.Stale, "Stale tool call: a")
		if got.ChangedBy != w.last(l) {
			t.Errorf("the call is changed by %v, want the closing %v", got.ChangedBy, w.last(l))
		}
	}
	under.ran(t, 0)
}

// A call that has begun ends with its tool, also if the tool is replaced or closed
// meanwhile.
// Scenario 47.
func TestCallThatBeganEndsWithTheToolItBeganWith(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	began, changed := make(chan struct{}), make(chan struct{})
	s := w.register(l, registry.Tools{"a": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
		close(began)
		<-changed
		return "old", nil
	})})
	r := w.registry(registry.Config{}, l)
	m, replacement := w.materialize(r), answers(t, "new").Tool
	go func() {
		<-began
		w.close(s)
		w.register(l, registry.Tools{"a": replacement})
		close(changed)
	}()
	w.want(w.settle(m, "c", "a", `{}`), domain.Succeeded, "old")
	w.wantSays(r, "a", "new")
}

// Each policy rejects exactly the calls that its doc comment names.
// Scenario 49.
func TestPolicySaysWhetherAChangeRefusesACall(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[registry.StalenessPolicy]string{
		"nothing":          {registry.Strict: "offered", registry.ByFingerprint: "offered", registry.Admitted: "offered"},
		"removed":          {registry.Strict: stale, registry.ByFingerprint: stale, registry.Admitted: "offered"},
		"registered again": {registry.Strict: stale, registry.ByFingerprint: "again", registry.Admitted: "offered"},
		"other definition": {registry.Strict: stale, registry.ByFingerprint: stale, registry.Admitted: "offered"},
	} {
		for policy, answer := range want {
			for _, recalled := range []bool{false, true} {
				w := newWorld(t)
				l := w.application()
				s := w.register(l, registry.Tools{"first": answers(t, "offered").Tool})
				r := w.registry(registry.Config{Policy: policy}, l)
				m := w.materialize(r)
				if recalled {
					m = r.Recall(m.Offer())
				}
				switch name {
				case "removed":
					w.close(s)
				case "registered again":
					w.register(l, registry.Tools{"first": answers(t, "again").Tool})
				case "other definition":
					w.register(l, registry.Tools{"first": domain.WithAction("other", answers(t, "other").Tool)})
				}
				got := w.settle(m, "c", "first", `{}`)
				if reading := got.ToolResult(); reading.Text+reading.Error != answer {
					t.Errorf("%s under policy %d, recalled %t: the call answers %q, want %q", name, policy, recalled, reading.Text+reading.Error, answer)
				}
				if got.ChangedBy.IsZero() != (name == "nothing") || got.Agrees() == (name == "removed" || name == "other definition") {
					t.Errorf("%s under policy %d: changed by %v, agrees %t", name, policy, got.ChangedBy, got.Agrees())
				}
			}
		}
	}
}

// A call that a dead process offered is stale, and its settlement names the event that
// ended the registration.
func TestCallOfADeadProcessIsStaleAndNamesWhatEndedItsRegistration(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world, *registry.Layer, *registry.Scope) domain.EventID{
		"layer closed by recovery": func(w *world, l *registry.Layer, _ *registry.Scope) domain.EventID {
			d := w.ledger.Draft(events.LayerClosed{Layer: l.ID(), Reason: "process lost"}, domain.EventID{})
			if _, err := w.ledger.Append(context.Background(), events.LayerStream(l.ID()), 2, d); err != nil {
				t.Fatal(err)
			}
			return d.ID
		},
		"scope closed before": func(w *world, l *registry.Layer, s *registry.Scope) domain.EventID {
			w.close(s)
			id := w.last(l)
			w.close(l)
			return id
		},
		"hidden before": func(w *world, l *registry.Layer, _ *registry.Scope) domain.EventID {
			w.register(l, registry.Tools{"a": answers(t, "x").Tool})
			id := w.last(l)
			w.close(l)
			return id
		},
		"nothing on record": func(*world, *registry.Layer, *registry.Scope) (none domain.EventID) { return none },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dead, p := newWorld(t), answers(t, "a")
			l := dead.application()
			s := dead.register(l, registry.Tools{"a": p.Tool})
			offer := dead.materialize(dead.registry(registry.Config{}, l)).Offer()
			event := end(dead, l, s)

			next := newProcess(t, dead.store, 2)
			own := next.application()
			next.register(own, registry.Tools{"a": p.Tool})
			r := next.registry(registry.Config{}, own)
			got := next.settle(r.Recall(offer), "c", "a", `{}`)
			next.want(got, domain.Stale, "Stale tool call: a")
			if got.ChangedBy != event || got.Effective.Layer != own.ID() || !got.Agrees() {
				t.Errorf("the call is changed by %v with %v in effect, want %v", got.ChangedBy, got.Effective, event)
			}
			p.ran(t, 0)

			same := next.registry(registry.Config{Policy: registry.ByFingerprint}, own)
			next.want(next.settle(same.Recall(offer), "d", "a", `{}`), domain.Succeeded, "a")
		})
	}
}

// take records the turn of a materialization and a reply with calls, as a runner does.
func (w *world) take(m *registry.Materialization, asked ...domain.Call) {
	w.t.Helper()
	offer := m.Offer()
	for _, e := range []events.Event{
		events.SessionOpened{Session: w.as.Session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}},
		events.TurnMaterialized{Turn: offer.Turn, Message: w.as.Message, Agent: "build", Tools: offer.Tools},
		events.ReplyReceived{Turn: offer.Turn, Message: w.as.Message, Calls: asked},
	} {
		if _, err := w.journal.writer.Append(context.Background(), w.ledger.Draft(e, domain.EventID{})); err != nil {
			w.t.Fatalf("Append = %v, want nil", err)
		}
	}
}

// wantLawful fails the test if the log breaks a law that verify checks.
func (w *world) wantLawful() {
	w.t.Helper()
	p := calls.Projection()
	state, err := projections.Fold(p, p.Init(), w.ledger.ReadAll(context.Background(), events.Position{}))
	if err != nil {
		w.t.Fatalf("Fold = %v, want nil", err)
	}
	for _, e := range state.Exceptions() {
		w.t.Errorf("the log breaks a law: %v", e)
	}
}

// The recorded start names the registration whose tool runs, under every policy.
func TestStartNamesTheRegistrationThatRunsUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []registry.StalenessPolicy{registry.Strict, registry.ByFingerprint, registry.Admitted} {
		for name, c := range map[string]struct {
			change    func(w *world, l *registry.Layer, s *registry.Scope)
			ran       map[registry.StalenessPolicy]string // nothing: the call is stale
			effective string
		}{
			"nothing": {func(*world, *registry.Layer, *registry.Scope) {}, map[registry.StalenessPolicy]string{
				registry.Strict: "offered", registry.ByFingerprint: "offered", registry.Admitted: "offered",
			}, "offered"},
			"removed": {func(w *world, _ *registry.Layer, s *registry.Scope) { w.close(s) }, map[registry.StalenessPolicy]string{
				registry.Admitted: "offered",
			}, ""},
			"registered again": {func(w *world, l *registry.Layer, _ *registry.Scope) {
				w.register(l, registry.Tools{"a": answers(t, "again").Tool})
			}, map[registry.StalenessPolicy]string{registry.ByFingerprint: "again", registry.Admitted: "offered"}, "again"},
			"other definition": {func(w *world, l *registry.Layer, _ *registry.Scope) {
				w.register(l, registry.Tools{"a": domain.WithAction("other", answers(t, "again").Tool)})
			}, map[registry.StalenessPolicy]string{registry.Admitted: "offered"}, "again"},
			"its layer closed": {func(w *world, l *registry.Layer, _ *registry.Scope) { w.close(l) }, map[registry.StalenessPolicy]string{
				registry.Admitted: "offered",
			}, ""},
		} {
			w := newWorld(t)
			l := w.application()
			s := w.register(l, registry.Tools{"a": answers(t, "offered").Tool})
			r := w.registry(registry.Config{Policy: policy}, l)
			m := w.materialize(r)
			offered, _ := m.Offer().Find("a")
			w.take(m, ask("c", "a", `{}`))
			c.change(w, l, s)
			registrations := map[string]domain.Offered{"offered": offered, "": {}}
			if now, ok := w.materialize(r).Offer().Find("a"); ok && c.effective == "again" {
				registrations["again"] = now
			}
			got := w.settle(m, "c", "a", `{}`)
			if got.Outcome == domain.Succeeded && got.ToolResult().Text != c.ran[policy] || got.Outcome != domain.Succeeded && c.ran[policy] != "" {
				t.Errorf("%s under policy %d: the call ended %v %q, want what %q answers", name, policy, got.Outcome, got.ToolResult().Text, c.ran[policy])
			}
			if got.Effective != registrations[c.effective] {
				t.Errorf("%s under policy %d: in effect is %v, want %v", name, policy, got.Effective, registrations[c.effective])
			}
			if got.ChangedBy.IsZero() != (name == "nothing") {
				t.Errorf("%s under policy %d: changed by %v", name, policy, got.ChangedBy)
			}
			for _, v := range w.read(w.session()) {
				if e, ok := v.Event.(events.CallStarted); ok && (e.Effective != registrations[c.ran[policy]] || e.Offered != offered) {
					t.Errorf("%s under policy %d: the start names %v of %v, want %q", name, policy, e.Effective, e.Offered, c.ran[policy])
				}
			}
			w.wantLawful()
		}
	}
}

// Under the policy Admitted, a registration in effect runs although another registry
// offered it.
func TestAdmittedRunsWhatIsInEffectThoughAnotherRegistryOfferedIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	w.register(l, registry.Tools{"a": answers(t, "a").Tool})
	offer := w.materialize(w.registry(registry.Config{}, l)).Offer()
	recalled := w.registry(registry.Config{Policy: registry.Admitted}, l).Recall(offer)
	w.want(w.settle(recalled, "c", "a", `{}`), domain.Succeeded, "a")
}
