package storecopy

import (
	"context"
	"crypto/rand"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

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
			more.ID = domain.NewMint(time.Now, rand.Reader).Event()
			return s.Append(context.Background(), "b-1", 0, r, more)
		}, fault.ExitConflict, "in place of nothing"},
	} {
		memory := func() *stores.Store {
			store, err := embedded.Open(t.Context(), name, embedded.Config{FS: vfs.NewMem()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return &stores.Store{Log: store, Ledger: events.NewLedger(store, domain.NewMint(time.Now, rand.Reader), time.Now)}
		}
		from, to := memory(), memory()
		for _, s := range []events.Stream{"a-1", "b-1"} {
			if err := from.Log.Append(t.Context(), s, 0, events.Record{ID: domain.NewMint(time.Now, rand.Reader).Event(), Kind: "K", Version: 1, Data: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		to.Log = dishonest{to.Log.(*embedded.Store), "b-1", c.does}
		p := &render.Printer{Now: time.Now, Err: io.Discard}
		err := (&copier{from: from, to: to, progress: p.Progress()}).run(t.Context())
		if err == nil || fault.Of(err).Exit != c.exit || !strings.Contains(err.Error(), c.says) {
			t.Errorf("copy to one that %s what it is given = %v, want exit %d that says %q", name, err, c.exit, c.says)
		}
	}
}
