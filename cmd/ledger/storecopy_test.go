package main

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// readEntries returns all entries of the store in a folder, in log order.
func readEntries(t *testing.T, dir string) (all []events.Entry) {
	t.Helper()
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for e, err := range store.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// newStoreWith returns the folder of a new store with the given entries.
func newStoreWith(t *testing.T, all []events.Entry) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	store, err := embedded.Open(t.Context(), dir, embedded.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, e := range all {
		if err := store.Append(t.Context(), e.Stream, e.Revision-1, e.Record); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sameRecord reports whether two entries are equal in all but their positions.
func sameRecord(a, b events.Entry) bool {
	a.Position, b.Position = events.Position{}, events.Position{}
	return reflect.DeepEqual(a, b)
}

// A copy continues from any prefix of the source, and keeps the order of records across
// streams.
func TestACopyGoesOnFromAnyRecord(t *testing.T) {
	t.Parallel()
	from := newSeededStore(t)
	want := readEntries(t, from)
	for n := 0; n <= len(want); n += 7 {
		to := newStoreWith(t, want[:n])
		if copied := ledger(t, from, "store", "copy", from, to); copied.exit != 0 {
			t.Fatalf("copy behind %d records = %d %s", n, copied.exit, copied.err)
		}
		if got := readEntries(t, to); !slices.EqualFunc(got, want, sameRecord) {
			t.Fatalf("copy behind %d records = %d records, want the %d of the source, in order", n, len(got), len(want))
		}
	}
}

// If a record of the target differs from the source in any field, the copy is a
// conflict and writes no record.
func TestACopyOntoAnythingElseIsAConflict(t *testing.T) {
	t.Parallel()
	from := newSeededStore(t)
	whole := readEntries(t, from)
	for name, change := range map[string]func(*events.Entry){
		"data":     func(e *events.Entry) { e.Data = append(slices.Clone(e.Data), ' ') },
		"metadata": func(e *events.Entry) { e.Metadata = append(slices.Clone(e.Metadata), ' ') },
		"kind":     func(e *events.Entry) { e.Kind += "Else" },
		"version":  func(e *events.Entry) { e.Version++ },
		"time":     func(e *events.Entry) { e.Time = e.Time.Add(1000) },
		"ID":       func(e *events.Entry) { e.ID = whole[0].ID },
		"stream":   func(e *events.Entry) { e.Stream, e.Revision = "other-1", 1 },
	} {
		t.Run(name, func(t *testing.T) { // not parallel: each copy opens the source
			strange := slices.Clone(whole[:9]) // the target holds a prefix whose last record differs
			change(&strange[8])
			to := newStoreWith(t, strange)
			copied := ledger(t, from, "store", "copy", from, to)
			if copied.exit != fault.ExitConflict || !strings.Contains(string(copied.err), "at its position 9 there is") {
				t.Errorf("copy = %d %s, want a conflict at position 9", copied.exit, copied.err)
			}
			if got := readEntries(t, to); len(got) != len(strange) {
				t.Errorf("the target has %d records, want %d as before", len(got), len(strange))
			}
		})
	}
}
