package server_test

import (
	"context"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// Refusals set the trailers by which clients other than the Go client recognise
// them.
func TestRefusalsSetTheExceptionTrailer(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	all := raw(t, serve(t, store, everything))
	reading := raw(t, serve(t, store, server.Config{}))
	mustAppend(t, connect(t, all.Target()), "s-1", esdb.NoStream{}, many("A", 1)...)
	ctx := context.Background()
	id := &shared.StreamIdentifier{StreamName: []byte("s-1")}
	settings := &persistent.CreateReq_Settings{LiveBufferSize: 1, ReadBatchSize: 1, HistoryBufferSize: 1, MaxSubscriberCount: 1}
	create := func(conn *grpc.ClientConn, trailer grpc.CallOption) error {
		_, err := persistent.NewPersistentSubscriptionsClient(conn).Create(ctx, &persistent.CreateReq{Options: &persistent.CreateReq_Options{
			StreamOption: &persistent.CreateReq_Options_Stream{Stream: &persistent.CreateReq_StreamOptions{StreamIdentifier: id, RevisionOption: &persistent.CreateReq_StreamOptions_End{End: none()}}},
			GroupName:    "g", Settings: settings,
		}}, trailer)
		return err
	}
	if err := create(all, grpc.EmptyCallOption{}); err != nil {
		t.Fatal(err)
	}
	for _, refused := range []struct {
		name, group string
		code        codes.Code
		ask         func(grpc.CallOption) error
	}{
		{"access-denied", "", codes.PermissionDenied, func(trailer grpc.CallOption) error { return create(reading, trailer) }},
		{"access-denied", "", codes.PermissionDenied, func(trailer grpc.CallOption) error {
			call, err := streams.NewStreamsClient(reading).Append(ctx, trailer)
			if err != nil {
				t.Fatal(err)
			}
			send(t, call, &streams.AppendReq{Content: &streams.AppendReq_Options_{Options: &streams.AppendReq_Options{
				StreamIdentifier: id, ExpectedStreamRevision: &streams.AppendReq_Options_Any{},
			}}})
			_, err = call.CloseAndRecv()
			return err
		}},
		{"persistent-subscription-exists", "g", codes.AlreadyExists, func(trailer grpc.CallOption) error { return create(all, trailer) }},
		{"persistent-subscription-does-not-exist", "other", codes.NotFound, func(trailer grpc.CallOption) error {
			_, err := persistent.NewPersistentSubscriptionsClient(all).GetInfo(ctx, &persistent.GetInfoReq{Options: &persistent.GetInfoReq_Options{
				StreamOption: &persistent.GetInfoReq_Options_StreamIdentifier{StreamIdentifier: id}, GroupName: "other",
			}}, trailer)
			return err
		}},
		{"persistent-subscription-failed", "g", codes.InvalidArgument, func(trailer grpc.CallOption) error {
			_, err := persistent.NewPersistentSubscriptionsClient(all).Update(ctx, &persistent.UpdateReq{Options: &persistent.UpdateReq_Options{
				StreamOption: &persistent.UpdateReq_Options_Stream{Stream: &persistent.UpdateReq_StreamOptions{StreamIdentifier: id}}, GroupName: "g",
			}}, trailer)
			return err
		}},
		{"access-denied", "", codes.Unimplemented, func(trailer grpc.CallOption) error {
			_, err := streams.NewStreamsClient(all).Delete(ctx, &streams.DeleteReq{Options: &streams.DeleteReq_Options{StreamIdentifier: id}}, trailer)
			return err
		}},
		{"access-denied", "", codes.Unimplemented, func(trailer grpc.CallOption) error {
			_, err := streams.NewStreamsClient(all).Tombstone(ctx, &streams.TombstoneReq{Options: &streams.TombstoneReq_Options{StreamIdentifier: id}}, trailer)
			return err
		}},
		{"maximum-subscribers-reached", "g", codes.FailedPrecondition, func(trailer grpc.CallOption) error {
			if err := join(t, all, id, grpc.EmptyCallOption{}); err != nil {
				t.Fatal(err)
			}
			return join(t, all, id, trailer)
		}},
	} {
		var got metadata.MD
		err := refused.ask(grpc.Trailer(&got))
		want := metadata.Pairs("exception", refused.name)
		if refused.group != "" {
			want.Append("stream-name", "s-1")
			want.Append("group-name", refused.group)
		}
		for key := range want {
			if status.Code(err) != refused.code || len(got.Get(key)) != 1 || got.Get(key)[0] != want.Get(key)[0] {
				t.Errorf("%s: %v with %v, want %v with %v", refused.name, err, got, refused.code, want)
			}
		}
	}
}

// join consumes with the group g of a stream until the test ends, and returns
// the first response's error.
func join(t *testing.T, conn *grpc.ClientConn, id *shared.StreamIdentifier, trailer grpc.CallOption) error {
	t.Helper()
	call, err := persistent.NewPersistentSubscriptionsClient(conn).Read(t.Context(), trailer)
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Send(&persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
		StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: id}, GroupName: "g", BufferSize: 1,
	}}}); err != nil {
		t.Fatal(err)
	}
	_, err = call.Recv()
	return err
}
