package server_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/settlement-ledger/ledger/events/embedded"
)

// An appendCase is an append of events that letters identify. Its expected
// revision is "at" with the revision at, or "none", "any" or "exists".
type appendCase struct {
	stream, expect, events string
	at                     uint64
}

// id is the UUID of a letter.
func id(letter rune) *shared.UUID {
	return &shared.UUID{Value: &shared.UUID_String_{String_: uuid.UUID{0: 1, 15: byte(letter)}.String()}}
}

var systemMetadata = map[string]string{"type": "A", "content-type": "application/json"}

// single makes the append with Append and formats the result.
func (w appendCase) single(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	call, err := streams.NewStreamsClient(conn).Append(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := &streams.AppendReq_Options{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(w.stream)}}
	switch w.expect {
	case "at":
		o.ExpectedStreamRevision = &streams.AppendReq_Options_Revision{Revision: w.at}
	case "none":
		o.ExpectedStreamRevision = &streams.AppendReq_Options_NoStream{}
	case "any":
		o.ExpectedStreamRevision = &streams.AppendReq_Options_Any{}
	case "exists":
		o.ExpectedStreamRevision = &streams.AppendReq_Options_StreamExists{}
	}
	send(t, call, &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: o}})
	for _, letter := range w.events {
		send(t, call, &streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: &streams.AppendReq_ProposedMessage{
			Id: id(letter), Metadata: systemMetadata, Data: []byte("{}"),
		}}})
	}
	reply, err := call.CloseAndRecv()
	if err != nil {
		t.Fatal(err)
	}
	if reply.GetWrongExpectedVersion() != nil {
		return "conflict"
	}
	return fmt.Sprintf("%d@%d", reply.GetSuccess().GetCurrentRevision(), reply.GetSuccess().GetPosition().GetCommitPosition())
}

// batched makes the append with BatchAppend and formats the result.
func (w appendCase) batched(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	call, err := streams.NewStreamsClient(conn).BatchAppend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o := &streams.BatchAppendReq_Options{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(w.stream)}}
	switch w.expect {
	case "at":
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamPosition{StreamPosition: w.at}
	case "none":
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_NoStream{NoStream: &emptypb.Empty{}}
	case "any":
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}}
	case "exists":
		o.ExpectedStreamPosition = &streams.BatchAppendReq_Options_StreamExists{StreamExists: &emptypb.Empty{}}
	}
	m := &streams.BatchAppendReq{CorrelationId: id('!'), Options: o, IsFinal: true}
	for _, letter := range w.events {
		m.ProposedMessages = append(m.ProposedMessages, &streams.BatchAppendReq_ProposedMessage{Id: id(letter), Metadata: systemMetadata, Data: []byte("{}")})
	}
	if err := call.Send(m); err != nil {
		t.Fatal(err)
	}
	reply, err := call.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if e := reply.GetError(); e != nil {
		if codes.Code(e.Code) != codes.AlreadyExists {
			t.Fatal(e)
		}
		return "conflict"
	}
	return fmt.Sprintf("%d@%d", reply.GetSuccess().GetCurrentRevision(), reply.GetSuccess().GetPosition().GetCommitPosition())
}

// After the store was closed and opened, an append of events that are in the
// stream, all, some, or at another revision, has the result that its expected
// revision requires. Each stream holds the events a, b and c.
func TestRepeatedAppendAfterARestart(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(appendCase, *testing.T, *grpc.ClientConn) string{"Append": appendCase.single, "BatchAppend": appendCase.batched} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases := []struct {
				appendCase
				want string // the last revision, at a position behind that of a; or a conflict
			}{
				{appendCase{expect: "none", events: "abc"}, "2@+2"},
				{appendCase{expect: "none", events: "ab"}, "1@+1"},
				{appendCase{expect: "at", at: 0, events: "bc"}, "2@+2"},
				{appendCase{expect: "at", at: 0, events: "b"}, "1@+1"},
				{appendCase{expect: "at", at: 0, events: "bx"}, "conflict"},
				{appendCase{expect: "at", at: 0, events: "xc"}, "conflict"},
				{appendCase{expect: "at", at: 1, events: "cd"}, "conflict"}, // d was never written
				{appendCase{expect: "at", at: 3, events: "a"}, "conflict"},
				{appendCase{expect: "at", at: 2, events: "a"}, "3@new"}, // an ID is not unique by itself
				{appendCase{expect: "any", events: "abc"}, "2@+2"},
				{appendCase{expect: "any", events: "b"}, "1@+1"},
				{appendCase{expect: "any", events: "bx"}, "conflict"},
				{appendCase{expect: "any", events: "ac"}, "2@+2"}, // all of them are there
				{appendCase{expect: "any", events: "ca"}, "0@+0"},
				{appendCase{expect: "any", events: "aa"}, "0@+0"},
				{appendCase{expect: "any", events: "xa"}, "conflict"}, // a is not written twice
				{appendCase{expect: "any", events: "xyc"}, "conflict"},
				{appendCase{expect: "any", events: "xx"}, "4@new"},
				{appendCase{expect: "exists", events: "bc"}, "2@+2"},
				{appendCase{expect: "exists", events: "cd"}, "conflict"},
				{appendCase{expect: "exists", events: "dc"}, "conflict"},
				{appendCase{expect: "exists", events: "de"}, "4@new"},
			}
			fs := vfs.NewMem()
			conn, stop := reopen(t, fs)
			first := map[int]string{}
			for i, c := range cases {
				w := appendCase{stream: fmt.Sprint("s-", i), expect: "none", events: "abc"}
				first[i] = ask(w, t, conn)
				c.stream = w.stream
			}
			stop()
			conn, stop = reopen(t, fs)
			defer stop()
			for i, c := range cases {
				c.stream = fmt.Sprint("s-", i)
				var revision, c0, got uint64
				_, _ = fmt.Sscanf(first[i], "2@%d", &c0)
				answer := ask(c.appendCase, t, conn)
				want := c.want
				if answer != "conflict" {
					_, _ = fmt.Sscanf(answer, "%d@%d", &revision, &got)
					answer = fmt.Sprintf("%d@new", revision)
					if got <= c0 {
						answer = fmt.Sprintf("%d@+%d", revision, got-(c0-2))
					}
				}
				if answer != want {
					t.Errorf("%s of %q, expecting %s %d: %s, want %s", name, c.events, c.expect, c.at, answer, want)
				}
			}
		})
	}
}

// reopen serves the store of a file system until it is stopped.
func reopen(t *testing.T, fs vfs.FS) (*grpc.ClientConn, func()) {
	t.Helper()
	store, err := embedded.Open(context.Background(), "db", embedded.Config{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	server, address, done := start(t, store)
	return raw(t, address), func() {
		server.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}
