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
		ruled bool
	}{
		{ask("read", "a"), domain.Allow, true}, {ask("read", "a", "x/.env"), domain.Ask, true}, {ask("read", "b.env"), domain.Allow, true},
		{ask("read", "a.env", "secret/x"), domain.Deny, true}, {ask("glob", "a"), domain.Deny, true}, {ask("edit", "a"), domain.Ask, false},
	} {
		got := d.Check(inv, c.ask)
		if got.Effect != c.want || got.Ruled != c.ruled || (got.Rule.Source != "") != (c.want == domain.Deny) {
			t.Errorf("Check(%v) = %+v, want %v, ruled %v", c.ask, got, c.want, c.ruled)
		}
	}
	if len(d.facts.requests)+len(d.facts.decided)+len(d.queue.Pending()) != 0 {
		t.Errorf("Check left %+v", d.facts)
	}
}
