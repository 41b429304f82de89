package server_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// now is the time of the servers in this file.
var now = time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)

// clocked is everything, at that time.
var clocked = server.Config{Anonymous: auth.Ledger, Writable: []string{""}, Now: func() time.Time { return now }}

// fields decodes the unknown fields of a message: numbers as numbers, bytes as
// text.
func fields(t *testing.T, b []byte) map[protowire.Number]string {
	t.Helper()
	all := map[protowire.Number]string{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		b = b[n:]
		switch kind {
		case protowire.VarintType:
			value, n := protowire.ConsumeVarint(b)
			all[number], b = fmt.Sprint(value), b[n:]
		case protowire.BytesType:
			value, n := protowire.ConsumeBytes(b)
			all[number], b = string(value), b[n:]
		default:
			t.Fatalf("field %d is of the kind %d", number, kind)
		}
	}
	return all
}

func isNow(t *testing.T, field string) bool {
	t.Helper()
	var at timestamppb.Timestamp
	return proto.Unmarshal([]byte(field), &at) == nil && at.AsTime().Equal(now)
}

// request returns the options of a subscription to a stream, or to $all if the
// name is empty.
func request(stream string) *streams.ReadReq_Options {
	o := &streams.ReadReq_Options{
		StreamOption: &streams.ReadReq_Options_All{All: &streams.ReadReq_Options_AllOptions{AllOption: &streams.ReadReq_Options_AllOptions_Start{}}},
		CountOption:  &streams.ReadReq_Options_Subscription{Subscription: &streams.ReadReq_Options_SubscriptionOptions{}},
		FilterOption: &streams.ReadReq_Options_NoFilter{},
		UuidOption:   &streams.ReadReq_Options_UUIDOption{Content: &streams.ReadReq_Options_UUIDOption_String_{}},
	}
	if stream != "" {
		o.StreamOption = &streams.ReadReq_Options_Stream{Stream: &streams.ReadReq_Options_StreamOptions{
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)}, RevisionOption: &streams.ReadReq_Options_StreamOptions_Start{},
		}}
	}
	return o
}

// received returns the messages of a read or subscription up to the one for
// which last returns true.
func received(t *testing.T, conn *grpc.ClientConn, o *streams.ReadReq_Options, last func(*streams.ReadResp) bool) []*streams.ReadResp {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call, err := streams.NewStreamsClient(conn).Read(ctx, &streams.ReadReq{Options: o})
	if err != nil {
		t.Fatal(err)
	}
	var all []*streams.ReadResp
	for {
		m, err := call.Recv()
		if err != nil {
			t.Fatalf("after %v: %v", all, err)
		}
		if all = append(all, m); last(m) {
			return all
		}
	}
}

func isCaughtUp(m *streams.ReadResp) bool { return m.GetCaughtUp() != nil }

// CaughtUp has the fields that the reported EventStoreDB version sends.
// KurrentDB clients ignore the message without them.
func TestCaughtUpHasTimeAndPosition(t *testing.T) {
	t.Parallel()
	conn := raw(t, serve(t, eventstest.NewSlice(), clocked))
	caughtUp := func(o *streams.ReadReq_Options) map[protowire.Number]string {
		t.Helper()
		all := received(t, conn, o, isCaughtUp)
		got := fields(t, all[len(all)-1].GetCaughtUp().ProtoReflect().GetUnknown())
		if !isNow(t, got[1]) {
			t.Errorf("caught up at the time %q, want %v", got[1], now)
		}
		return got
	}
	if got := caughtUp(request("")); got[2] != "" || got[3] != "" {
		t.Errorf("caught up with an empty log: %q, want neither revision nor position", got)
	}
	mustAppend(t, connect(t, conn.Target()), "s-1", esdb.NoStream{}, many("A", 3)...)
	mustAppend(t, connect(t, conn.Target()), "s-2", esdb.NoStream{}, many("A", 1)...)
	if got := caughtUp(request("s-0")); got[2] != "" || got[3] != "" {
		t.Errorf("caught up with an empty stream: %q, want neither revision nor position", got)
	}
	end, middle, behind := request("s-1"), request("s-1"), request("s-1")
	end.GetStream().RevisionOption = &streams.ReadReq_Options_StreamOptions_End{}
	middle.GetStream().RevisionOption = &streams.ReadReq_Options_StreamOptions_Revision{Revision: 1}
	behind.GetStream().RevisionOption = &streams.ReadReq_Options_StreamOptions_Revision{Revision: 7}
	for name, of := range map[string]struct {
		o    *streams.ReadReq_Options
		want string
	}{"start": {request("s-1"), "2"}, "end": {end, "2"}, "middle": {middle, "2"}, "behind": {behind, "7"}} {
		if got := caughtUp(of.o); got[2] != of.want || got[3] != "" {
			t.Errorf("caught up with a stream from the %s: %q, want revision %s and no position", name, got, of.want)
		}
	}
	filtered := request("")
	filtered.FilterOption = window(0)
	for _, o := range []*streams.ReadReq_Options{request(""), filtered} {
		got := caughtUp(o)
		if at := fields(t, []byte(got[3])); got[2] != "" || at[1] != "4" || at[2] != "4" {
			t.Errorf("caught up with the log: %q at %v, want position 4/4 and no revision", got, at)
		}
	}
}

// window returns a filter that matches no event, with a window or without.
func window(max uint32) *streams.ReadReq_Options_Filter {
	f := &streams.ReadReq_Options_FilterOptions{
		Filter: &streams.ReadReq_Options_FilterOptions_EventType{
			EventType: &streams.ReadReq_Options_FilterOptions_Expression{Prefix: []string{"none of these"}},
		},
		Window:                       &streams.ReadReq_Options_FilterOptions_Count{Count: none()},
		CheckpointIntervalMultiplier: 1,
	}
	if max > 0 {
		f.Window = &streams.ReadReq_Options_FilterOptions_Max{Max: max}
	}
	return &streams.ReadReq_Options_Filter{Filter: f}
}

// The server sends a checkpoint after each window of records, whether the store
// or the server applies the filter.
func TestFilterWindowIsThatOfEventStoreDB(t *testing.T) {
	t.Parallel()
	slice, store := eventstest.NewSlice(), memory(t)
	for name, conn := range map[string]*grpc.ClientConn{"slice": raw(t, serve(t, slice, clocked)), "embedded": raw(t, serve(t, store, clocked))} {
		mustAppend(t, connect(t, conn.Target()), "s-1", esdb.NoStream{}, many("A", 70)...)
		for max, want := range map[uint32]string{0: "[32 64 70]", 32: "[32 64 70]", 50: "[50 70]"} {
			o := request("")
			o.FilterOption = window(max)
			var got []uint64
			for _, m := range received(t, conn, o, isCaughtUp) {
				if c := m.GetCheckpoint(); c != nil {
					got = append(got, c.CommitPosition)
					if at := fields(t, c.ProtoReflect().GetUnknown()); !isNow(t, at[3]) {
						t.Errorf("%s: a checkpoint has %q, want its time", name, at)
					}
				}
			}
			if fmt.Sprint(got) != want {
				t.Errorf("%s: a filter with the window %d has checkpoints at %v, want %s", name, max, got, want)
			}
		}
	}
}

// JSON and binary data, each declared as either, keep the declared content type
// for every kind of reader, also after a restart.
func TestContentTypeIsReturnedUnchanged(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	conn, stop := reopen(t, fs)
	var sent []esdb.EventData
	for _, kind := range []esdb.ContentType{esdb.ContentTypeJson, esdb.ContentTypeBinary} {
		for _, data := range []string{"42", `{"a":1}`, `"x"`, "\x00\xff", "", "not json"} {
			for _, metadata := range []string{"", "{}", `{"$correlationId":"c"}`, `{ "a":1}`, "\x00"} {
				sent = append(sent, esdb.EventData{EventType: "A", ContentType: kind, Data: []byte(data), Metadata: []byte(metadata)})
			}
		}
	}
	mustAppend(t, connect(t, conn.Target()), "s-1", esdb.NoStream{}, sent...)
	group := createOptions("g")
	group.Settings.HistoryBufferSize = 1000
	if _, err := persistent.NewPersistentSubscriptionsClient(conn).Create(t.Context(), &persistent.CreateReq{Options: group}); err != nil {
		t.Fatal(err)
	}
	type recorded interface {
		GetMetadata() map[string]string
		GetCustomMetadata() []byte
		GetData() []byte
	}
	check := func(reader string, i int, got recorded) {
		t.Helper()
		want := "application/json"
		if sent[i].ContentType == esdb.ContentTypeBinary {
			want = "application/octet-stream"
		}
		if got.GetMetadata()["content-type"] != want || string(got.GetData()) != string(sent[i].Data) || string(got.GetCustomMetadata()) != string(sent[i].Metadata) {
			t.Errorf("%s: %q with %q declared as %s came back as %q with %q, %s", reader, sent[i].Data, sent[i].Metadata, want, got.GetData(), got.GetCustomMetadata(), got.GetMetadata())
		}
	}
	for range 2 {
		for _, stream := range []string{"s-1", ""} {
			n := 0
			for _, m := range received(t, conn, request(stream), isCaughtUp) {
				if e := m.GetEvent().GetEvent(); e != nil && string(e.StreamIdentifier.StreamName) == "s-1" {
					check("a subscription to "+stream, n, e)
					n++
				}
			}
			if n != len(sent) {
				t.Errorf("a subscription to %q was sent %d events, want %d", stream, n, len(sent))
			}
		}
		i := 0
		read := request("s-1")
		read.CountOption = &streams.ReadReq_Options_Count{Count: uint64(len(sent))}
		received(t, conn, read, func(m *streams.ReadResp) bool {
			check("a reader", i, m.GetEvent().GetEvent())
			i++
			return i == len(sent)
		})
		for i, e := range consumed(t, conn, "s-1", "g", len(sent)) {
			check("a consumer", i, e.GetEvent())
		}
		stop()
		conn, stop = reopen(t, fs)
	}
	stop()
}

// consumed returns the events that a consumer receives, without acks.
func consumed(t *testing.T, conn *grpc.ClientConn, stream, group string, n int) (all []*persistent.ReadResp_ReadEvent) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	call, err := persistent.NewPersistentSubscriptionsClient(conn).Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Send(&persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
		StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)}},
		GroupName:    group, BufferSize: int32(n),
	}}}); err != nil {
		t.Fatal(err)
	}
	for len(all) < n {
		m, err := call.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e := m.GetEvent(); e != nil {
			all = append(all, e)
		}
	}
	return all
}

// A group with checkPointUpperBound 1 and the Node client's other defaults, and
// so an upper bound below the lower, writes a checkpoint after each event.
func TestGroupAcceptsMaxCheckpointBelowMin(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	mustAppend(t, c, "s-1", esdb.NoStream{}, many("A", 3)...)
	settings := esdb.SubscriptionSettingsDefault()
	settings.CheckpointUpperBound = 1
	if err := c.CreatePersistentSubscription(t.Context(), "s-1", "g", esdb.PersistentStreamSubscriptionOptions{Settings: &settings, StartFrom: esdb.Start{}}); err != nil {
		t.Fatal(err)
	}
	s, err := c.SubscribeToPersistentSubscription(t.Context(), "s-1", "g", esdb.SubscribeToPersistentSubscriptionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := s.Recv()
	if e.EventAppeared == nil {
		t.Fatalf("received %+v, want an event", e)
	}
	if err := s.Ack(e.EventAppeared.Event); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		info, err := c.GetPersistentSubscriptionInfo(t.Context(), "s-1", "g", esdb.GetPersistentSubscriptionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Settings.CheckpointUpperBound; got != 1 || info.Settings.CheckpointLowerBound != settings.CheckpointLowerBound {
			t.Fatalf("the bounds are %d and %d, want %d and 1", info.Settings.CheckpointLowerBound, got, settings.CheckpointLowerBound)
		}
		if at := info.Stats.LastCheckpointedEventRevision; at != nil && *at == 0 {
			return
		}
	}
	t.Error("after a minute no checkpoint is behind the one event that was settled")
}

// GetInfo returns the name that each consumer's connection has in its header.
func TestConsumerHasTheNameOfItsConnection(t *testing.T) {
	t.Parallel()
	conn := raw(t, serve(t, eventstest.NewSlice(), everything))
	client := persistent.NewPersistentSubscriptionsClient(conn)
	if _, err := client.Create(t.Context(), &persistent.CreateReq{Options: createOptions("g")}); err != nil {
		t.Fatal(err)
	}
	id := &shared.StreamIdentifier{StreamName: []byte("s-1")}
	for _, name := range []string{"shop-7", ""} {
		ctx, cancel := context.WithCancel(t.Context())
		// Invalid UTF-8 in a name does not prevent the response.
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("a\xffb:")))
		if name != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "connection-name", name)
		}
		call, err := client.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := call.Send(&persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
			StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: id}, GroupName: "g", BufferSize: 1,
		}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := call.Recv(); err != nil {
			t.Fatal(err)
		}
		info, err := client.GetInfo(t.Context(), &persistent.GetInfoReq{Options: &persistent.GetInfoReq_Options{
			StreamOption: &persistent.GetInfoReq_Options_StreamIdentifier{StreamIdentifier: id}, GroupName: "g",
		}})
		if err != nil {
			t.Fatal(err)
		}
		all := info.SubscriptionInfo.Connections
		if got := all[len(all)-1]; got.ConnectionName != cmp.Or(name, "<unknown>") || got.Username != "a\uFFFDb" {
			t.Errorf("a consumer of the connection %q is known as %v", name, got)
		}
		cancel()
	}
}
