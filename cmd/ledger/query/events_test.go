package query

import (
	"context"
	"iter"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A countedLog counts the entries that a reader takes from a store.
type countedLog struct {
	events.Scanner
	lent int
}

// Lend yields the entries of the store.
func (l *countedLog) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range l.Scanner.Lend(ctx, q) {
			if l.lent++; !yield(e, err) {
				return
			}
		}
	}
}

// Entries yields the events of the log that the filter matches, and reads no other stream
// if the filter names one.
func TestEntriesAreThoseThatMatch(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), "log", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := projectionstest.Append(t.Context(), store, projectionstest.History(7, 150)); err != nil {
		t.Fatal(err)
	}
	var all []events.Entry
	for e, err := range store.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	middle := all[len(all)/2]
	for _, e := range all {
		session, ok := e.Stream.Session()
		if !ok {
			continue
		}
		for _, filter := range []EventFilter{{Stream: string(e.Stream)}, {sessionID: session}, {Stream: string(e.Stream), Kinds: []string{e.Kind}}} {
			var want, got []events.Entry
			own := 0
			for _, e := range all {
				if v, _ := events.Decode(e); e.Position.Compare(middle.Position) > 0 && filter.Matches(e, v) {
					want = append(want, e)
				}
				if string(e.Stream) == filter.Stream {
					own++
				}
			}
			log := &countedLog{Scanner: store}
			for e, err := range Entries(t.Context(), &stores.Store{Log: log}, middle.Position, filter) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, e)
			}
			if !slices.EqualFunc(got, want, func(a, b events.Entry) bool { return a.ID == b.ID && string(a.Data) == string(b.Data) }) {
				t.Errorf("Entries of %+v yields %d entries, want %d", filter, len(got), len(want))
			}
			if filter.Stream != "" && log.lent > own {
				t.Errorf("Entries of %+v reads %d entries of a stream of %d", filter, log.lent, own)
			}
		}
	}
}
