package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// A stream is read in both directions from its start, its end and any revision.
func TestReadStreamInBothDirections(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	mustAppend(t, c, "s-1", esdb.NoStream{}, many("A", 3)...)
	mustAppend(t, c, "s-2", esdb.NoStream{}, many("B", 1)...)
	mustAppend(t, c, "s-1", esdb.Revision(2), many("C", 2)...)
	for _, test := range []struct {
		direction esdb.Direction
		from      esdb.StreamPosition
		count     uint64
		want      []uint64
	}{
		{esdb.Forwards, esdb.Start{}, 10, []uint64{0, 1, 2, 3, 4}},
		{esdb.Forwards, esdb.Start{}, 2, []uint64{0, 1}},
		{esdb.Forwards, esdb.Revision(3), 10, []uint64{3, 4}},
		{esdb.Forwards, esdb.Revision(5), 10, nil},
		{esdb.Forwards, esdb.End{}, 10, nil},
		{esdb.Backwards, esdb.End{}, 10, []uint64{4, 3, 2, 1, 0}},
		{esdb.Backwards, esdb.End{}, 1, []uint64{4}},
		{esdb.Backwards, esdb.Revision(2), 2, []uint64{2, 1}},
		{esdb.Backwards, esdb.Revision(99), 1, []uint64{4}},
		{esdb.Backwards, esdb.Start{}, 10, []uint64{0}},
	} {
		stream, err := c.ReadStream(t.Context(), "s-1", esdb.ReadStreamOptions{Direction: test.direction, From: test.from}, test.count)
		if diff := cmp.Diff(numbers(collect(t, stream, err)), test.want); diff != "" {
			t.Errorf("read %v from %v, %d of them: got − want +\n%s", test.direction, test.from, test.count, diff)
		}
	}
}

// $all is read in both directions from its start, its end and any position.
func TestReadAllInBothDirections(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	for i := range 5 {
		mustAppend(t, c, fmt.Sprintf("s-%d", i), esdb.NoStream{}, many("A", 1)...)
	}
	at := func(n uint64) esdb.Position { return esdb.Position{Commit: n, Prepare: n} }
	for _, test := range []struct {
		direction esdb.Direction
		from      esdb.AllPosition
		count     uint64
		want      []uint64
	}{
		{esdb.Forwards, esdb.Start{}, 10, []uint64{1, 2, 3, 4, 5}},
		{esdb.Forwards, esdb.Start{}, 2, []uint64{1, 2}},
		{esdb.Forwards, at(3), 10, []uint64{3, 4, 5}},
		{esdb.Forwards, at(5), 10, []uint64{5}},
		{esdb.Forwards, at(0), 1, []uint64{1}},
		{esdb.Forwards, esdb.End{}, 10, nil},
		{esdb.Backwards, esdb.End{}, 2, []uint64{5, 4}},
		{esdb.Backwards, at(3), 10, []uint64{2, 1}},
		{esdb.Backwards, at(1), 10, nil},
		{esdb.Backwards, esdb.Start{}, 10, nil},
	} {
		stream, err := c.ReadAll(t.Context(), esdb.ReadAllOptions{Direction: test.direction, From: test.from}, test.count)
		var got []uint64
		for _, e := range collect(t, stream, err) {
			got = append(got, e.Position.Commit)
		}
		if diff := cmp.Diff(got, test.want); diff != "" {
			t.Errorf("read all %v from %v, %d of them: got − want +\n%s", test.direction, test.from, test.count, diff)
		}
	}
}

// A read or subscription from a position after the end of the log is refused.
func TestPositionAfterTheEndIsRefused(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	mustAppend(t, c, "s-1", esdb.NoStream{}, many("A", 1)...)
	beyond := esdb.Position{Commit: 2, Prepare: 2}
	stream, err := c.ReadAll(t.Context(), esdb.ReadAllOptions{From: beyond}, 1)
	if err == nil {
		_, err = stream.Recv()
	}
	if err == nil || !strings.Contains(err.Error(), "the log ends at 1") {
		t.Errorf("reading from behind the end gives %v, want where it ends", err)
	}
	if _, err := c.SubscribeToAll(t.Context(), esdb.SubscribeToAllOptions{From: beyond}); err == nil || !strings.Contains(err.Error(), "the log ends at 1") {
		t.Errorf("subscribing from behind the end gives %v, want where it ends", err)
	}
}

// A read of a stream without entries is answered with StreamNotFound.
func TestMissingStreamIsNotFound(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	stream, err := c.ReadStream(t.Context(), "s-1", esdb.ReadStreamOptions{}, 1)
	if err == nil {
		_, err = stream.Recv()
	}
	if code(err) != esdb.ErrorCodeResourceNotFound {
		t.Errorf("reading gives %v, want ResourceNotFound", err)
	}
}

// An append succeeds only if the stream has the expected revision.
func TestAppendExpectsARevision(t *testing.T) {
	t.Parallel()
	store, c := pair(t)
	if got := mustAppend(t, c, "s-1", esdb.NoStream{}, many("A", 2)...); got.NextExpectedVersion != 1 || got.CommitPosition != 2 || got.PreparePosition != 2 {
		t.Errorf("appended 2 events: %+v, want revision 1 at 2/2", got)
	}
	for _, test := range []struct {
		expect esdb.ExpectedRevision
		stream string
		want   esdb.ErrorCode
	}{
		{esdb.NoStream{}, "s-1", esdb.ErrorCodeWrongExpectedVersion},
		{esdb.Revision(0), "s-1", esdb.ErrorCodeWrongExpectedVersion},
		{esdb.Revision(2), "s-1", esdb.ErrorCodeWrongExpectedVersion},
		{esdb.Revision(1), "s-1", -1},
		{esdb.Any{}, "s-1", -1},
		{esdb.StreamExists{}, "s-1", -1},
		{esdb.StreamExists{}, "s-2", esdb.ErrorCodeWrongExpectedVersion},
		{esdb.Any{}, "s-2", -1},
	} {
		before := held(t, store)
		_, err := c.AppendToStream(t.Context(), test.stream, esdb.AppendToStreamOptions{ExpectedRevision: test.expect}, proposed("B", "x"))
		grew := held(t, store) - before
		if code(err) != test.want || (test.want == -1) != (grew == 1) {
			t.Errorf("append to %s at %#v gives %v and %d more records, want code %d", test.stream, test.expect, err, grew, test.want)
		}
	}
}

// held returns the number of records in a store.
func held(t *testing.T, store events.Store) (n int) {
	t.Helper()
	for _, err := range store.ReadAll(context.Background(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// A repeated append succeeds and adds no event.
func TestRepeatedAppendChangesNothing(t *testing.T) {
	t.Parallel()
	store, c := pair(t)
	batch := many("A", 3)
	for i := range batch {
		batch[i].EventID = uuid.New()
	}
	mustAppend(t, c, "s-1", esdb.NoStream{}, proposed("First", ""))
	first := mustAppend(t, c, "s-1", esdb.Revision(0), batch...)
	mustAppend(t, c, "s-1", esdb.Revision(3), proposed("Last", ""))
	before := held(t, store)
	for _, expect := range []esdb.ExpectedRevision{esdb.Revision(0), esdb.Any{}, esdb.StreamExists{}} {
		if got := mustAppend(t, c, "s-1", expect, batch...); *got != *first {
			t.Errorf("again at %#v: %+v, want %+v", expect, got, first)
		}
	}
	if _, err := c.AppendToStream(t.Context(), "s-1", esdb.AppendToStreamOptions{ExpectedRevision: esdb.Revision(0)}, batch[0], proposed("X", "")); code(err) != esdb.ErrorCodeWrongExpectedVersion {
		t.Errorf("again in part: %v, want WrongExpectedVersion", err)
	}
	if got := held(t, store); got != before {
		t.Errorf("%d records after appending again, want %d", got, before)
	}
}

// A foreign event is returned with the ID, type, data and metadata that its
// client sent.
func TestForeignEventsAreReturnedUnchanged(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	for i, want := range []esdb.EventData{
		{EventType: "A", ContentType: esdb.ContentTypeJson, Data: []byte(`{"a":1}`), Metadata: []byte(`{"b": 2}`), EventID: uuid.New()},
		{EventType: "A", ContentType: esdb.ContentTypeBinary, Data: []byte{0xff}, Metadata: []byte{0xfe}, EventID: uuid.New()},
		{EventType: "é", ContentType: esdb.ContentTypeBinary, Data: []byte{}, Metadata: []byte{}, EventID: uuid.New()},
	} {
		name := fmt.Sprint("s-", i)
		mustAppend(t, c, name, esdb.NoStream{}, want)
		stream, err := c.ReadStream(t.Context(), name, esdb.ReadStreamOptions{}, 1)
		got := collect(t, stream, err)[0]
		if got.EventID != want.EventID || got.EventType != want.EventType || string(got.Data) != string(want.Data) || string(got.UserMetadata) != string(want.Metadata) {
			t.Errorf("read back %+v, want %+v", got, want)
		}
		if since := time.Since(got.CreatedDate); since < -time.Minute || since > time.Minute {
			t.Errorf("created %s, want now", got.CreatedDate)
		}
	}
}

// A ledger record that a remote store appends is read back equal in every
// field.
func TestLedgerRecordsAreReturnedUnchanged(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	c := connect(t, serve(t, store, server.Config{Anonymous: auth.Ledger}))
	at := time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)
	for i, want := range []events.Record{
		{ID: mint(1), Kind: "A", Version: 1, Time: at, Data: []byte(`{}`), Metadata: []byte(`{"$correlationId":"x"}`)},
		{ID: mint(2), Kind: "B", Version: 7, Time: at.AddDate(400, 0, 0), Data: []byte(`{`)},
		{ID: mint(3), Kind: "C", Version: 1, Time: time.Unix(-1<<34, 0).UTC(), Data: []byte(`{}`), Metadata: []byte(`{"$ledger":1}`)},
		{ID: mint(4), Kind: "D", Version: 1, Time: at, Data: []byte(`{}`), Metadata: []byte(`{"$ledger":1}`)},
	} {
		for _, stream := range []string{fmt.Sprint("session-", i), fmt.Sprint("other-", i)} {
			f, err := mapping.FromRecord(want)
			if err != nil {
				t.Fatal(err)
			}
			mustAppend(t, c, stream, esdb.NoStream{}, esdb.EventData{EventID: f.ID, EventType: f.Type, Data: f.Data, Metadata: f.Metadata})
			read, err := c.ReadStream(t.Context(), stream, esdb.ReadStreamOptions{}, 1)
			e := collect(t, read, err)[0]
			got, _, err := mapping.RawEvent{ID: e.EventID, Type: e.EventType, Data: e.Data, Metadata: e.UserMetadata, Created: e.CreatedDate}.Record()
			if err != nil || got.ID != want.ID || got.Kind != want.Kind || got.Version != want.Version || !got.Time.Equal(want.Time) ||
				string(got.Data) != string(want.Data) || string(got.Metadata) != string(want.Metadata) {
				t.Errorf("through %s came %+v, %v, want %+v", stream, got, err, want)
			}
		}
	}
}

// Streams that Config.Writable does not open accept ledger records from the role
// Ledger, and no other append.
func TestOnlyLedgerRecordsAreAppendedToOtherStreams(t *testing.T) {
	t.Parallel()
	own, err := mapping.FromRecord(events.Record{ID: mint(1), Kind: "A", Version: 1, Time: time.Unix(0, 0).UTC(), Data: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	ledgers := esdb.EventData{EventID: own.ID, EventType: own.Type, Data: own.Data, Metadata: own.Metadata}
	for _, test := range []struct {
		role   auth.Role
		stream string
		event  esdb.EventData
		want   esdb.ErrorCode
	}{
		{auth.Ledger, "session-1", ledgers, -1},
		{auth.Ledger, "session-1", proposed("A", ""), esdb.ErrorCodeAccessDenied},
		{auth.Ledger, "app-1", proposed("A", ""), -1},
		{auth.Ledger, "$$app-1", proposed("$metadata", ""), -1},
		{auth.Ledger, "subscription-x::y", proposed("A", ""), esdb.ErrorCodeAccessDenied},
		{auth.Writer, "session-1", ledgers, esdb.ErrorCodeAccessDenied},
		{auth.Writer, "app-1", proposed("A", ""), -1},
		{auth.Writer, "$$session-1", proposed("$metadata", ""), esdb.ErrorCodeAccessDenied},
		{auth.Reader, "app-1", proposed("A", ""), esdb.ErrorCodeAccessDenied},
	} {
		store := eventstest.NewSlice()
		c := connect(t, serve(t, store, server.Config{Anonymous: test.role, Writable: []string{"app-"}}))
		_, err := c.AppendToStream(t.Context(), test.stream, esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}}, test.event)
		if code(err) != test.want || (test.want == -1) != (held(t, store) == 1) {
			t.Errorf("%s appends %s to %s: %v and %d records, want code %d", test.role, test.event.EventType, test.stream, err, held(t, store), test.want)
		}
	}
}

// Config.Writable opens streams by prefix to the role Writer, and never streams
// of the ledger.
func TestWritablePrefixes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		writable, stream string
		want             esdb.ErrorCode
	}{
		{"", "app-1", -1},
		{"", "$$app-1", -1},
		{"", "session-1", esdb.ErrorCodeAccessDenied},
		{"", "$$session-1", esdb.ErrorCodeAccessDenied},
		{"", "layer-1", esdb.ErrorCodeAccessDenied},
		{"", "process-1", esdb.ErrorCodeAccessDenied},
		{"session-", "session-1", esdb.ErrorCodeAccessDenied},
		{"", "subscription-app-1::g", esdb.ErrorCodeAccessDenied},
		{"", "$settings", esdb.ErrorCodeAccessDenied},
		{"", "$$$settings", esdb.ErrorCodeAccessDenied},
		{"$set", "$settings", -1},
		{"$set", "$$$settings", -1},
		{"$set", "settings", esdb.ErrorCodeAccessDenied},
		{"app-", "$app-1", esdb.ErrorCodeAccessDenied},
	} {
		store := eventstest.NewSlice()
		c := connect(t, serve(t, store, server.Config{Anonymous: auth.Writer, Writable: []string{test.writable}}))
		_, err := c.AppendToStream(t.Context(), test.stream, esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}}, proposed("A", ""))
		if code(err) != test.want || (test.want == -1) != (held(t, store) == 1) {
			t.Errorf("with %q opened, append to %s: %v and %d records, want code %d", test.writable, test.stream, err, held(t, store), test.want)
		}
	}
}

// Delete and Tombstone are refused, and the stream stays.
func TestDeleteAndTombstoneAreRefused(t *testing.T) {
	t.Parallel()
	store, c := pair(t)
	mustAppend(t, c, "s-1", esdb.NoStream{}, many("A", 1)...)
	_, deleting := c.DeleteStream(t.Context(), "s-1", esdb.DeleteStreamOptions{})
	_, tombstoning := c.TombstoneStream(t.Context(), "s-1", esdb.TombstoneStreamOptions{})
	for _, err := range []error{deleting, tombstoning} {
		if code(err) != esdb.ErrorCodeUnsupportedFeature {
			t.Errorf("%v, want UnsupportedFeature", err)
		}
	}
	if held(t, store) != 1 {
		t.Errorf("%d records, want 1", held(t, store))
	}
}

// An append over the limit is refused as a whole: the server stores no event of
// it.
func TestTooLargeAppendIsRefusedWhole(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	address := serve(t, store, server.Config{Anonymous: auth.Writer, Writable: []string{""}, MaxAppend: 1000})
	client := streams.NewStreamsClient(raw(t, address))
	call, err := client.Append(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send(t, call, &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: &streams.AppendReq_Options{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s-1")}, ExpectedStreamRevision: &streams.AppendReq_Options_Any{},
	}}})
	for range 2 {
		send(t, call, &streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: &streams.AppendReq_ProposedMessage{
			Id: &shared.UUID{Value: &shared.UUID_String_{String_: uuid.NewString()}}, Data: make([]byte, 600),
			Metadata: map[string]string{"type": "A", "content-type": "application/octet-stream"},
		}}})
	}
	_, err = call.CloseAndRecv()
	if status.Code(err) != codes.InvalidArgument || call.Trailer().Get("exception")[0] != "maximum-append-size-exceeded" || call.Trailer().Get("maximum-append-size")[0] != "1000" {
		t.Errorf("append of 1200 bytes: %v with %v, want the limit", err, call.Trailer())
	}
	if held(t, store) != 0 {
		t.Errorf("%d records, want none", held(t, store))
	}
}

func send(t *testing.T, call streams.Streams_AppendClient, m *streams.AppendReq) {
	t.Helper()
	if err := call.Send(m); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// raw returns a gRPC connection without a client library.
func raw(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// A request without a required field is refused with INVALID_ARGUMENT.
func TestIncompleteRequestsAreRefused(t *testing.T) {
	t.Parallel()
	address := serve(t, eventstest.NewSlice(), everything)
	client := streams.NewStreamsClient(raw(t, address))
	whole := func() *streams.ReadReq_Options {
		return &streams.ReadReq_Options{
			StreamOption: &streams.ReadReq_Options_All{All: &streams.ReadReq_Options_AllOptions{AllOption: &streams.ReadReq_Options_AllOptions_Start{}}},
			CountOption:  &streams.ReadReq_Options_Count{Count: 1},
			FilterOption: &streams.ReadReq_Options_NoFilter{},
			UuidOption:   &streams.ReadReq_Options_UUIDOption{Content: &streams.ReadReq_Options_UUIDOption_String_{}},
		}
	}
	filtered := func(f *streams.ReadReq_Options_FilterOptions) func(*streams.ReadReq_Options) {
		return func(o *streams.ReadReq_Options) { o.FilterOption = &streams.ReadReq_Options_Filter{Filter: f} }
	}
	by := func(e *streams.ReadReq_Options_FilterOptions_Expression) *streams.ReadReq_Options_FilterOptions_EventType {
		return &streams.ReadReq_Options_FilterOptions_EventType{EventType: e}
	}
	prefix := by(&streams.ReadReq_Options_FilterOptions_Expression{Prefix: []string{"A"}})
	for name, spoil := range map[string]func(*streams.ReadReq_Options){
		"":                      func(*streams.ReadReq_Options) {},
		"uuid_option":           func(o *streams.ReadReq_Options) { o.UuidOption = nil },
		"count or subscription": func(o *streams.ReadReq_Options) { o.CountOption = nil },
		"a stream or all":       func(o *streams.ReadReq_Options) { o.StreamOption = nil },
		"filter or no_filter":   func(o *streams.ReadReq_Options) { o.FilterOption = nil },
		"a position":            func(o *streams.ReadReq_Options) { o.GetAll().AllOption = nil },
		"a stream name is required": func(o *streams.ReadReq_Options) {
			o.StreamOption = &streams.ReadReq_Options_Stream{Stream: &streams.ReadReq_Options_StreamOptions{}}
		},
		"checkpointIntervalMultiplier": func(o *streams.ReadReq_Options) {
			filtered(&streams.ReadReq_Options_FilterOptions{Filter: prefix})(o)
			o.CountOption = &streams.ReadReq_Options_Subscription{}
		},
		"window": filtered(&streams.ReadReq_Options_FilterOptions{
			Filter: prefix, CheckpointIntervalMultiplier: 1, Window: &streams.ReadReq_Options_FilterOptions_Max{},
		}),
		"RE2": filtered(&streams.ReadReq_Options_FilterOptions{
			Filter: by(&streams.ReadReq_Options_FilterOptions_Expression{Regex: "(?!a)"}), CheckpointIntervalMultiplier: 1,
		}),
		"not both": filtered(&streams.ReadReq_Options_FilterOptions{
			Filter: by(&streams.ReadReq_Options_FilterOptions_Expression{Regex: "a", Prefix: []string{"a"}}), CheckpointIntervalMultiplier: 1,
		}),
	} {
		o := whole()
		spoil(o)
		call, err := client.Read(t.Context(), &streams.ReadReq{Options: o})
		if err == nil {
			_, err = call.Recv()
		}
		if name == "" && errors.Is(err, io.EOF) {
			continue
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("without %q: %v, want INVALID_ARGUMENT that names it", name, err)
		}
	}
}
