package permission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// under makes a gate evaluate these sets of rules for every call.
func under(t testing.TB, sets ...string) func(*permission.Config) {
	parsed := domain.RuleSets{}
	for _, text := range sets {
		parsed = append(parsed, parseName(t, text))
	}
	return func(c *permission.Config) {
		c.Rules = func(domain.Invocation) domain.RuleSets { return parsed }
	}
}

// alwaysYes is a person who answers always to everything.
var alwaysYes = answering(func(context.Context, permission.Request) (permission.Answer, error) {
	return permission.Answer{Choice: permission.Always, By: permission.ByUser}, nil
})

func TestDenyOfAnySetIsNeverOverridden(t *testing.T) {
	t.Parallel()
	for _, sets := range [][]string{
		{"allow * *", "deny edit secret/*"}, {"deny edit secret/*", "allow * *"}, {"allow * *", "allow edit *", "deny edit *"}, {"ask * *", "deny * *"}, {"", "deny * *"},
	} {
		d := newDesk(t, "", under(t, sets...), func(c *permission.Config) { c.Approver = alwaysYes })
		d.approvals.Add(permission.Approval{Action: "edit", Resource: "*"})
		a := ask("edit", "secret/a")
		err := d.Assert(t.Context(), d.invocation(), a)
		denied, ok := errors.AsType[*domain.Denied](err)
		if !ok || denied.Rule.Effect != domain.Deny || len(d.facts.decided) != 1 || d.facts.decided[0].By != permission.ByRule {
			t.Errorf("Assert under %q with an approval = %v, decided %+v, want a denial by rule", sets, err, d.facts.decided)
		}
		if got := d.Check(d.invocation(), a); got.Effect != domain.Deny || got.Rule.Effect != domain.Deny {
			t.Errorf("Check under %q = %+v, want a denial", sets, got)
		}
	}
}

func TestApprovalAllowsWhatAnySetAsks(t *testing.T) {
	t.Parallel()
	for _, sets := range [][]string{{"allow * *", "ask edit *"}, {"ask edit *", "allow * *"}, {"ask * *", ""}, {""}, nil} {
		d := newDesk(t, "", under(t, sets...), func(c *permission.Config) { c.Approver = permission.Headless{} })
		if err := d.Assert(t.Context(), d.invocation(), ask("edit", "a")); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("Assert under %q = %v, want that a person was asked", sets, err)
		}
		d.approvals.Add(permission.Approval{Action: "edit", Resource: "a"})
		if err := d.Assert(t.Context(), d.invocation(), ask("edit", "a")); err != nil {
			t.Errorf("Assert under %q with an approval = %v, want nil", sets, err)
		}
		if got := d.Check(d.invocation(), ask("edit", "a")).Effect; got != domain.Allow {
			t.Errorf("Check under %q with an approval = %v, want %v", sets, got, domain.Allow)
		}
	}
}

// The strictest effect of all sets and resources decides.
func TestStrictestOfAllSetsAndResourcesDecides(t *testing.T) {
	t.Parallel()
	effects := []domain.Effect{domain.Allow, domain.Ask, domain.Deny}
	rapid.Check(t, func(rt *rapid.T) {
		sets := make(domain.RuleSets, rapid.IntRange(1, 4).Draw(rt, "sets"))
		a := permission.Ask{Action: "x"}
		worst, resources := domain.Allow, rapid.IntRange(1, 3).Draw(rt, "resources")
		for r := range resources {
			resource := fmt.Sprint(r)
			a.Resources = append(a.Resources, resource)
			for i := range sets {
				e := rapid.SampledFrom(effects).Draw(rt, "effect")
				sets[i] = append(sets[i], domain.Rule{Action: "x", Resource: resource, Effect: e})
				worst = max(worst, e)
			}
		}
		d := newDesk(t, "", func(c *permission.Config) {
			c.Rules = func(domain.Invocation) domain.RuleSets { return sets }
			c.Approver = alwaysYes
		})
		if got := permission.EvaluateRules(sets, a).Effect; got != worst {
			rt.Errorf("EvaluateRules(%v) = %v, want %v", sets, got, worst)
		}
		err := d.Assert(t.Context(), d.invocation(), a)
		if (err != nil) != (worst == domain.Deny) {
			rt.Errorf("Assert under %v = %v, want a denial only for %v", sets, err, domain.Deny)
		}
		if asked := len(d.facts.requests) > 0 && len(d.facts.decided) > 0 && d.facts.decided[0].By == permission.ByUser; asked != (worst == domain.Ask) {
			rt.Errorf("under %v a person was asked: %t", sets, asked)
		}
	})
}

func TestRulesOfEachSetThatAllowedAreKept(t *testing.T) {
	t.Parallel()
	kept := new(permission.Allowances)
	d := newDesk(t, "", under(t, "allow * *\nallow read *", "allow * *", "ask * *\nallow * *"), func(c *permission.Config) { c.Allowances = kept })
	inv := d.invocation()
	if err := d.Assert(t.Context(), inv, ask("read", "a", "b")); err != nil {
		t.Fatal(err)
	}
	var sources []string
	for _, rule := range kept.Of(inv) {
		sources = append(sources, rule.Action+" "+rule.Source)
	}
	if want := []string{"read rules:2", "* rules:1", "* rules:2"}; !slices.Equal(sources, want) {
		t.Errorf("the call was allowed by %q, want %q", sources, want)
	}
}

func TestResourceIsSetApartByTheSetThatAsks(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		sets []string
		want bool
	}{
		{[]string{"allow * *", "ask * *"}, false}, {[]string{"allow read src/*", "ask * *"}, true}, {[]string{"allow * *", "ask read *"}, true},
		{[]string{"ask * *", "allow * *\nask read *.env"}, true}, {nil, false},
	} {
		sets := domain.RuleSets{}
		for _, text := range row.sets {
			sets = append(sets, parseName(t, text))
		}
		if got := permission.EvaluateRules(sets, ask("read", "sub/.env")); got.Effect != domain.Ask || got.Specific != row.want {
			t.Errorf("by %q, sub/.env is %+v, want that it is asked about, apart %t", row.sets, got, row.want)
		}
	}
}

func TestApprovalServesItsAgentOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, "", under(t, "ask * *"))
		call := func(agent domain.AgentID) domain.Invocation {
			inv := d.invocation()
			inv.Agent = agent
			return inv
		}
		a := permission.Ask{Action: "edit", Resources: []string{"a"}, Save: []string{"*"}}
		first, other := d.assert(t.Context(), call("build"), a), d.assert(t.Context(), call("plan"), a)
		synctest.Wait()
		for _, r := range d.queue.Pending() {
			if r.Invocation.Agent == "build" {
				if err := d.queue.Reply(r.ID, permission.Always, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := <-first; err != nil || len(d.facts.saved) != 1 || d.facts.saved[0].Agent != "build" {
			t.Fatalf("Assert = %v, saved %+v, want an approval of build", err, d.facts.saved)
		}
		synctest.Wait()
		pending := d.queue.Pending()
		if len(pending) != 1 || pending[0].Invocation.Agent != "plan" {
			t.Fatalf("Pending = %+v, want the request of plan, which an approval of build does not answer", pending)
		}
		if err := d.Assert(t.Context(), call("build"), ask("edit", "b")); err != nil {
			t.Errorf("Assert by build after its approval = %v, want nil", err)
		}
		for _, agent := range []domain.AgentID{"plan", "", "Build", "build "} {
			if got := d.Check(call(agent), ask("edit", "b")).Effect; got != domain.Ask {
				t.Errorf("Check by %q after an approval of build = %v, want %v", agent, got, domain.Ask)
			}
		}
		if err := d.queue.Reply(pending[0].ID, permission.Always, ""); err != nil || <-other != nil {
			t.Fatalf("the request of plan was not answered: %v", err)
		}
		if len(d.facts.saved) != 2 || d.facts.saved[1].Agent != "plan" || len(d.approvals.List(time.Now())) != 2 {
			t.Errorf("saved %+v, want one approval of each agent", d.facts.saved)
		}
		if d.approvals.Revoke("reviewer", "edit", "*") || !d.approvals.Revoke("build", "edit", "*") {
			t.Error("Revoke does not distinguish the agents")
		}
		if build, plan := d.Check(call("build"), ask("edit", "b")).Effect, d.Check(call("plan"), ask("edit", "b")).Effect; build != domain.Ask || plan != domain.Allow {
			t.Errorf("after the approval of build was revoked, build is %v and plan %v, want ask and allow", build, plan)
		}
	})
}
