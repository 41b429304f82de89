package main

import (
	"context"
	"crypto/rand"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// entriesIn returns all entries of the store in a folder, in log order.
func entriesIn(t *testing.T, dir string) (all []events.Entry) {
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

// holding returns the folder of a new store with the given entries.
func holding(t *testing.T, all []events.Entry) string {
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

// A copy continues from any prefix of the source, and keeps the order of records across
// streams.
func TestACopyGoesOnFromAnyRecord(t *testing.T) {
	t.Parallel()
	from := seeded(t)
	want := entriesIn(t, from)
	for n := 0; n <= len(want); n += 7 {
		to := holding(t, want[:n])
		if copied := ledger(t, from, "store", "copy", from, to); copied.exit != 0 {
			t.Fatalf("copy behind %d records = %d %s", n, copied.exit, copied.err)
		}
		if got := entriesIn(t, to); !slices.EqualFunc(got, want, sameEntry) {
			t.Fatalf("copy behind %d records = %d records, want the %d of the source, in order", n, len(got), len(want))
		}
	}
}

// If a record of the target differs from the source in any field, the copy is a
// conflict and writes no record.
func TestACopyOntoAnythingElseIsAConflict(t *testing.T) {
	t.Parallel()
	from := seeded(t)
	whole := entriesIn(t, from)
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
			to := holding(t, strange)
			copied := ledger(t, from, "store", "copy", from, to)
			if copied.exit != fault.ExitConflict || !strings.Contains(string(copied.err), "at its position 9 there is") {
				t.Errorf("copy = %d %s, want a conflict at position 9", copied.exit, copied.err)
			}
			if got := entriesIn(t, to); len(got) != len(strange) {
				t.Errorf("the target has %d records, want %d as before", len(got), len(strange))
			}
		})
	}
}

// A dishonest store acknowledges each append, and applies does in place of an append to
// the stream last.
type dishonest struct {
	*embedded.Store
	last events.Stream // appends to it go to does
	does func(*embedded.Store, events.Record) error
}

// Append passes on appends to other streams, and calls does for one to last.
func (d dishonest) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	if s == d.last {
		return d.does(d.Store, records[0])
	}
	return d.Store.Append(ctx, s, after, records...)
}

// A copy reads the target back and compares it: a target that loses, changes or adds a
// record makes the copy fail.
func TestACopyIsReadBackAndNotBelieved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		does func(*embedded.Store, events.Record) error
		exit int
		says string
	}{
		"forgets": {func(*embedded.Store, events.Record) error { return nil }, fault.ExitUnverified, "lacks evt_"},
		"changes": {func(s *embedded.Store, r events.Record) error {
			r.Data = []byte(`"other"`)
			return s.Append(context.Background(), "b-1", 0, r)
		}, fault.ExitConflict, "holds something else: at its position 2"},
		"adds": {func(s *embedded.Store, r events.Record) error {
			more := r
			more.ID = newMint(time.Now).Event()
			return s.Append(context.Background(), "b-1", 0, r, more)
		}, fault.ExitConflict, "in place of nothing"},
	} {
		memory := func() *stores.Store {
			store, err := embedded.Open(t.Context(), name, embedded.Config{FS: vfs.NewMem()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return &stores.Store{Log: store, Ledger: events.NewLedger(store, newMint(time.Now), time.Now)}
		}
		from, to := memory(), memory()
		for _, s := range []events.Stream{"a-1", "b-1"} {
			if err := from.Log.Append(t.Context(), s, 0, events.Record{ID: newMint(time.Now).Event(), Kind: "K", Version: 1, Data: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		to.Log = dishonest{to.Log.(*embedded.Store), "b-1", c.does}
		a := newApp(&render.Printer{Now: time.Now, Err: io.Discard}, nil, rand.Reader)
		err := (&copying{app: a, from: from, to: to, progress: a.Progress()}).run(t.Context())
		if err == nil || fault.Of(err).Exit != c.exit || !strings.Contains(err.Error(), c.says) {
			t.Errorf("copy to one that %s what it is given = %v, want exit %d that says %q", name, err, c.exit, c.says)
		}
	}
}
