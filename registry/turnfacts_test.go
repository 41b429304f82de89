package registry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// materializeFor returns the materialization of a turn with facts.
func (w *world) materializeFor(r *registry.Registry, facts domain.TurnFacts) *registry.Materialization {
	w.t.Helper()
	m, err := r.Materialize(w.t.Context(), registry.TurnSpec{ID: w.mint.Turn(), Facts: facts})
	if err != nil {
		w.t.Fatalf("Materialize = %v, want nil", err)
	}
	return m
}

// descriptions returns the definitions of a turn as NAME: DESCRIPTION.
func descriptions(m *registry.Materialization) string {
	var lines []string
	for _, d := range m.Definitions() {
		lines = append(lines, fmt.Sprintf("%s: %s", d.Name, d.Description))
	}
	return strings.Join(lines, "\n")
}

// A hidden tool names the first reason that hides it: a rule, then the list of the agent,
// then its own conditions. A tool without a reason is offered.
func TestAToolIsHiddenByItsFirstReason(t *testing.T) {
	t.Parallel()
	deny := domain.Rule{Action: "*", Resource: "*", Effect: domain.Deny, Source: "rules:1"}
	for name, c := range map[string]struct {
		rules    domain.RuleSets
		tools    []string
		flag     bool
		rule     string
		unmet    string
		isHidden bool
	}{
		"offered":              {flag: true},
		"by all three":         {rules: domain.RuleSets{{}, {deny}}, tools: []string{"b"}, rule: "rules:1", isHidden: true},
		"by list and flag":     {tools: []string{"b"}, unmet: "agents that list a", isHidden: true},
		"by its flag alone":    {tools: []string{"a"}, unmet: "x", isHidden: true},
		"by a rule alone":      {rules: domain.RuleSets{{deny}}, flag: true, rule: "rules:1", isHidden: true},
		"not by a rule of ask": {rules: domain.RuleSets{{{Action: "*", Resource: "*", Effect: domain.Ask}}}, flag: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.application()
			w.register(l, registry.Tools{"a": made(t, domain.Spec[empty, string]{
				Execute:   func(context.Context, empty, domain.Invocation) (string, error) { return "", nil },
				Available: domain.Availability{{Flags: []string{"x"}}},
			})})
			facts := domain.TurnFacts{Agent: "plan", Rules: c.rules, Tools: c.tools}
			if c.flag {
				facts.Flags = []string{"x"}
			}
			m := w.materializeFor(w.registry(registry.Config{}, l), facts)
			hidden := m.Hidden()
			if len(hidden)+len(m.Offer().Tools) != 1 || (len(hidden) == 1) != c.isHidden {
				t.Fatalf("the turn offers %v and hides %v, want it hidden: %t", m.Offer().Tools, hidden, c.isHidden)
			}
			if !c.isHidden {
				return
			}
			h := hidden[0]
			if h.Name != "a" || h.Registration.IsZero() || h.Rule.Source != c.rule || (len(h.Unmet) > 0) == (c.rule != "") || len(h.Unmet) > 0 && h.Unmet[0].Wanted != c.unmet {
				t.Errorf("hidden is %+v, want the rule %q or the condition %q", h, c.rule, c.unmet)
			}
		})
	}
}

// describing returns a tool that describes itself for each turn.
func describing(t testing.TB, describe func(domain.TurnFacts) string) domain.Tool {
	return made(t, domain.Spec[empty, string]{
		Execute:      func(context.Context, empty, domain.Invocation) (string, error) { return "ran", nil },
		DescribeTurn: describe,
	})
}

// A turn has the description that a tool makes for it, cut to the limits. A description
// that is empty, panics, ends its goroutine or hangs leaves the registered one, and costs
// no other tool its description. All that hang cost one grace period in all.
func TestATurnHasTheDescriptionsThatItsToolsMake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.application()
		release := make(chan struct{})
		hangs := func(domain.TurnFacts) string { <-release; return "late" }
		w.register(l, registry.Tools{
			"a_hangs": describing(t, hangs), "b_hangs": describing(t, hangs), "panics": describing(t, func(domain.TurnFacts) string { panic("broken") }),
			"empty": describing(t, func(domain.TurnFacts) string { return "" }), "plain": answers(t, "a").Tool,
			"same": describing(t, func(domain.TurnFacts) string { return "for a test" }),
			"made": describing(t, func(f domain.TurnFacts) string { return "for " + string(f.Agent) }),
			"long": describing(t, func(domain.TurnFacts) string { return strings.Repeat("x", 1000) }),
		})
		r := w.registry(registry.Config{Grace: time.Second, Limits: registry.Limits{Lines: 8, Bytes: 256}}, l)
		began := time.Now()
		m := w.materializeFor(r, domain.TurnFacts{Agent: "plan"})
		if took := time.Since(began); took != time.Second {
			t.Errorf("Materialize took %v, want the grace period of one second", took)
		}
		for _, d := range m.Definitions() {
			want := map[domain.Name]string{"made": "for plan", "long": m.Described()["long"]}[d.Name]
			if want == "" {
				want = "for a test"
			}
			if d.Description != want {
				t.Errorf("%s is described as %q, want %q", d.Name, d.Description, want)
			}
		}
		if n := len(m.Described()["long"]); len(m.Described()) != 2 || n == 0 || n > 256 {
			t.Errorf("described for the turn are %v, want made, and long in at most 256 bytes", m.Described())
		}
		w.want(w.settle(m, "c", "panics", `{}`), domain.Succeeded, "ran")
		close(release)
		if err := w.layers.Wait(t.Context()); err != nil {
			t.Errorf("Wait = %v, want it to wait for the descriptions", err)
		}
	})
}

// A tool may register and close tools while it describes itself: no lock is held. Its turn
// keeps the offer from before.
func TestADescriptionMayChangeTheRegistrations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	other := w.register(l, registry.Tools{"other": answers(t, "a").Tool})
	r := w.registry(registry.Config{}, l)
	var nested *registry.Materialization
	var once atomic.Bool
	w.register(l, registry.Tools{"a": describing(t, func(domain.TurnFacts) string {
		if !once.Swap(true) {
			w.close(other)
			w.register(l, registry.Tools{"fresh": answers(t, "b").Tool})
			nested = w.materializeFor(r, domain.TurnFacts{})
		}
		return "changed"
	})})
	m := w.materializeFor(r, domain.TurnFacts{})
	if got, want := descriptions(m), "other: for a test\na: changed"; got != want {
		t.Errorf("the turn has %q, want %q", got, want)
	}
	if got, want := descriptions(nested), "a: changed\nfresh: for a test"; got != want {
		t.Errorf("the turn that the description took has %q, want %q", got, want)
	}
	if got := w.settle(m, "c", "other", `{}`); got.Outcome != domain.Stale {
		t.Errorf("the closed tool ended %v, want %v", got.Outcome, domain.Stale)
	}
}

// An interruption ends the wait for a description.
func TestAnInterruptionEndsTheWaitForADescription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.application()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	defer close(release)
	w.register(l, registry.Tools{"a": describing(t, func(domain.TurnFacts) string { cancel(); <-release; return "late" })})
	r := w.registry(registry.Config{Grace: time.Hour}, l)
	m, err := r.Materialize(ctx, registry.TurnSpec{ID: w.mint.Turn()})
	if err != nil || descriptions(m) != "a: for a test" {
		t.Errorf("Materialize = %v, %v, want the registered description", m, err)
	}
}

// The model reads the tool's own text about an input that does not fit, within the limits.
// Without a text it reads the standard one. A text that panics is a defect. No such call
// begins.
func TestTheModelReadsTheToolsOwnTextAboutAnInvalidInput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text    func() string
		outcome domain.Outcome
		reads   string
	}{
		"own":       {func() string { return "Give no b." }, domain.InvalidInput, "Give no b."},
		"empty":     {func() string { return "" }, domain.InvalidInput, "Invalid tool input: "},
		"not UTF-8": {func() string { return "a\xff" }, domain.InvalidInput, "a\uFFFD"},
		"long":      {func() string { return strings.Repeat("x", 5000) }, domain.InvalidInput, "xxx"},
		"panics":    {func() string { panic("broken") }, domain.Defective, "Tool execution failed: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.application()
			w.register(l, registry.Tools{"a": made(t, domain.Spec[empty, string]{
				Execute:      func(context.Context, empty, domain.Invocation) (string, error) { return "ran", nil },
				InvalidInput: func(json.RawMessage, *domain.ValidationError) string { return c.text() },
			})})
			m := w.materialize(w.registry(registry.Config{Limits: registry.Limits{Lines: 8, Bytes: 256}}, l))
			got := w.settle(m, "c", "a", `{"b":1}`)
			if text := got.ToolResult().Error; got.Outcome != c.outcome || !strings.HasPrefix(text, c.reads) || len(text) > 256 || got.Began || got.Ran != 0 {
				t.Errorf("the call ended %v with %q, began %t after %v, want %v with %q", got.Outcome, text, got.Began, got.Ran, c.outcome, c.reads)
			}
			w.wantKinds(w.session(), "CallSettled")
		})
	}
}

// The time on record is that from the start to the return of the tool, for every outcome,
// without the hooks. A call whose tool did not run has none.
func TestTheTimeOnRecordIsThatOfTheTool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l := w.application()
		takes := func(err error) domain.Tool {
			return does(t, func(context.Context, empty, domain.Invocation) (string, error) {
				time.Sleep(1500*time.Millisecond + 700*time.Microsecond)
				return "", err
			})
		}
		w.register(l, registry.Tools{"a": takes(nil), "fails": takes(domain.Fail("no")), "denied": takes(&domain.Denied{Action: "a", Resource: "b"})})
		slow := func(_ context.Context, _ domain.Invocation, _ domain.Call, out domain.Output) (domain.Contents, error) {
			time.Sleep(time.Second)
			return out.Content(), nil
		}
		m := w.materialize(w.registry(registry.Config{Grace: time.Minute, After: []registry.After{slow}}, l))
		for i, name := range []string{"a", "fails", "denied", "missing"} {
			want := 1500 * time.Millisecond
			if name == "missing" {
				want = 0
			}
			got := w.settle(m, fmt.Sprint("c", i), name, `{}`)
			onRecord := w.read(w.session())
			e := onRecord[len(onRecord)-1].Event.(events.CallSettled)
			if got.Ran != want || e.RanMS != want.Milliseconds() {
				t.Errorf("%s ran %v, and %d ms on record, want %v", name, got.Ran, e.RanMS, want)
			}
		}
	})
}

// The files of a successful call are on record in valid UTF-8, as many as fit in the
// limits. Any other call has none.
func TestTheFilesOfACallAreOnRecordWithinTheLimits(t *testing.T) {
	t.Parallel()
	file := func(path string) domain.FileAccess {
		return domain.FileAccess{Path: path, Access: domain.FileRead, Version: "v"}
	}
	long := strings.Repeat("p", 95) // with access and version 100 bytes
	for name, c := range map[string]struct{ files, want []domain.FileAccess }{
		"none":        {nil, nil},
		"some":        {[]domain.FileAccess{file("/a"), file("/b")}, []domain.FileAccess{file("/a"), file("/b")}},
		"not UTF-8":   {[]domain.FileAccess{file("/a\xff")}, []domain.FileAccess{file("/a\uFFFD")}},
		"many bytes":  {[]domain.FileAccess{file(long), file(long), file(long), file("/a")}, []domain.FileAccess{file(long), file(long)}},
		"many":        {repeated(file("/a"), 9), repeated(file("/a"), 8)},
		"a huge path": {[]domain.FileAccess{file(strings.Repeat("p", 300))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			l := w.application()
			spec := domain.Spec[empty, string]{
				Execute: func(context.Context, empty, domain.Invocation) (string, error) { return "ran", nil },
				Files:   func(empty, string) []domain.FileAccess { return c.files },
			}
			failing := spec
			failing.Execute = func(context.Context, empty, domain.Invocation) (string, error) { return "", domain.Fail("no") }
			w.register(l, registry.Tools{"a": made(t, spec), "fails": made(t, failing)})
			m := w.materialize(w.registry(registry.Config{Limits: registry.Limits{Lines: 8, Bytes: 256}}, l))
			if got := w.settle(m, "c", "a", `{}`); !reflect.DeepEqual(got.Files, c.want) {
				t.Errorf("files = %v, want %v", got.Files, c.want)
			}
			if got := w.settle(m, "d", "fails", `{}`); got.Files != nil {
				t.Errorf("files of a failed call = %v, want none", got.Files)
			}
		})
	}
}

// repeated returns n copies of a file access.
func repeated(f domain.FileAccess, n int) (files []domain.FileAccess) {
	for range n {
		files = append(files, f)
	}
	return files
}
