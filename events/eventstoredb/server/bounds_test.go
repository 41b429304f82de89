package server_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events/eventstest"
)

// reading makes a read that client libraries do not offer. It returns the
// revisions, or the positions for $all, and the status with which the call
// ended. It ends a subscription when that has caught up.
func reading(t *testing.T, conn *grpc.ClientConn, o *streams.ReadReq_Options) (text string, err error) {
	t.Helper()
	o.FilterOption = &streams.ReadReq_Options_NoFilter{}
	o.UuidOption = &streams.ReadReq_Options_UUIDOption{Content: &streams.ReadReq_Options_UUIDOption_String_{}}
	call, err := streams.NewStreamsClient(conn).Read(t.Context(), &streams.ReadReq{Options: o})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := call.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil:
			return text, err
		}
		switch c := m.Content.(type) {
		case *streams.ReadResp_Event:
			text += fmt.Sprintf("%d ", c.Event.Event.StreamRevision)
		case *streams.ReadResp_LastStreamPosition:
			text += fmt.Sprintf("last %d ", c.LastStreamPosition)
		case *streams.ReadResp_StreamNotFound_:
			text += "not found "
		case *streams.ReadResp_CaughtUp_:
			return text + "|", nil
		}
	}
}

func ofStream(name string, revision uint64) *streams.ReadReq_Options_Stream {
	return &streams.ReadReq_Options_Stream{Stream: &streams.ReadReq_Options_StreamOptions{
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(name)},
		RevisionOption:   &streams.ReadReq_Options_StreamOptions_Revision{Revision: revision},
	}}
}

func ofAll(position uint64) *streams.ReadReq_Options_All {
	return &streams.ReadReq_Options_All{All: &streams.ReadReq_Options_AllOptions{
		AllOption: &streams.ReadReq_Options_AllOptions_Position{Position: &streams.ReadReq_Options_Position{CommitPosition: position, PreparePosition: position}},
	}}
}

// The largest revisions, positions and counts of the protocol have defined
// results.
func TestLargestRevisionsAndPositions(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	conn := raw(t, serve(t, store, everything))
	mustAppend(t, connect(t, conn.Target()), "s-1", esdb.NoStream{}, many("A", 3)...)
	const most = math.MaxUint64
	all, sub := &streams.ReadReq_Options_Count{Count: most}, &streams.ReadReq_Options_Subscription{Subscription: &streams.ReadReq_Options_SubscriptionOptions{}}
	back := streams.ReadReq_Options_Backwards
	for _, c := range []struct {
		name string
		o    *streams.ReadReq_Options
		want string
		code codes.Code
	}{
		{"stream, the end", &streams.ReadReq_Options{StreamOption: ofStream("s-1", most), CountOption: all}, "", codes.OK},
		{"stream, before the end", &streams.ReadReq_Options{StreamOption: ofStream("s-1", most-1), CountOption: all}, "", codes.OK},
		{"stream backwards, the end", &streams.ReadReq_Options{StreamOption: ofStream("s-1", most), CountOption: all, ReadDirection: back}, "2 1 0 ", codes.OK},
		{"stream backwards, before the end", &streams.ReadReq_Options{StreamOption: ofStream("s-1", most-1), CountOption: all, ReadDirection: back}, "2 1 0 ", codes.OK},
		{"stream backwards, two before the end", &streams.ReadReq_Options{StreamOption: ofStream("s-1", most-2), CountOption: all, ReadDirection: back}, "2 1 0 ", codes.OK},
		{"subscription, the end", &streams.ReadReq_Options{StreamOption: ofStream("s-1", most), CountOption: sub}, "|", codes.OK},
		{"subscription, before the end", &streams.ReadReq_Options{StreamOption: ofStream("s-1", most-1), CountOption: sub}, "|", codes.OK},
		{"all, the end", &streams.ReadReq_Options{StreamOption: ofAll(most), CountOption: all}, "", codes.OK},
		{"all, before the end", &streams.ReadReq_Options{StreamOption: ofAll(most - 1), CountOption: all}, "", codes.InvalidArgument},
		{"all backwards, the end", &streams.ReadReq_Options{StreamOption: ofAll(most), CountOption: all, ReadDirection: back}, "2 1 0 ", codes.OK},
		{"all backwards, behind the log", &streams.ReadReq_Options{StreamOption: ofAll(4), CountOption: all, ReadDirection: back}, "", codes.InvalidArgument},
		{"subscription to all, the end", &streams.ReadReq_Options{StreamOption: ofAll(most), CountOption: sub}, "|", codes.OK},
		{"subscription to all, before the end", &streams.ReadReq_Options{StreamOption: ofAll(most - 1), CountOption: sub}, "", codes.InvalidArgument},
		{"nothing of a stream", &streams.ReadReq_Options{StreamOption: ofStream("s-1", 0), CountOption: &streams.ReadReq_Options_Count{}}, "", codes.OK},
		{"nothing of no stream", &streams.ReadReq_Options{StreamOption: ofStream("s-2", 0), CountOption: &streams.ReadReq_Options_Count{}}, "not found ", codes.OK},
	} {
		got, err := reading(t, conn, c.o)
		if got != c.want || status.Code(err) != c.code {
			t.Errorf("%s: %q and %v, want %q and %v", c.name, got, err, c.want, c.code)
		}
	}
}

// The server sends LastStreamPosition only to clients that request
// compatibility 1: the Go client terminates its process on an unknown message.
func TestLastStreamPositionIsSentToNewerClients(t *testing.T) {
	t.Parallel()
	conn := raw(t, serve(t, eventstest.NewSlice(), everything))
	mustAppend(t, connect(t, conn.Target()), "s-1", esdb.NoStream{}, many("A", 3)...)
	for _, c := range []struct {
		compatibility uint32
		from, count   uint64
		direction     streams.ReadReq_Options_ReadDirection
		want          string
	}{
		{0, 1, 10, streams.ReadReq_Options_Forwards, "1 2 "},
		{1, 1, 10, streams.ReadReq_Options_Forwards, "1 2 last 2 "},
		{1, 3, 10, streams.ReadReq_Options_Forwards, "last 2 "},
		{1, 0, 2, streams.ReadReq_Options_Forwards, "0 1 "},
		{1, 2, 10, streams.ReadReq_Options_Backwards, "2 1 0 "},
	} {
		got, err := reading(t, conn, &streams.ReadReq_Options{
			StreamOption: ofStream("s-1", c.from), CountOption: &streams.ReadReq_Options_Count{Count: c.count}, ReadDirection: c.direction,
			ControlOption: &streams.ReadReq_Options_ControlOption{Compatibility: c.compatibility},
		})
		if got != c.want || err != nil {
			t.Errorf("compatibility %d, %v from %d, %d of them: %q, %v, want %q", c.compatibility, c.direction, c.from, c.count, got, err, c.want)
		}
	}
}

// An append with one invalid field is refused with INVALID_ARGUMENT.
func TestInvalidAppendsAreRefused(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	conn := raw(t, serve(t, store, everything))
	for name, spoil := range map[string]func(*streams.AppendReq_Options, *streams.AppendReq_ProposedMessage){
		"":                          func(*streams.AppendReq_Options, *streams.AppendReq_ProposedMessage) {},
		"a stream name is required": func(o *streams.AppendReq_Options, _ *streams.AppendReq_ProposedMessage) { o.StreamIdentifier = nil },
		"$all is not a stream": func(o *streams.AppendReq_Options, _ *streams.AppendReq_ProposedMessage) {
			o.StreamIdentifier.StreamName = []byte("$all")
		},
		"is not UTF-8": func(o *streams.AppendReq_Options, _ *streams.AppendReq_ProposedMessage) {
			o.StreamIdentifier.StreamName = []byte("s-\xff")
		},
		"is not a revision": func(o *streams.AppendReq_Options, _ *streams.AppendReq_ProposedMessage) {
			o.ExpectedStreamRevision = &streams.AppendReq_Options_Revision{Revision: math.MaxUint64}
		},
		"an expected revision is": func(o *streams.AppendReq_Options, _ *streams.AppendReq_ProposedMessage) {
			o.ExpectedStreamRevision = nil
		},
		"an ID is required": func(_ *streams.AppendReq_Options, m *streams.AppendReq_ProposedMessage) { m.Id = nil },
		"is not a UUID": func(_ *streams.AppendReq_Options, m *streams.AppendReq_ProposedMessage) {
			m.Id = &shared.UUID{Value: &shared.UUID_String_{String_: "zz"}}
		},
		"it has no ID": func(_ *streams.AppendReq_Options, m *streams.AppendReq_ProposedMessage) {
			m.Id = &shared.UUID{Value: &shared.UUID_Structured_{}}
		},
		"type and content-type": func(_ *streams.AppendReq_Options, m *streams.AppendReq_ProposedMessage) { m.Metadata = nil },
		"has no kind": func(_ *streams.AppendReq_Options, m *streams.AppendReq_ProposedMessage) {
			m.Metadata = map[string]string{"type": "", "content-type": "x"}
		},
		"its $ledger": func(_ *streams.AppendReq_Options, m *streams.AppendReq_ProposedMessage) {
			m.CustomMetadata = []byte(`{"$ledger":1}`)
		},
		"an event is required": func(_ *streams.AppendReq_Options, m *streams.AppendReq_ProposedMessage) { m.Metadata = nil; m.Id = nil },
	} {
		o := &streams.AppendReq_Options{
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s-1")}, ExpectedStreamRevision: &streams.AppendReq_Options_NoStream{NoStream: &shared.Empty{}},
		}
		event := &streams.AppendReq_ProposedMessage{Id: id('a'), Metadata: systemMetadata, Data: []byte("{}")}
		spoil(o, event)
		call, err := streams.NewStreamsClient(conn).Append(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		send(t, call, &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: o}})
		if name == "an event is required" {
			send(t, call, &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: o}})
		} else {
			send(t, call, &streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: event}})
		}
		_, err = call.CloseAndRecv()
		if name == "" && err == nil {
			continue
		}
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("append that is to be refused with %q: %v", name, err)
		}
	}
	batch := batchOf("01000000-0000-0000-0000-000000000001", "s-2", true, 1)
	batch.Options.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamPosition{StreamPosition: math.MaxUint64}
	nameless := batchOf("01000000-0000-0000-0000-000000000002", "s-\xff", true, 1)
	expectless := batchOf("01000000-0000-0000-0000-000000000003", "s-2", true, 1)
	expectless.Options.ExpectedStreamPosition = nil
	optionless := batchOf("01000000-0000-0000-0000-000000000004", "s-2", true, 1)
	optionless.Options = nil
	call, err := streams.NewStreamsClient(conn).BatchAppend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*streams.BatchAppendReq{batch, nameless, expectless, optionless} {
		if err := call.Send(m); err != nil {
			t.Fatal(err)
		}
		reply, err := call.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := outcomeOf(t, reply); got != "3 BadRequest" {
			t.Errorf("batch %v: %s, want 3 BadRequest", m.Options, got)
		}
	}
	uncorrelated := batchOf("", "s-2", true, 1)
	uncorrelated.CorrelationId = nil
	if err := call.Send(uncorrelated); err != nil {
		t.Fatal(err)
	}
	if _, err := call.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a batch without a correlation: %v, want INVALID_ARGUMENT", err)
	}
	if got := held(t, store); got != 1 {
		t.Errorf("%d records, want that of the append that makes sense", got)
	}
}
