package calls_test

import (
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// An added call has the parent and the turn of its parent, its title and the time that its
// tool took, in a folded state and in one from a checkpoint, while it is open and after its
// end. The wait for answers counts for the call that asked.
func TestAnAddedCallKeepsItsParentTitleAndTime(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask("a", "b")
	d.add(d.started("a"))
	d.add(d.added("a", "a/1", "a/2"))
	start := d.started("a/1")
	start.Title = strings.Repeat("é", 200)
	d.add(start)
	d.add(d.added("a/1", "a/1/1")) // an added call adds calls too
	question := d.log.Mint.Permission()
	d.add(events.QuestionAsked{Question: question, Message: d.message, Call: "a/1"})
	d.add(events.QuestionAnswered{Question: question, WaitedMS: 40})
	open := len(d.log.Envelopes())
	d.run("a/1/1")
	end := d.settled("a/1")
	end.RanMS = 1234
	d.add(end)
	for _, id := range []domain.CallID{"a/2", "b"} {
		d.run(id)
	}
	d.add(d.settled("a"))
	for name, cut := range map[string]int{"open": open, "ended": len(d.log.Envelopes())} {
		folded := fold(d.log.Envelopes()[:cut])
		data, err := projections.Pack(folded)
		if err != nil {
			t.Fatal(err)
		}
		decoded := calls.New()
		if err := decoded.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		for from, s := range map[string]*calls.State{"folded": folded, "decoded": decoded} {
			c, _ := s.Call(d.key("a/1"))
			if c.Parent != "a" || c.Turn != d.turn || c.Title != strings.Repeat("é", 128) || c.Requests != 1 || c.WaitedMS != 40 || (c.Settlement.RanMS == 1234) != (name == "ended") {
				t.Errorf("%s, %s: the call is %+v", name, from, c)
			}
			for id, parent := range map[domain.CallID]domain.CallID{"a": "", "b": "", "a/2": "a", "a/1/1": "a/1"} {
				if c, ok := s.Call(d.key(id)); !ok || c.Parent != parent || c.Title != "" {
					t.Errorf("%s, %s: call %s is of %q, want %q", name, from, id, c.Parent, parent)
				}
			}
			if found := s.Exceptions(); name == "ended" && len(found) != 0 {
				t.Errorf("%s: Exceptions = %+v", from, found)
			}
			if got := s.Sessions()[0].Calls; got != 5 {
				t.Errorf("%s, %s: the session has %d calls, want 5", name, from, got)
			}
		}
	}
}

// A session has the agent of its last switch. A question waits until it is answered.
func TestASessionHasTheAgentOfItsLastSwitch(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.add(events.AgentSwitched{Agent: "plan", Previous: "build"})
	d.materialize()
	d.ask("a")
	d.run("a")
	s := d.state()
	if c, _ := s.Call(d.key("a")); s.Sessions()[0].Agent != "plan" || c.Agent != "plan" {
		t.Errorf("the session is of %s and its call of %s, want plan", s.Sessions()[0].Agent, c.Agent)
	}
}
