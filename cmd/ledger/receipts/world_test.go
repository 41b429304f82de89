package receipts

import (
	"bytes"
	"context"
	"crypto/rand"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// length returns n, or 10 n in a long test.
func length(n int) int {
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		return 10 * n
	}
	return n
}

// A world is a store with a random history, its outputs, and its calls.
type world struct {
	*stores.Store
	outs  *outputs.Store
	calls []calls.Call
	// history has the events as appended.
	history []events.Envelope
}

// newWorld returns a store with a random history. Every outcome occurs in turn. The outputs that
// settlements name are kept, and those that an event prunes are pruned if prune is set.
func newWorld(t *testing.T, seed uint64, n int, prune pruning) *world {
	t.Helper()
	outs, err := outputs.Open(t.TempDir(), outputs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = outs.Close() })
	w := &world{outs: outs, history: projectionstest.History(seed, n)}
	kept := map[domain.Ref]domain.Retained{}
	settled := 0
	for i, v := range w.history {
		switch e := v.Event.(type) {
		case events.CallSettled:
			if len(e.Retained) == 0 {
				e.Outcome = domain.Outcomes()[settled%len(domain.Outcomes())]
				settled++
			}
			e.Retained = slices.Clone(e.Retained)
			for j, r := range e.Retained {
				if kept[r.Ref], err = outs.Keep(t.Context(), r.Ref, r.MIME, strings.NewReader(strings.Repeat(r.Ref.String()+"\n", 100))); err != nil {
					t.Fatal(err)
				}
				e.Retained[j] = kept[r.Ref]
			}
			w.history[i].Event = e
		case events.OutputPruned:
			e.Retained = kept[e.Retained.Ref]
			w.history[i].Event = e
			if prune == pruned {
				if _, err := outs.Prune(t.Context(), e.Retained.Ref, e.Policy, e.Pruned); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	state, p := calls.New(), calls.Projection()
	for _, v := range w.history {
		state = p.Apply(state, v)
	}
	w.calls = append(state.Calls(), state.Orphans()...)
	w.Store = newStore(t, recordsOf(t, w.history), outs)
	return w
}

// pruning says whether the outputs of a world that an event prunes are pruned.
type pruning bool

const pruned, unpruned pruning = true, false

// A placed is a record with its stream.
type placed struct {
	events.Stream
	events.Record
}

// recordsOf returns the records of events.
func recordsOf(t *testing.T, history []events.Envelope) (all []placed) {
	t.Helper()
	for _, v := range history {
		r, err := events.Encode(events.Draft{ID: v.ID, Time: v.Time, Correlation: v.Correlation, Causation: v.Causation, Event: v.Event})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, placed{v.Stream, r})
	}
	return all
}

// newStore returns a store with records in this order, and outputs.
func newStore(t *testing.T, records []placed, outs *outputs.Store) *stores.Store {
	t.Helper()
	store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: vfs.NewMem(), Durability: embedded.Interval(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	lengths := map[events.Stream]events.Revision{}
	for len(records) > 0 {
		s, n := records[0].Stream, 1
		batch := []events.Record{records[0].Record}
		for n < len(records) && records[n].Stream == s {
			batch = append(batch, records[n].Record)
			n++
		}
		if err := store.Append(t.Context(), s, lengths[s], batch...); err != nil {
			t.Fatal(err)
		}
		lengths[s] += events.Revision(n)
		records = records[n:]
	}
	local := remote.Local(outs)
	return &stores.Store{
		Name: "store", Log: store, Ledger: events.NewLedger(store, domain.NewMint(time.Now, rand.Reader), time.Now), Outputs: local, LocalOutputs: local,
	}
}

// prove returns the receipt of a call as read back from its encoding, and the encoding.
func prove(t testing.TB, s *stores.Store, key calls.Key) (*Receipt, []byte) {
	t.Helper()
	made, err := Make(context.Background(), s, key, Program{"ledger", "v1"}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatalf("Make(%v) = %v", key, err)
	}
	data, err := made.Encode()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("Read of the receipt of %v = %v\n%s", key, err, data)
	}
	return r, data
}

// check returns the report of a receipt and fails the test for any error.
func check(t testing.TB, s *stores.Store, r *Receipt) *Report {
	t.Helper()
	report, err := Check(context.Background(), s, r, Options{Bytes: true})
	if err != nil {
		t.Fatalf("Check = %v", err)
	}
	return report
}

// richCall returns a call with a request, a decision, a start, an end and a kept output.
func (w *world) richCall(t testing.TB) calls.Key {
	t.Helper()
	for _, c := range w.calls {
		r, _ := prove(t, w.Store, c.Key())
		roles := map[calls.Role]bool{}
		for _, e := range r.Events {
			roles[e.Role] = true
		}
		if roles[calls.OfferRole] && roles[calls.RequestRole] && roles[calls.PermissionRole] && roles[calls.DecisionRole] && roles[calls.EndRole] && len(r.Outputs) > 0 && r.Outputs[0].State == Kept {
			return c.Key()
		}
	}
	t.Fatal("the history has no call with a request and a kept output")
	return calls.Key{}
}
