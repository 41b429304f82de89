package server_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

func batchOf(id, stream string, final bool, n int) *streams.BatchAppendReq {
	m := &streams.BatchAppendReq{
		CorrelationId: &shared.UUID{Value: &shared.UUID_String_{String_: id}},
		Options: &streams.BatchAppendReq_Options{
			StreamIdentifier:       &shared.StreamIdentifier{StreamName: []byte(stream)},
			ExpectedStreamPosition: &streams.BatchAppendReq_Options_NoStream{NoStream: &emptypb.Empty{}},
			DeadlineOption:         &streams.BatchAppendReq_Options_Deadline{Deadline: durationpb.New(time.Minute)},
		},
		IsFinal: final,
	}
	for range n {
		m.ProposedMessages = append(m.ProposedMessages, &streams.BatchAppendReq_ProposedMessage{
			Id:       &shared.UUID{Value: &shared.UUID_String_{String_: uuid.NewString()}},
			Metadata: map[string]string{"type": "A", "content-type": "application/json"}, Data: []byte("{}"),
		})
	}
	return m
}

// A call may interleave many incomplete batches; each reply has the correlation
// ID of its batch.
func TestBatchesAreAnsweredEachByItsCorrelation(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	address := serve(t, store, server.Config{Anonymous: auth.Writer, Writable: []string{"app-"}, MaxAppend: 10_000})
	call, err := streams.NewStreamsClient(raw(t, address)).BatchAppend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	two, denied, large, bad, late := uuid.NewString(), uuid.NewString(), uuid.NewString(), uuid.NewString(), uuid.NewString()
	part := batchOf(two, "app-two", false, 2)
	rest := batchOf(two, "", true, 1)
	rest.Options = nil
	oversize := batchOf(large, "app-large", true, 1)
	oversize.ProposedMessages[0].Data = make([]byte, 20_000)
	typeless := batchOf(bad, "app-bad", true, 1)
	typeless.ProposedMessages[0].Metadata = nil
	overdue := batchOf(late, "app-late", true, 1)
	overdue.Options.DeadlineOption = &streams.BatchAppendReq_Options_Deadline{Deadline: durationpb.New(-time.Second)}
	want := map[string]string{
		two: "revision 2", denied: "7 AccessDenied", large: "3 MaximumAppendSizeExceeded", bad: "3 BadRequest", late: "4 Timeout",
	}
	sent := []*streams.BatchAppendReq{part, batchOf(denied, "session-1", true, 1), oversize, rest, typeless, overdue}
	first := true
	for range 100 { // the first of them wins
		id := uuid.NewString()
		want[id] = "6 WrongExpectedVersion"
		if first {
			want[id], first = "revision 0", false
		}
		sent = append(sent, batchOf(id, "app-same", true, 1))
	}
	for _, m := range sent {
		if err := call.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for range want {
		reply, err := call.Recv()
		if err != nil {
			t.Fatal(err)
		}
		id := reply.CorrelationId.GetString_()
		if got := outcomeOf(t, reply); got != want[id] {
			t.Errorf("batch %s of %s: %s, want %s", id, reply.StreamIdentifier.GetStreamName(), got, want[id])
		}
		if string(reply.StreamIdentifier.GetStreamName()) == "" || reply.GetNoStream() == nil {
			t.Errorf("the reply %v does not say what was asked", reply)
		}
	}
	if got := held(t, store); got != 4 {
		t.Errorf("%d records, want 4", got)
	}
}

func outcomeOf(t *testing.T, reply *streams.BatchAppendResp) string {
	t.Helper()
	if done := reply.GetSuccess(); done != nil {
		return fmt.Sprint("revision ", done.GetCurrentRevision())
	}
	s := reply.GetError()
	detail, err := s.Details[0].UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(uint32(codes.Code(s.Code)), " ", proto.MessageName(detail).Name())
}

// The server ends a call with too many incomplete batches, and a complete batch
// frees its share.
func TestIncompleteBatchesAreBounded(t *testing.T) {
	t.Parallel()
	client := streams.NewStreamsClient(raw(t, serve(t, eventstest.NewSlice(), server.Config{Anonymous: auth.Writer, Writable: []string{""}, MaxAppend: 1000})))
	for name, test := range map[string]struct {
		batches, size int
		completed     bool
		want          codes.Code
	}{
		"too many":                 {257, 0, false, codes.ResourceExhausted},
		"too large together":       {5, 900, false, codes.ResourceExhausted},
		"as large, but each ended": {20, 900, true, codes.OK},
		"as many as there may be":  {256, 0, false, codes.OK},
	} {
		call, err := client.BatchAppend(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answers := 0
		for i := range test.batches {
			m := batchOf(uuid.NewString(), fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "_"), i), false, min(test.size, 1))
			for _, p := range m.ProposedMessages {
				p.Data = make([]byte, test.size)
			}
			if err = call.Send(m); err != nil {
				break // Recv returns the status
			}
			if test.completed {
				answers++
				if err = call.Send(&streams.BatchAppendReq{CorrelationId: m.CorrelationId, IsFinal: true}); err != nil {
					break
				}
			}
		}
		if err := call.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for {
			reply, recv := call.Recv()
			if recv != nil {
				err = recv
				break
			}
			if answers--; reply.GetSuccess() == nil {
				t.Errorf("%s: %v, want success", name, reply.GetError())
			}
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if status.Code(err) != test.want || test.want == codes.OK && answers != 0 {
			t.Errorf("%s: %v and %d without an answer, want %v", name, err, answers, test.want)
		}
	}
}
