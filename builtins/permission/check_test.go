package permission_test

import (
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

func TestCheckTellsWhatAssertWouldDoAndAsksNobody(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "allow read *\nask read *.env\ndeny read secret/*\ndeny glob *")
	d.approvals.Add(permission.Approval{Action: "read", Resource: "b.env", At: time.Now()})
	d.approvals.Add(permission.Approval{Action: "read", Resource: "secret/*", At: time.Now()})
	inv := d.invocation()
	for _, c := range []struct {
		ask   permission.Ask
		want  domain.Effect
		apart bool
	}{
		{ask("read", "a"), domain.Allow, false}, {ask("read", "a", "x/.env"), domain.Ask, true}, {ask("read", "b.env"), domain.Allow, false},
		{ask("read", "a.env", "secret/x"), domain.Deny, false}, {ask("glob", "a"), domain.Deny, false}, {ask("edit", "a"), domain.Ask, false},
	} {
		got := d.Check(inv, c.ask)
		if got.Effect != c.want || got.Specific != c.apart || (got.Rule.Source != "") != (c.want == domain.Deny) {
			t.Errorf("Check(%v) = %+v, want %v, apart %v", c.ask, got, c.want, c.apart)
		}
	}
	if len(d.facts.requests)+len(d.facts.decided)+len(d.queue.Pending()) != 0 {
		t.Errorf("Check left %+v", d.facts)
	}
}

func TestResourceIsSetApartByRulesAboutItsAction(t *testing.T) {
	t.Parallel()
	for rules, want := range map[string]bool{
		"": false, "ask * *": false, "deny read x": false, "allow grep *": false, "ask * *\ndeny read x": false,
		"ask read *": true, "ask * *.env": true, "allow read src/*": true, "allow * x": true, "ask * *\nallow read src/*": true, "allow * *\nask read *.env": true,
	} {
		if got := permission.EvaluateRules(domain.RuleSets{parseName(t, rules)}, ask("read", "sub/.env")); got.Effect != domain.Ask || got.Specific != want {
			t.Errorf("by %q, sub/.env is %+v, want that it is asked about, apart %v", rules, got, want)
		}
	}
}
