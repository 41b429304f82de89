package server_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
)

// A bare is the bytes of a message, valid or not.
type bare []byte

// A bareCodec sends and receives messages as bytes.
type bareCodec struct{}

func (bareCodec) Marshal(v any) ([]byte, error) { return *v.(*bare), nil }
func (bareCodec) Unmarshal(data []byte, v any) error {
	*v.(*bare) = slices.Clone(data)
	return nil
}
func (bareCodec) Name() string { return "proto" }

// call sends messages to a method. It returns the number of responses until the
// call ended or a subscription caught up, and the status of the call.
func call(t *testing.T, conn *grpc.ClientConn, method string, sent ...[]byte) (came int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(bareCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sent {
		if err := stream.SendMsg((*bare)(&m)); err != nil {
			break // RecvMsg returns the status
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for ; ; came++ {
		var m bare
		err := stream.RecvMsg(&m)
		if errors.Is(err, io.EOF) {
			return came, nil
		}
		if err != nil {
			return came, err
		}
		if strings.HasSuffix(method, "Streams/Read") {
			r := &streams.ReadResp{}
			if err := proto.Unmarshal(m, r); err != nil {
				t.Fatal(err)
			}
			if r.GetCaughtUp() != nil {
				return came + 1, nil // a subscription has no end
			}
		}
	}
}

// services are the services that clients of EventStoreDB know, and whether a
// ledger offers them.
var services = []struct {
	name    string
	methods []string
	offered bool
}{
	{streams.Streams_ServiceDesc.ServiceName, []string{"Read", "Append", "Delete", "Tombstone", "BatchAppend"}, true},
	{persistent.PersistentSubscriptions_ServiceDesc.ServiceName, []string{"Create", "Update", "Delete", "Read", "GetInfo", "ReplayParked", "List", "RestartSubsystem"}, true},
	{gossip.Gossip_ServiceDesc.ServiceName, []string{"Read"}, true},
	{serverfeatures.ServerFeatures_ServiceDesc.ServiceName, []string{"GetSupportedMethods"}, true},
	{"event_store.client.operations.Operations", []string{"StartScavenge", "StopScavenge", "Shutdown", "MergeIndexes", "ResignNode", "SetNodePriority", "RestartPersistentSubscriptions"}, false},
	{"event_store.client.users.Users", []string{"Create", "Update", "Delete", "Disable", "Enable", "Details", "ChangePassword", "ResetPassword"}, false},
	{"event_store.client.projections.Projections", []string{"Create", "Update", "Delete", "Statistics", "Disable", "Enable", "Reset", "State", "Result", "RestartSubsystem"}, false},
	{"event_store.client.monitoring.Monitoring", []string{"Stats"}, false},
	{"kurrentdb.protocol.v2.streams.StreamsService", []string{"AppendSession", "AppendRecords"}, false},
	{"event_store.client.streams.Streams", []string{"NoSuchMethod"}, false},
}

// offered returns the methods that a ledger offers.
func offered() (all []string) {
	for _, s := range services {
		for _, m := range s.methods {
			if s.offered {
				all = append(all, "/"+s.name+"/"+m)
			}
		}
	}
	return all
}

// Every method answers a call without a message, with an empty, an invalid or a
// too large message, and with two messages.
func TestEveryCallIsAnswered(t *testing.T) {
	t.Parallel()
	conn := raw(t, serve(t, eventstest.NewSlice(), everything))
	for _, s := range services {
		for _, m := range s.methods {
			method := "/" + s.name + "/" + m
			for name, sent := range map[string][][]byte{
				"nothing": nil, "an empty message": {{}}, "garbage": {{0xff, 0xff}}, "17 MiB": {make([]byte, 17<<20)}, "two messages": {{}, {}},
			} {
				_, err := call(t, conn, method, sent...)
				got := status.Code(err)
				switch {
				case !s.offered && (got != codes.Unimplemented || !strings.Contains(err.Error(), "a ledger offers")):
					t.Errorf("%s of %s: %v, want UNIMPLEMENTED that says what there is", method, name, err)
				case s.offered && !answers(err):
					t.Errorf("%s of %s: %v, want another status", method, name, err)
				case s.offered && name == "17 MiB" && !isPublic(s.name) && got != codes.ResourceExhausted && got != codes.InvalidArgument:
					t.Errorf("%s of %s: %v, want RESOURCE_EXHAUSTED", method, name, err)
				}
			}
		}
	}
}

// isPublic reports whether a service needs no credentials. The server does not
// read its requests, which have no fields.
func isPublic(service string) bool {
	return service == gossip.Gossip_ServiceDesc.ServiceName || service == serverfeatures.ServerFeatures_ServiceDesc.ServiceName
}

// answers reports whether an error is one that a caller can act on. gRPC itself
// answers an invalid message with INTERNAL.
func answers(err error) bool {
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.Internal:
		return strings.Contains(s.Message(), "grpc:") || strings.Contains(s.Message(), "cardinality violation")
	case codes.Unknown, codes.DeadlineExceeded, codes.DataLoss, codes.Canceled:
		return false
	}
	return s.Code() == codes.OK || s.Message() != ""
}

// GetSupportedMethods lists exactly the methods that the server offers and does
// not always refuse.
func TestAdvertisedMethodsAreOffered(t *testing.T) {
	t.Parallel()
	conn := raw(t, serve(t, eventstest.NewSlice(), server.Config{}))
	received, err := serverfeatures.NewServerFeaturesClient(conn).GetSupportedMethods(t.Context(), &shared.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range received.Methods {
		got = append(got, "/"+m.ServiceName+"/"+m.MethodName)
	}
	var want []string
	for _, method := range offered() {
		// The server refuses every call of these, and does not advertise them.
		if !strings.HasSuffix(method, "Streams/Delete") && !strings.HasSuffix(method, "/Tombstone") {
			want = append(want, strings.ToLower(method))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("told of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if parts := strings.Split(received.EventStoreServerVersion, "."); len(parts) != 3 {
		t.Errorf("the version is %q, want three numbers: clients read no other", received.EventStoreServerVersion)
	}
}

// Gossip needs no credentials and returns the address of the call.
func TestGossipNamesTheAddressOfTheCall(t *testing.T) {
	t.Parallel()
	conn := raw(t, serve(t, eventstest.NewSlice(), server.Config{}))
	info, err := gossip.NewGossipClient(conn).Read(t.Context(), &shared.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Members) != 1 {
		t.Fatalf("%d members, want one", len(info.Members))
	}
	m := info.Members[0]
	if id := instance(t, m); id.Version() != 4 || id.Variant() != uuid.RFC4122 {
		t.Errorf("the instance is %s of version %d, want a UUID of version 4", id, id.Version())
	}
	again, err := gossip.NewGossipClient(conn).Read(t.Context(), &shared.Empty{})
	if err != nil || instance(t, again.Members[0]) != instance(t, m) {
		t.Errorf("asked again, gossip names %v, %v, want the same instance as %v", again, err, m)
	}
	other, err := gossip.NewGossipClient(raw(t, serve(t, eventstest.NewSlice(), server.Config{}))).Read(t.Context(), &shared.Empty{})
	if err != nil || instance(t, other.Members[0]) == instance(t, m) {
		t.Errorf("another server names %v, %v, want another instance than %v", other, err, m)
	}
	if at := fmt.Sprintf("%s:%d", m.HttpEndPoint.Address, m.HttpEndPoint.Port); at != conn.Target() || m.State != gossip.MemberInfo_Leader || !m.IsAlive {
		t.Errorf("the member is %v, want the leader at %s", m, conn.Target())
	}
}

// instance returns the ID of a server.
func instance(t *testing.T, m *gossip.MemberInfo) (id uuid.UUID) {
	t.Helper()
	parts := m.GetInstanceId().GetStructured()
	binary.BigEndian.PutUint64(id[:8], uint64(parts.GetMostSignificantBits()))
	binary.BigEndian.PutUint64(id[8:], uint64(parts.GetLeastSignificantBits()))
	return id
}

// FuzzCalls sends any two messages to any method over a connection. The server
// answers the call, and the next one.
func FuzzCalls(f *testing.F) {
	methods := offered()
	stream := &shared.StreamIdentifier{StreamName: []byte("s-1")}
	settings := &persistent.CreateReq_Settings{LiveBufferSize: 1, ReadBatchSize: 1, HistoryBufferSize: 1, MaxCheckpointCount: 1}
	for method, seeds := range map[string][]proto.Message{
		"Streams/Read": {&streams.ReadReq{Options: &streams.ReadReq_Options{
			StreamOption: ofAll(1), CountOption: &streams.ReadReq_Options_Count{Count: 2},
			FilterOption: &streams.ReadReq_Options_Filter{Filter: &streams.ReadReq_Options_FilterOptions{
				Filter: &streams.ReadReq_Options_FilterOptions_EventType{EventType: &streams.ReadReq_Options_FilterOptions_Expression{Regex: "^A"}},
				Window: &streams.ReadReq_Options_FilterOptions_Max{Max: 1}, CheckpointIntervalMultiplier: 1,
			}},
			UuidOption: &streams.ReadReq_Options_UUIDOption{Content: &streams.ReadReq_Options_UUIDOption_String_{}},
		}}},
		"Streams/Append": {
			&streams.AppendReq{Content: &streams.AppendReq_Options_{Options: &streams.AppendReq_Options{StreamIdentifier: stream, ExpectedStreamRevision: &streams.AppendReq_Options_Any{Any: none()}}}},
			&streams.AppendReq{Content: &streams.AppendReq_ProposedMessage_{ProposedMessage: &streams.AppendReq_ProposedMessage{Id: id('a'), Metadata: systemMetadata, CustomMetadata: []byte(`{"$ledger":{}}`)}}},
		},
		"Streams/BatchAppend":            {batchOf("01000000-0000-0000-0000-000000000001", "s-1", false, 1), batchOf("01000000-0000-0000-0000-000000000001", "s-1", true, 1)},
		"Streams/Delete":                 {&streams.DeleteReq{Options: &streams.DeleteReq_Options{StreamIdentifier: stream}}},
		"PersistentSubscriptions/Create": {&persistent.CreateReq{Options: &persistent.CreateReq_Options{StreamOption: &persistent.CreateReq_Options_Stream{Stream: &persistent.CreateReq_StreamOptions{StreamIdentifier: stream}}, GroupName: "h", Settings: settings}}},
		"PersistentSubscriptions/Read": {
			&persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: stream}, GroupName: "g", BufferSize: 1}}},
			&persistent.ReadReq{Content: &persistent.ReadReq_Nack_{Nack: &persistent.ReadReq_Nack{Ids: []*shared.UUID{id('a')}, Action: persistent.ReadReq_Nack_Park}}},
		},
		"PersistentSubscriptions/ReplayParked": {&persistent.ReplayParkedReq{Options: &persistent.ReplayParkedReq_Options{StreamOption: &persistent.ReplayParkedReq_Options_StreamIdentifier{StreamIdentifier: stream}, GroupName: "g"}}},
	} {
		at := slices.IndexFunc(methods, func(m string) bool { return strings.HasSuffix(m, "."+method) })
		parts := [2][]byte{}
		for i, m := range seeds {
			text, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			parts[i] = text
		}
		f.Add(uint8(at), parts[0], parts[1])
	}
	f.Fuzz(func(t *testing.T, which uint8, first, second []byte) {
		conn := served(t)
		sent := [][]byte{first, second}
		if len(second) == 0 {
			sent = sent[:1]
		}
		method := methods[int(which)%len(methods)]
		if _, err := call(t, conn, method, sent...); !answers(err) {
			t.Errorf("%s of %x and %x: %v", method, first, second, err)
		}
		if came, err := call(t, conn, "/"+serverfeatures.ServerFeatures_ServiceDesc.ServiceName+"/GetSupportedMethods", nil); came != 1 || err != nil {
			t.Errorf("afterwards the server answers %d, %v", came, err)
		}
	})
}

func none() *shared.Empty { return &shared.Empty{} }

// served serves a store with three events and a group on a Unix socket. The
// caller may call every method.
func served(t *testing.T) *grpc.ClientConn {
	t.Helper()
	dir, err := os.MkdirTemp("", "f") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	server, err := server.New(eventstest.NewSlice(), everything)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient("unix:"+at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Close()
		if err := errors.Join(<-done, conn.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	appendCase{stream: "s-1", expect: "none", events: "abc"}.single(t, conn)
	if _, err := persistent.NewPersistentSubscriptionsClient(conn).Create(t.Context(), &persistent.CreateReq{Options: &persistent.CreateReq_Options{
		StreamOption: &persistent.CreateReq_Options_Stream{Stream: &persistent.CreateReq_StreamOptions{
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s-1")}, RevisionOption: &persistent.CreateReq_StreamOptions_Start{Start: none()},
		}}, GroupName: "g",
		Settings: &persistent.CreateReq_Settings{LiveBufferSize: 1, ReadBatchSize: 1, HistoryBufferSize: 1, MaxCheckpointCount: 1, ConsumerStrategy: "RoundRobin"},
	}}); err != nil {
		t.Fatal(err)
	}
	return conn
}
