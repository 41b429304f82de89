package calls_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// newDeskOf returns a desk whose turn offers a tool of the first of several started
// processes, and the processes.
func newDeskOf(processes int) (*desk, []domain.ProcessID) {
	d := newDesk()
	ids := make([]domain.ProcessID, processes)
	for i := range ids {
		ids[i] = d.log.Mint.Process()
		d.log.Add(events.ProcessStream(ids[i]), events.ProcessStarted{Process: ids[i], Host: "h", Program: "ledger"})
	}
	d.layer = d.log.Mint.Layer()
	d.log.Add(events.LayerStream(d.layer), events.LayerOpened{Layer: d.layer, Placement: domain.PerSession, Session: d.session, Process: ids[0]})
	d.offers = []domain.Offered{d.register(d.layer, "read")}
	d.materialize()
	return d, ids
}

// stop records that a process stopped.
func (d *desk) stop(p domain.ProcessID) {
	d.log.Add(events.ProcessStream(p), events.ProcessStopped{Process: p, Reason: events.ProcessEnded})
}

// An unfinished call or permission request is no breach while its process runs, and a
// breach once the process is recorded as stopped. The end of another process does not
// matter.
func TestAnUnfinishedCallIsAnExceptionOnceItsProcessStopped(t *testing.T) {
	t.Parallel()
	ask := func(d *desk) {
		d.add(events.PermissionRequested{Permission: d.log.Mint.Permission(), Message: d.message, Call: "a", Action: "read", Resources: []string{"a"}})
	}
	for name, test := range map[string]struct {
		make func(d *desk, other domain.ProcessID)
		// owner is the process whose end makes it a breach.
		owner int
		law   calls.Law
		count int
	}{
		"a call that has not begun": {func(d *desk, _ domain.ProcessID) { d.ask("a") }, 0, calls.Open, 1},
		"a call that began": {func(d *desk, _ domain.ProcessID) {
			d.ask("a")
			e := d.started("a")
			e.Process = domain.ProcessID{}
			d.add(e)
		}, 0, calls.Open, 1},
		"a call that began in another process": {func(d *desk, other domain.ProcessID) {
			d.ask("a")
			e := d.started("a")
			e.Process = other
			d.add(e)
		}, 1, calls.Open, 1},
		"a question about a call that has not begun": {func(d *desk, _ domain.ProcessID) {
			d.ask("a")
			ask(d)
			d.add(events.CallSettled{Turn: d.turn, Message: d.message, Call: "a", Tool: "read", Outcome: domain.Interrupted})
		}, 0, calls.WaitsForDecision, 1},
		"a call of a turn that offers nothing": {func(d *desk, _ domain.ProcessID) {
			d.offers = nil
			d.materialize()
			d.ask("a")
		}, 0, calls.Open, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, processes := newDeskOf(2)
			test.make(d, processes[1])
			check := func(when string, breaches int) {
				t.Helper()
				s := d.state()
				found := s.Exceptions()
				if len(found) != breaches || breaches > 0 && found[0].Law != test.law {
					t.Errorf("%s: Exceptions = %+v, want %d of %q", when, found, breaches, test.law)
				}
				if open := s.Unfinished(); len(open) != test.count || open[0].Law != test.law {
					t.Errorf("%s: Unfinished = %+v, want %d of %q", when, open, test.count, test.law)
				}
				data, err := projections.Pack(s)
				again := calls.New()
				if err == nil {
					err = again.UnmarshalJSON(data)
				}
				if err != nil || fmt.Sprint(again.Exceptions()) != fmt.Sprint(found) {
					t.Errorf("%s: from a checkpoint Exceptions = %+v, %v, want %+v", when, again.Exceptions(), err, found)
				}
			}
			check("at work", 0)
			d.stop(processes[1-test.owner])
			check("another process stopped", 0)
			d.stop(processes[test.owner])
			check("its process stopped", test.count)
		})
	}
}

// In a session with an unknown kind an open call is no breach, as that event may have
// ended it.
func TestASessionOfUnknownKindsHasNoOverdueCall(t *testing.T) {
	t.Parallel()
	d, processes := newDeskOf(1)
	d.ask("a")
	d.stop(processes[0])
	if found := d.state().Exceptions(); len(found) != 1 {
		t.Fatalf("Exceptions = %+v, want the open call", found)
	}
	d.add(events.Unknown{Name: "CallDelegated", Version: 1, Data: json.RawMessage(`{}`)})
	if found := d.state().Exceptions(); len(found) != 0 || len(d.state().Unfinished()) != 1 {
		t.Errorf("Exceptions = %+v, want none", found)
	}
}
