package server_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// An unreadable store fails reads.
type unreadable struct{ *embedded.Store }

func (unreadable) Read(context.Context, events.Stream, events.Revision) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) { yield(events.Entry{}, errors.New("it was read")) }
}

// The server does not read a position back from a store that returns it.
func TestAppendReadsNothingFromAStoreThatReturnsPositions(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.Context(), "ledger", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	c := connect(t, serve(t, unreadable{store}, everything))
	for i, expect := range []esdb.ExpectedRevision{esdb.NoStream{}, esdb.Revision(1)} {
		got := mustAppend(t, c, "a-1", expect, many("A", 2)...)
		head, _ := store.Head().Parts()
		if want := uint64(2*i + 2); got.CommitPosition != want || got.PreparePosition != want || head != want || got.NextExpectedVersion != want-1 {
			t.Errorf("append %d = %+v with the log at %d, want position %d", i, got, head, want)
		}
	}
}
