package server_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// memory opens a store in memory until the test ends.
func memory(t *testing.T) *embedded.Store {
	t.Helper()
	store, err := embedded.Open(t.Context(), "db", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// stored returns the events of a stream, each as the letter of its ID.
func stored(t *testing.T, store events.Store, stream string) string {
	t.Helper()
	letters := ""
	for e, err := range store.Read(t.Context(), events.Stream(stream), 0) {
		if err != nil {
			t.Fatal(err)
		}
		b := e.ID.Bytes()
		letters += string(rune(b[15]))
	}
	return letters
}

// appendMethods are the two forms of an append.
var appendMethods = map[string]func(appendCase, *testing.T, *grpc.ClientConn) string{"Append": appendCase.single, "BatchAppend": appendCase.batched}

// Concurrent appends of the same events without a revision, on several calls
// and connections, write the events once. Each caller receives the position of
// the one write.
func TestConcurrentAppendsOfOneEventWriteItOnce(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) events.Store{
		"embedded": func(t *testing.T) events.Store { return memory(t) },
		"slice":    func(*testing.T) events.Store { return eventstest.NewSlice() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := store(t)
			address := serve(t, store, everything)
			conns := []*grpc.ClientConn{raw(t, address), raw(t, address), raw(t, address)}
			const callers = 6
			for i, c := range []struct{ before, expect, events string }{
				{"", "any", "a"}, {"", "any", "abc"}, {"", "none", "abc"}, {"xy", "any", "a"}, {"xy", "exists", "a"}, {"x", "exists", "abcd"},
			} {
				for form, call := range appendMethods {
					for round := range rounds(3, 8) {
						w := appendCase{stream: fmt.Sprint("s-", form, i, "-", round), expect: c.expect, events: c.events}
						if c.before != "" {
							appendCase{stream: w.stream, expect: "none", events: c.before}.single(t, conns[0])
						}
						replies := make([]string, callers)
						var all sync.WaitGroup
						for n := range callers {
							all.Go(func() { replies[n] = call(w, t, conns[n%len(conns)]) })
						}
						all.Wait()
						if got, want := stored(t, store, w.stream), c.before+c.events; got != want {
							t.Fatalf("%s of %q by %d callers: the stream has %q, want %q", form, c.events, callers, got, want)
						}
						for _, reply := range replies {
							if reply != replies[0] || reply == "conflict" {
								t.Fatalf("%s of %q: callers were told %q, want one place", form, c.events, replies)
							}
						}
					}
				}
			}
		})
	}
}

// Concurrent callers append events of their own and one common event: each
// event is written once.
func TestConcurrentAppendsOfDifferentEventsAreAllWritten(t *testing.T) {
	t.Parallel()
	store := memory(t)
	conn := raw(t, serve(t, store, everything))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			appendCase{stream: "s-1", expect: "any", events: "z"}.single(t, conn)
			own := appendCase{stream: "s-1", expect: "any", events: string(rune('a' + i))}
			if own.batched(t, conn) == "conflict" || own.single(t, conn) == "conflict" {
				t.Errorf("an append of %q was refused", own.events)
			}
		})
	}
	all.Wait()
	got := stored(t, store, "s-1")
	for _, letter := range "abcdefghz" {
		if strings.Count(got, string(letter)) != 1 {
			t.Errorf("the stream has %q, want %c once", got, letter)
		}
	}
}

// The index finds IDs in each of several blocks and in the tail, also after the
// stream was evicted.
func TestIndexFindsAnIDAnywhereInALongStream(t *testing.T) {
	t.Parallel()
	store := memory(t)
	const length = 3*server.BlockIDs + 7
	var records []events.Record
	for i := range length {
		r := events.Record{Kind: "A", Version: 1, Time: time.Unix(1, 0).UTC(), Data: []byte("{}")}
		r.ID = domain.EventIDFromBytes([16]byte{2, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
		records = append(records, r)
	}
	if err := store.Append(t.Context(), "s-1", 0, records...); err != nil {
		t.Fatal(err)
	}
	running, err := server.New(store, everything)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	for _, capacity := range []int{server.IndexBytes, 1} {
		index := server.NewIDIndex(capacity)
		for _, i := range []int{0, 1, server.BlockIDs - 1, server.BlockIDs, 2*server.BlockIDs + 3, length - 1} {
			if got, err := index.Find(t.Context(), store, "s-1", records[i]); err != nil || got != events.Revision(i+1) {
				t.Errorf("record %d of %d is found at revision %d, %v, want %d", i, length, got, err, i+1)
			}
			if _, err := index.Find(t.Context(), store, "s-2", records[i]); err != nil {
				t.Fatal(err)
			}
		}
		unknown := records[0]
		unknown.ID = domain.EventIDFromBytes([16]byte{3})
		if got, err := index.Find(t.Context(), store, "s-1", unknown); err != nil || got != 0 {
			t.Errorf("a record that is not there is found at revision %d, %v", got, err)
		}
		if streams, bytes := index.Size(); streams > 2 || capacity == 1 && streams > 1 || bytes < 0 {
			t.Errorf("an index of %d bytes holds %d streams with %d bytes", capacity, streams, bytes)
		}
	}
}

// The index stays within its capacity when callers acquire streams with a
// cancelled context, which succeeds or not at random.
func TestIndexCountsStreamsOfCancelledCallers(t *testing.T) {
	t.Parallel()
	index := server.NewIDIndex(10_000)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	record, store := events.Record{ID: mint(1)}, eventstest.NewSlice()
	for i := range 1000 {
		_, _ = index.Find(gone, store, events.Stream(fmt.Sprint("s-", i)), record)
	}
	if _, err := index.Find(t.Context(), store, "s-1", record); err != nil {
		t.Fatal(err)
	}
	if streams, bytes := index.Size(); streams > 10_000/500 || bytes > 10_000 {
		t.Errorf("an index of 10000 bytes holds %d streams with %d bytes", streams, bytes)
	}
}

// A rivalWriter is a store in which another caller appends some records of the
// first append before that append.
type rivalWriter struct {
	*eventstest.Slice
	once sync.Once
	part int // how many of them
}

func (r *rivalWriter) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	r.once.Do(func() { _ = r.Slice.Append(ctx, stream, after, records[:r.part]...) })
	return r.Slice.Append(ctx, stream, after, records...)
}

// If another caller appends some or all of the events between the lookup of the
// IDs and the append, the server looks the IDs up again.
func TestAppendChecksIDsAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	for name, call := range appendMethods {
		for part, want := range map[int]string{1: "conflict", 2: "1@2"} {
			store := &rivalWriter{Slice: eventstest.NewSlice(), part: part}
			conn := raw(t, serve(t, store, everything))
			if got := call(appendCase{stream: "s-1", expect: "any", events: "ab"}, t, conn); got != want {
				t.Errorf("%s, of which another appended %d events: %s, want %s", name, part, got, want)
			}
			if got, want := stored(t, store, "s-1"), "ab"[:part]; got != want {
				t.Errorf("%s, of which another appended %d events: the stream has %q, want %q", name, part, got, want)
			}
		}
	}
}
