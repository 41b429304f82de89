package runner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// The ends that the runner records itself are within the limits of the registry: a long
// denial, long feedback, and a long name that a model made up.
func TestEndsThatTheRunnerRecordsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 60 << 10
	long := strings.Repeat("x", 200<<10)
	for name, test := range map[string]struct {
		tool    string
		refusal error
		outcome domain.Outcome
	}{
		"denial":   {"echo", &domain.Denied{Action: "doom_loop", Resource: "echo", Reason: long}, domain.DeniedByRule},
		"rule":     {"echo", &domain.Denied{Action: "doom_loop", Resource: "echo", Rule: domain.Rule{Action: "a", Resource: long}}, domain.DeniedByRule},
		"feedback": {"echo", &domain.Declined{Feedback: long}, domain.DeclinedByUser},
		"refusal":  {long, &domain.Declined{}, domain.DeclinedByUser},
		"name":     {long, domain.ErrInterrupted, domain.Interrupted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var replies [][]runner.Part
			for i := range 3 {
				replies = append(replies, []runner.Part{ask(fmt.Sprint("c", i), test.tool, `{"text":"again"}`)})
			}
			p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays(replies...),
				Looping: func(context.Context, domain.Invocation, events.LoopDetected) error {
					if errors.Is(test.refusal, domain.ErrInterrupted) {
						cancel(domain.ByUser)
					}
					return test.refusal
				},
			})
			session := p.open("go")
			if err := p.runner.Run(ctx, session); err != nil && !errors.Is(err, domain.ErrInterrupted) {
				t.Fatalf("Run = %v", err)
			}
			var ended domain.EventID
			for v, err := range p.ledger.Read(t.Context(), events.SessionStream(session), 0) {
				if err != nil {
					t.Fatal(err)
				}
				switch e := v.Event.(type) {
				case events.CallSettled:
					ended = v.ID
					if size := len(e.Text) + len(e.Detail) + len(e.Tool) + len(e.Rule.Resource); size > most {
						t.Errorf("the end of %s has %d bytes of text, want %d at most", e.Call, size, most)
					}
				case events.LoopDetected:
					if len(e.Tool) > most {
						t.Errorf("the loop names a tool in %d bytes, want %d at most", len(e.Tool), most)
					}
				case events.SessionInterrupted:
					if len(e.Detail) > most {
						t.Errorf("the interruption has %d bytes of detail, want %d at most", len(e.Detail), most)
					}
					if e.Reason == domain.ByUser && ctx.Err() == nil && v.Causation != ended {
						t.Errorf("the interruption comes of %s, want the end of the declined call %s", v.Causation, ended)
					}
				}
			}
			ends := p.ends(session)
			if last := ends[len(ends)-1]; last.Outcome != test.outcome {
				t.Errorf("the last call ended %s, want %s", last.Outcome, test.outcome)
			}
			if broken := exceptions(t, p.ledger); len(broken) != 0 {
				t.Errorf("exceptions = %+v, want none", broken)
			}
		})
	}
}

// A ruled is an AllowedRules with prepared rules for each call, until Forget removes
// them.
type ruled struct {
	mu    sync.Mutex
	rules map[domain.CallID][]domain.Rule
}

func (r *ruled) Of(inv domain.Invocation) []domain.Rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rules[inv.Call]
}

func (r *ruled) Forget(inv domain.Invocation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.rules, inv.Call)
}

// The rules that allowed the requests of a call are recorded with its end, by the
// registry or by the runner, and are then forgotten.
func TestEndsThatTheRunnerRecordsNameTheRulesThatAllowed(t *testing.T) {
	t.Parallel()
	rule := domain.Rule{Action: "doom_loop", Resource: "*", Effect: domain.Allow}
	kept := &ruled{rules: map[domain.CallID][]domain.Rule{"c2": {rule}}}
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays(cycle(1, 3)...), Allowances: kept,
		Looping: func(context.Context, domain.Invocation, events.LoopDetected) error {
			return &domain.Declined{Feedback: "no"}
		},
	})
	session := p.open("go")
	p.run(session)
	found := false
	for v, err := range p.ledger.Read(t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(events.CallSettled); ok && e.Call == "c2" {
			found = len(e.Allowed) == 1 && e.Allowed[0] == rule
		}
	}
	if !found || len(kept.rules) != 0 {
		t.Errorf("the end names the rule: %t, and %d are kept; want the rule on record and none kept", found, len(kept.rules))
	}
}

// A narrowStore accepts few records in one append after it was armed.
type narrowStore struct {
	events.Store
	most      int
	uncertain int // the narrow append, from 1, that is added and answered with an error; 0: none
	mu        struct {
		sync.Mutex
		armed   bool
		appends int
	}
}

// arm makes the store refuse large appends from now on.
func (n *narrowStore) arm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.armed = true
}

func (n *narrowStore) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.mu.armed {
		return n.Store.Append(ctx, s, after, records...)
	}
	if len(records) > n.most {
		return events.ErrTooLarge
	}
	err := n.Store.Append(ctx, s, after, records...)
	if n.mu.appends++; err == nil && n.mu.appends == n.uncertain {
		return errLine
	}
	return err
}

// An interruption whose record exceeds the limit of one append ends all calls in several
// appends, and the interruption is the last event, also if one of the appends has an
// unknown outcome.
func TestInterruptionOverTheLimitOfAnAppendEndsEachCall(t *testing.T) {
	t.Parallel()
	for uncertain := range 8 {
		t.Run(fmt.Sprint("uncertain append ", uncertain), func(t *testing.T) {
			t.Parallel()
			store := &narrowStore{Store: eventstest.NewSlice(), most: 2, uncertain: uncertain}
			var reply []runner.Part
			for i := range 9 {
				reply = append(reply, ask(fmt.Sprint("c", i), "echo", `{"text":"a"}`))
			}
			p, err := boot(t, store, noOutputs{}, registry.Tools{"echo": echo(&counter{})}, runner.Config{
				Provider: plays(reply),
				Looping:  func(context.Context, domain.Invocation, events.LoopDetected) error { store.arm(); return errLine },
				Rounds:   2,
			})
			if err != nil {
				t.Fatal(err)
			}
			session := p.open("go")
			if err := p.runner.Run(t.Context(), session); !errors.Is(err, errLine) {
				t.Fatalf("Run = %v, want the error", err)
			}
			p.ends(session)
			if broken := exceptions(t, p.ledger); len(broken) != 0 {
				t.Errorf("exceptions = %+v, want none", broken)
			}
			if kinds := p.kinds(session); !strings.HasSuffix(kinds, " SessionInterrupted") || strings.Count(kinds, "SessionInterrupted") != 1 {
				t.Errorf("events = %s, want one interruption at the end", kinds)
			}
		})
	}
}
