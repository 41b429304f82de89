package eventstoredb_test

import (
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
)

// A tombstone is in the stream that it deletes and is not a record of it.
func TestATombstoneIsNoRecord(t *testing.T) {
	t.Parallel()
	s := (&stubServer{onRead: respondWith(recordedEvent("session-1", "Kind", "", 0, 10), recordedEvent("session-1", "$streamDeleted", "", 1<<63-1, 20))}).open(t)
	got, err := collect(s.ReadAll(t.Context(), events.Position{}))
	if err != nil || len(got) != 1 || got[0].Kind != "Kind" {
		t.Errorf("ReadAll = %+v, %v, want the record alone", got, err)
	}
	if got, err := collect(s.Scan(t.Context(), events.Query{Backward: true})); err != nil || len(got) != 0 { // the stub sends the last alone
		t.Errorf("Scan backward = %+v, %v, want no record", got, err)
	}
	for e, err := range s.Follow(t.Context(), events.Position{}, events.Following{CaughtUp: func(events.Position) {}}) {
		if err != nil || e.Kind != "Kind" {
			t.Errorf("Follow = %+v, %v, want the record alone", e, err)
		}
		break
	}
}

// Deletions returns the last event that hid or deleted records of each stream, within
// the namespace, and whether a later one removed the limit.
func TestDeletionsAreFound(t *testing.T) {
	t.Parallel()
	set := func(stream, metadata string, at uint64) *streams.ReadResp {
		e := recordedEvent("$$"+stream, "$metadata", "", at, at)
		e.GetEvent().GetEvent().Data = []byte(metadata)
		return e
	}
	at := &stubServer{version: "24.10.5", onRead: respondWith(
		set("us.a-1", `{"$maxCount":5}`, 10), set("us.a-1", `{"$maxCount":7,"$maxAge":60}`, 11),
		set("us.b-1", `{"$tb":4}`, 20), set("us.b-1", `{"$acl":{}}`, 21),
		set("us.c-1", `{"$acl":{"$r":"ops"}}`, 30), set("us.c-2", `no JSON`, 31), set("us.c-3", `{"$maxCount":0}`, 32),
		set("them.d-1", `{"$maxCount":1}`, 40), set("d-1", `{"$maxCount":1}`, 41),
		recordedEvent("us.e-1", "$streamDeleted", "", 1<<63-1, 50), set("us.e-1", `{}`, 51),
		recordedEvent("us.f-1", "$metadata", "", 0, 60), // a foreign event of that type in the stream itself
	)}
	s, err := eventstoredb.Open(t.Context(), at.serve(t), eventstoredb.Config{Namespace: "us."})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, err := s.Deletions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if all[i].Time.IsZero() || all[i].EventID != "0190a1b2-0000-7000-8000-000000000001" {
			t.Errorf("%s: event %s at %s", all[i].Name, all[i].EventID, all[i].Time)
		}
		all[i].Time, all[i].EventID = time.Time{}, ""
	}
	place := func(n uint64) events.Position { return events.NewPosition(n, n) }
	want := []eventstoredb.Deletion{
		{Stream: "a-1", Name: "us.a-1", Position: place(11), Metadata: `{"$maxCount":7,"$maxAge":60}`, MaxCount: 7, MaxAge: time.Minute},
		{Stream: "b-1", Name: "us.b-1", Position: place(20), Metadata: `{"$tb":4}`, HiddenThrough: 4, Undone: true},
		{Stream: "e-1", Name: "us.e-1", Position: place(50), Tombstone: true},
	}
	if diff := cmp.Diff(want, all, cmp.Comparer(func(a, b events.Position) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// Hides reports the records that the limits of a Deletion hide.
func TestDeletionHidesRecords(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		i      eventstoredb.Deletion
		hidden string // of five records, of which the last is a minute old, the one before two, and so on
	}{
		{eventstoredb.Deletion{}, ""},
		{eventstoredb.Deletion{HiddenThrough: 2}, "12"},
		{eventstoredb.Deletion{HiddenThrough: 1<<63 - 1}, "12345"},
		{eventstoredb.Deletion{MaxCount: 2}, "123"},
		{eventstoredb.Deletion{MaxCount: 5}, ""},
		{eventstoredb.Deletion{MaxCount: 1 << 62}, ""},
		{eventstoredb.Deletion{MaxAge: 3 * time.Minute}, "12"},
		{eventstoredb.Deletion{MaxCount: 4, MaxAge: 3 * time.Minute}, "12"},
		{eventstoredb.Deletion{Tombstone: true}, "12345"},
		{eventstoredb.Deletion{HiddenThrough: 2, Undone: true}, ""},
	} {
		var got strings.Builder
		for r := events.Revision(1); r <= 5; r++ {
			if c.i.Hides(r, now.Add(-time.Duration(6-r)*time.Minute), 5, now) {
				got.WriteByte('0' + byte(r))
			}
		}
		if got.String() != c.hidden {
			t.Errorf("%+v hides %q, want %q", c.i, got.String(), c.hidden)
		}
	}
}
