package receipts

import (
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// The receipt of every call of random histories, of each outcome, has the events of the call and
// no difference to its store, to the same store with records of other streams in between, and to
// the store with later events.
func TestAReceiptOfEveryCallVerifies(t *testing.T) {
	t.Parallel()
	outcomes, states, roles := map[domain.Outcome]int{}, map[OutputState]int{}, map[calls.Role]int{}
	for seed := range uint64(length(3)) {
		w := newWorld(t, seed+100, 500, seed%2 == 0)
		records := recordsOf(t, w.history)
		var shifted []placed
		for i, r := range records {
			if shifted = append(shifted, r); i%3 == 0 {
				shifted = append(shifted, placed{"topic-t", events.Record{ID: w.Ledger.Mint().Event(), Kind: "K", Version: 1, Time: r.Time, Data: []byte("{}")}})
			}
		}
		moved := newStore(t, shifted, w.outs)
		for _, c := range w.calls {
			r, _ := prove(t, w.Store, c.Key())
			report := check(t, w.Store, r)
			if len(report.Differences) > 0 {
				t.Fatalf("seed %d, %v: differences to its store: %+v", seed, c.Key(), report.Differences)
			}
			for _, n := range report.Notes {
				if !strings.Contains(n.Detail, "pruned") && !strings.Contains(n.Detail, "kinds that this program does not know") {
					t.Errorf("seed %d, %v: note %+v", seed, c.Key(), n)
				}
			}
			if report.Outcome == nil != c.SettledBy.IsZero() || report.Outcome != nil && *report.Outcome != c.Settlement.Outcome {
				t.Errorf("seed %d, %v: outcome %v, want %v", seed, c.Key(), report.Outcome, c.Settlement.Outcome)
			}
			outcomes[c.Settlement.Outcome]++
			for _, o := range r.Outputs {
				states[o.State]++
			}
			for _, e := range r.Events {
				roles[e.Role]++
			}
			copied := check(t, moved, r)
			if len(copied.Differences) > 0 || !noted(copied, "at position") {
				t.Fatalf("seed %d, %v: in a store with other positions: differences %+v, notes %+v", seed, c.Key(), copied.Differences, copied.Notes)
			}
		}
	}
	for _, o := range domain.Outcomes() {
		if outcomes[o] == 0 {
			t.Errorf("no receipt of a call that ended %s", o)
		}
	}
	if states[Kept] == 0 || states[Pruned] == 0 || roles[calls.LateRole] == 0 || roles[calls.DecisionRole] == 0 || roles[calls.AddedRole] == 0 {
		t.Errorf("states of outputs %v, roles %v: want each", states, roles)
	}
}

// Events after the head of a receipt are notes: a late result, and the pruning of an output.
func TestLaterEventsAreNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 7, 400, unpruned)
	key := w.richCall(t)
	r, _ := prove(t, w.Store, key)
	stream := events.SessionStream(key.Session)
	late := w.Ledger.Draft(events.LateResultObserved{Message: key.Message, Call: key.Call, Tool: "read", Outcome: domain.Succeeded, Text: "late"}, domain.EventID{})
	prunes := w.Ledger.Draft(events.OutputPruned{Retained: r.Outputs[0].Retained, Policy: "old", Pruned: w.Ledger.Now()}, domain.EventID{})
	if _, err := w.Ledger.Append(t.Context(), stream, lengthOf(t, w, stream), late, prunes); err != nil {
		t.Fatal(err)
	}
	report := check(t, w.Store, r)
	if len(report.Differences) > 0 || !noted(report, "later events of the call: 2") || noted(report, "pruned") {
		t.Errorf("after later events: differences %+v, notes %+v, want a note about 2 events", report.Differences, report.Notes)
	}
	if _, err := w.outs.Prune(t.Context(), r.Outputs[0].Ref, "old", w.Ledger.Now()); err != nil {
		t.Fatal(err)
	}
	report = check(t, w.Store, r)
	if len(report.Differences) > 0 || !noted(report, `under "old"`) {
		t.Errorf("after pruning: differences %+v, notes %+v, want a note about the pruning", report.Differences, report.Notes)
	}
}

// noted reports whether a note of a report has a text.
func noted(r *Report, text string) bool {
	return slices.ContainsFunc(r.Notes, func(f Discrepancy) bool { return strings.Contains(f.Detail, text) })
}

// lengthOf returns the length of a stream.
func lengthOf(t *testing.T, w *world, s events.Stream) (n events.Revision) {
	t.Helper()
	for v, err := range w.Ledger.Read(t.Context(), s, 0) {
		if err != nil {
			t.Fatal(err)
		}
		n = v.Revision
	}
	return n
}
