package calls_test

import (
	"fmt"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// Each outcome requires a start, excludes one, or permits both; every other
// combination is a breach.
func TestAnOutcomeAgreesWithTheStartOfItsCall(t *testing.T) {
	t.Parallel()
	const always, never, maybe = "always", "never", "maybe"
	ran := map[domain.Outcome]string{
		domain.Succeeded: always, domain.InvalidOutput: always, domain.RetentionFailed: always, domain.MediaTooLarge: always, domain.Lost: always,
		domain.UnknownTool: never, domain.Stale: never, domain.InvalidInput: never, domain.Disabled: never,
		domain.Failed: maybe, domain.DeniedByRule: maybe, domain.DeclinedByUser: maybe, domain.Interrupted: maybe, domain.Defective: maybe,
	}
	for _, outcome := range domain.Outcomes() {
		for _, begun := range []bool{false, true} {
			d := newDesk()
			d.ask("a")
			if begun {
				d.add(d.started("a"))
			}
			e := d.settled("a")
			e.Outcome, e.Began = outcome, begun
			d.add(e)
			want := ""
			switch {
			case begun && ran[outcome] == never:
				want = string(calls.StartDenied)
			case !begun && ran[outcome] == always:
				want = string(calls.StartMissing)
			}
			got := ""
			for _, broken := range d.state().Exceptions() {
				got += string(broken.Law)
			}
			if ran[outcome] == "" || got != want {
				t.Errorf("a call that began: %t, and ended %s, breaks %q, want %q", begun, outcome, got, want)
			}
		}
	}
}

// A second start is a breach unless both starts declare the call idempotent.
func TestACallBeginsAgainOnlyIfBothStartsAreIdempotent(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{false, true} {
		for _, second := range []bool{false, true} {
			d := newDesk()
			d.ask("a")
			for _, idempotent := range []bool{first, second} {
				e := d.started("a")
				e.Idempotent = idempotent
				d.add(e)
			}
			d.add(d.settled("a"))
			found := d.state().Exceptions()
			if lawful := first && second; lawful != (len(found) == 0) || !lawful && found[0].Law != calls.StartedTwice {
				t.Errorf("starts that are idempotent %t and %t: Exceptions = %+v", first, second, found)
			}
		}
	}
}

// A call has the number of its permission requests and the sum of their waits.
func TestPermissionWaitsAreSummed(t *testing.T) {
	t.Parallel()
	d := newDesk()
	d.ask("a")
	d.add(d.started("a"))
	for _, waited := range []int64{1200, 0, 34} {
		p := d.log.Mint.Permission()
		d.add(events.PermissionRequested{Permission: p, Message: d.message, Call: "a", Action: "read", Resources: []string{"a"}})
		d.add(events.PermissionDecided{Permission: p, Effect: domain.Allow, By: events.ByPerson, Scope: "once", WaitedMS: waited})
	}
	d.add(d.settled("a"))
	if c, _ := d.state().Call(d.key("a")); c.WaitedMS != 1234 || c.Requests != 3 {
		t.Errorf("the call asked %d times and waited %d ms, want 3 and 1234", c.Requests, c.WaitedMS)
	}
}

// Each turn is found, both among the last ones, which are searched linearly, and
// among the indexed ones.
func TestEveryTurnIsFoundByItsID(t *testing.T) {
	t.Parallel()
	d := newDesk()
	var ends []events.CallSettled
	var starts []events.CallStarted
	const many = 100
	for i := range many {
		// The offers alternate, so that a turn that is taken for its neighbour shows.
		offered := d.offers[i%2]
		d.turn, d.message = d.log.Mint.Turn(), d.log.Mint.Message()
		d.add(events.TurnMaterialized{Turn: d.turn, Message: d.message, Tools: []domain.Offered{offered}})
		id := domain.CallID(fmt.Sprint("c", i))
		d.add(events.ReplyReceived{Turn: d.turn, Message: d.message, Calls: []domain.Call{{ID: id, Name: string(offered.Name)}}})
		start, end := d.started(id), d.settled(id)
		start.Tool, start.Offered, start.Effective = string(offered.Name), offered, offered
		end.Tool, end.Offered, end.Effective = string(offered.Name), offered, offered
		starts, ends = append(starts, start), append(ends, end)
	}
	for i := range many {
		d.add(starts[i])
		d.add(ends[i])
	}
	if found := d.state().Exceptions(); len(found) != 0 {
		t.Errorf("%d exceptions, such as %+v, want none", len(found), found[0])
	}
}
