package server_test

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/persistent"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events/eventstest"
)

// createOptions returns valid options for a group of the stream s-1.
func createOptions(name string) *persistent.CreateReq_Options {
	return &persistent.CreateReq_Options{
		StreamOption: &persistent.CreateReq_Options_Stream{Stream: &persistent.CreateReq_StreamOptions{
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s-1")}, RevisionOption: &persistent.CreateReq_StreamOptions_Start{Start: none()},
		}},
		GroupName: name,
		Settings: &persistent.CreateReq_Settings{
			LiveBufferSize: 10, ReadBatchSize: 10, HistoryBufferSize: 10, MaxCheckpointCount: 1, MaxRetryCount: 1, ConsumerStrategy: "RoundRobin",
		},
	}
}

// A group with one invalid field is refused.
func TestInvalidGroupsAreRefused(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	client := persistent.NewPersistentSubscriptionsClient(raw(t, serve(t, store, everything)))
	type options = persistent.CreateReq_Options
	for name, spoil := range map[string]func(*options){
		"a stream name is required": func(o *options) { o.StreamOption = nil },
		"is not UTF-8":              func(o *options) { o.GetStream().StreamIdentifier.StreamName = []byte("\xff") },
		"is the stream of a group":  func(o *options) { o.GetStream().StreamIdentifier.StreamName = []byte("subscription-x") },
		"a group name is required":  func(o *options) { o.GroupName = "" },
		"contains ::":               func(o *options) { o.GroupName = "a::b" },
		"live buffer":               func(o *options) { o.Settings = nil },
		"history buffer":            func(o *options) { o.Settings.HistoryBufferSize = -1 },
		"limited to 100000 entries": func(o *options) { o.Settings.LiveBufferSize = math.MaxInt32 },
		"unknown strategy \"Fair\"": func(o *options) { o.Settings.ConsumerStrategy = "Fair" },
		"a number is negative":      func(o *options) { o.Settings.MaxRetryCount = -1 },
		"count -1 is negative":      func(o *options) { o.Settings.MaxCheckpointCount = -1 },
		"a revision, start or end":  func(o *options) { o.GetStream().RevisionOption = nil },
		"negative or longer": func(o *options) {
			o.Settings.MessageTimeout = &persistent.CreateReq_Settings_MessageTimeoutTicks{MessageTimeoutTicks: math.MaxInt64 / 4}
		},
		"-1 ms is negative": func(o *options) {
			o.Settings.MessageTimeout = &persistent.CreateReq_Settings_MessageTimeoutMs{MessageTimeoutMs: -1}
		},
		"is negative or": func(o *options) {
			o.Settings.CheckpointAfter = &persistent.CreateReq_Settings_CheckpointAfterTicks{CheckpointAfterTicks: -1}
		},
		"a filter by stream or by": func(o *options) { o.StreamOption = ofAllFiltered(&persistent.CreateReq_AllOptions_FilterOptions{}, 0) },
		"not a regular expression": func(o *options) { o.StreamOption = ofAllFiltered(byType("("), 0) },
		"the log ends at":          func(o *options) { o.StreamOption = ofAllFiltered(byType("A"), 99) },
	} {
		o := createOptions("g")
		spoil(o)
		_, err := client.Create(t.Context(), &persistent.CreateReq{Options: o})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("a group that is to be refused with %q: %v", name, err)
		}
	}
	if _, err := client.Create(t.Context(), &persistent.CreateReq{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a group without options: %v, want INVALID_ARGUMENT", err)
	}
	if got := held(t, store); got != 0 {
		t.Errorf("%d records of groups that were refused", got)
	}
	if _, err := client.Create(t.Context(), &persistent.CreateReq{Options: createOptions("g")}); err != nil {
		t.Errorf("a group that makes sense: %v", err)
	}
	if _, err := client.ReplayParked(t.Context(), &persistent.ReplayParkedReq{Options: &persistent.ReplayParkedReq_Options{
		StreamOption: &persistent.ReplayParkedReq_Options_StreamIdentifier{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s-1")}},
		GroupName:    "g", StopAtOption: &persistent.ReplayParkedReq_Options_StopAt{StopAt: -1},
	}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a replay of fewer than none: %v, want INVALID_ARGUMENT", err)
	}
}

func ofAllFiltered(f *persistent.CreateReq_AllOptions_FilterOptions, from uint64) *persistent.CreateReq_Options_All {
	return &persistent.CreateReq_Options_All{All: &persistent.CreateReq_AllOptions{
		AllOption:    &persistent.CreateReq_AllOptions_Position{Position: &persistent.CreateReq_Position{CommitPosition: from, PreparePosition: from}},
		FilterOption: &persistent.CreateReq_AllOptions_Filter{Filter: f},
	}}
}

func byType(regex string) *persistent.CreateReq_AllOptions_FilterOptions {
	return &persistent.CreateReq_AllOptions_FilterOptions{Filter: &persistent.CreateReq_AllOptions_FilterOptions_EventType{
		EventType: &persistent.CreateReq_AllOptions_FilterOptions_Expression{Regex: regex},
	}}
}

// consuming joins the group g of the stream s-1, and returns the call after its
// confirmation.
func consuming(t *testing.T, conn *grpc.ClientConn) persistent.PersistentSubscriptions_ReadClient {
	t.Helper()
	call, err := persistent.NewPersistentSubscriptionsClient(conn).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Send(&persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
		StreamOption: &persistent.ReadReq_Options_StreamIdentifier{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s-1")}},
		GroupName:    "g", BufferSize: 10,
	}}}); err != nil {
		t.Fatal(err)
	}
	if m, err := call.Recv(); err != nil || m.GetSubscriptionConfirmation() == nil {
		t.Fatalf("the group answers %v, %v, want a confirmation", m, err)
	}
	return call
}

// However a consumer ends, its unacknowledged event goes to the next consumer.
func TestConsumerEndings(t *testing.T) {
	t.Parallel()
	conn := raw(t, serve(t, eventstest.NewSlice(), everything))
	client := persistent.NewPersistentSubscriptionsClient(conn)
	if _, err := client.Create(t.Context(), &persistent.CreateReq{Options: createOptions("g")}); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, connect(t, conn.Target()), "s-1", esdb.NoStream{}, many("A", 1)...)
	type consumer = persistent.PersistentSubscriptions_ReadClient
	for _, test := range []struct {
		name string
		end  func(consumer, *shared.UUID) error
		want codes.Code
	}{
		{"it answers no more", func(c consumer, _ *shared.UUID) error { return c.CloseSend() }, codes.OK},
		{"an ID that is none", func(c consumer, _ *shared.UUID) error {
			return c.Send(&persistent.ReadReq{Content: &persistent.ReadReq_Ack_{Ack: &persistent.ReadReq_Ack{Ids: []*shared.UUID{{}}}}})
		}, codes.InvalidArgument},
		{"an ID in a nack that is none", func(c consumer, _ *shared.UUID) error {
			return c.Send(&persistent.ReadReq{Content: &persistent.ReadReq_Nack_{Nack: &persistent.ReadReq_Nack{Ids: []*shared.UUID{{}}}}})
		}, codes.InvalidArgument},
		{"neither ack nor nack", func(c consumer, _ *shared.UUID) error { return c.Send(&persistent.ReadReq{}) }, codes.InvalidArgument},
		{"a nack that stops", func(c consumer, id *shared.UUID) error {
			return c.Send(&persistent.ReadReq{Content: &persistent.ReadReq_Nack_{Nack: &persistent.ReadReq_Nack{Ids: []*shared.UUID{id}, Action: persistent.ReadReq_Nack_Stop}}})
		}, codes.Unavailable},
		{"the subsystem starts again", func(consumer, *shared.UUID) error {
			_, err := client.RestartSubsystem(t.Context(), none())
			return err
		}, codes.Unavailable},
		{"the group is deleted", func(consumer, *shared.UUID) error {
			_, err := client.Delete(t.Context(), &persistent.DeleteReq{Options: &persistent.DeleteReq_Options{
				StreamOption: &persistent.DeleteReq_Options_StreamIdentifier{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("s-1")}}, GroupName: "g",
			}})
			return err
		}, codes.Aborted},
	} {
		call := consuming(t, conn)
		m, err := call.Recv()
		if err != nil || m.GetEvent().GetEvent().GetStreamRevision() != 0 {
			t.Fatalf("before %s: %v, %v, want revision 0", test.name, m, err)
		}
		if err := test.end(call, m.GetEvent().Event.Id); err != nil {
			t.Fatal(err)
		}
		_, err = call.Recv()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if status.Code(err) != test.want {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
}

// List returns all groups, the groups of a stream or of $all, and NOT_FOUND for
// a stream without groups.
func TestGroupsAreListed(t *testing.T) {
	t.Parallel()
	client := persistent.NewPersistentSubscriptionsClient(raw(t, serve(t, eventstest.NewSlice(), everything)))
	ofAll := createOptions("c")
	ofAll.StreamOption = ofAllFiltered(byType("A"), 0)
	for _, o := range []*persistent.CreateReq_Options{createOptions("b"), createOptions("a"), ofAll} {
		if _, err := client.Create(t.Context(), &persistent.CreateReq{Options: o}); err != nil {
			t.Fatal(err)
		}
	}
	stream := func(name string) *persistent.ListReq_Options_ListForStream {
		return &persistent.ListReq_Options_ListForStream{ListForStream: &persistent.ListReq_StreamOption{
			StreamOption: &persistent.ListReq_StreamOption_Stream{Stream: &shared.StreamIdentifier{StreamName: []byte(name)}},
		}}
	}
	for _, test := range []struct {
		name string
		o    *persistent.ListReq_Options
		want string
	}{
		{"all groups", &persistent.ListReq_Options{ListOption: &persistent.ListReq_Options_ListAllSubscriptions{}}, "$all::c s-1::a s-1::b "},
		{"those of a stream", &persistent.ListReq_Options{ListOption: stream("s-1")}, "s-1::a s-1::b "},
		{"those of $all", &persistent.ListReq_Options{ListOption: &persistent.ListReq_Options_ListForStream{ListForStream: &persistent.ListReq_StreamOption{
			StreamOption: &persistent.ListReq_StreamOption_All{All: none()},
		}}}, "$all::c "},
		{"those of a stream that has none", &persistent.ListReq_Options{ListOption: stream("s-2")}, "persistent-subscription-does-not-exist"},
	} {
		var trailer metadata.MD
		list, err := client.List(t.Context(), &persistent.ListReq{Options: test.o}, grpc.Trailer(&trailer))
		got := ""
		for _, s := range list.GetSubscriptions() {
			got += s.EventSource + "::" + s.GroupName + " "
		}
		if status.Code(err) == codes.NotFound {
			got = strings.Join(trailer.Get("exception"), "")
		}
		if got != test.want {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}
