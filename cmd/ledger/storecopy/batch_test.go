package storecopy

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// A narrow is a store that refuses an append of more than most records, as a server
// with a small limit does. It counts the appends that it accepts.
type narrow struct {
	*embedded.Store
	most, appends int // the largest batch in records; the appends accepted so far
}

// Append adds records to the embedded store, or returns events.ErrTooLarge.
func (n *narrow) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	if len(records) > n.most {
		return events.ErrTooLarge
	}
	n.appends++
	return n.Store.Append(ctx, s, after, records...)
}

// A copy appends consecutive records of one stream as one batch, splits a batch that
// the target refuses as too large, and keeps the order of records across streams.
func TestACopyAppendsRunsOfAStreamAtOnce(t *testing.T) {
	t.Parallel()
	mint := domain.NewMint(time.Now, rand.Reader)
	memory := func() *embedded.Store {
		store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	from := memory()
	lengths := map[events.Stream]events.Revision{}
	for n, run := range []int{100, 1, 1, maxBatchRecords + 1, 1} {
		s := events.Stream(fmt.Sprintf("s-%d", n%2))
		for range run { // one append per record
			r := events.Record{ID: mint.Event(), Kind: "K", Version: 1, Time: time.Now().UTC().Truncate(time.Microsecond), Data: []byte("{}")}
			if err := from.Append(t.Context(), s, lengths[s], r); err != nil {
				t.Fatal(err)
			}
			lengths[s]++
		}
	}
	all := func(s events.Store) []events.Entry {
		var all []events.Entry
		for e, err := range s.ReadAll(t.Context(), events.Position{}) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		return all
	}
	want := all(from)
	// copyRecords is 256, so the run of 257 records takes two appends. A target that
	// takes 60 records gets the run of 100 as two halves and the batch of 256 as eight
	// parts of 32.
	for most, appends := range map[int]int{maxBatchRecords: 6, 60: 2 + 1 + 1 + 8 + 1 + 1} {
		to := &narrow{Store: memory(), most: most}
		run := batch{to: to}
		for _, e := range want {
			if err := run.add(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := run.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := all(to.Store); !slices.EqualFunc(got, want, sameEntry) || to.appends != appends {
			t.Errorf("with at most %d at once: %d records by %d appends, want the %d of the source, in order, by %d", most, len(got), to.appends, len(want), appends)
		}
	}
}
