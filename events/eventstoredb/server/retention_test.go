package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server"
	"github.com/settlement-ledger/ledger/events/eventstoredb/server/auth"
)

// inBatch appends an event by BatchAppend and returns the code of the reply and
// the type of its detail.
func inBatch(t *testing.T, conn *grpc.ClientConn, stream, data string) (codes.Code, string) {
	t.Helper()
	call, err := streams.NewStreamsClient(conn).BatchAppend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := call.Send(&streams.BatchAppendReq{
		CorrelationId: id('!'), IsFinal: true,
		Options: &streams.BatchAppendReq_Options{
			StreamIdentifier:       &shared.StreamIdentifier{StreamName: []byte(stream)},
			ExpectedStreamPosition: &streams.BatchAppendReq_Options_Any{Any: &emptypb.Empty{}},
		},
		ProposedMessages: []*streams.BatchAppendReq_ProposedMessage{{
			Id:       &shared.UUID{Value: &shared.UUID_String_{String_: uuid.NewString()}},
			Metadata: map[string]string{"type": "$metadata", "content-type": "application/json"}, Data: []byte(data),
		}},
	}); err != nil {
		t.Fatal(err)
	}
	reply, err := call.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if e := reply.GetError(); e != nil {
		return codes.Code(e.Code), string(e.Details[0].MessageName().Name())
	}
	return codes.OK, ""
}

// Every member of stream metadata that EventStoreDB acts on is refused in both
// forms of an append and in the client's own call. Other members are stored.
func TestMetadataThatHideRecordsAreRefused(t *testing.T) {
	t.Parallel()
	for data, refused := range map[string]bool{
		`{"$maxCount":1}`: true, `{"$maxAge":1}`: true, `{"$tb":9223372036854775807}`: true, `{"\u0024tb":1}`: true,
		`{"$acl":{"$r":"ada"}}`: true, `{"$cacheControl":5}`: true, `{"own":1,"$maxCount":"x"}`: true, ` {"$maxAge" : 0 } `: true,
		`{}`: false, `{"own":{"$tb":1}}`: false, `{"$maxCount":null}`: false, `{"$other":1}`: false, `[]`: false, `"$tb"`: false, ``: false, "\x00": false,
	} {
		store := eventstest.NewSlice()
		conn := raw(t, serve(t, store, everything))
		c := connect(t, conn.Target())
		_, err := c.AppendToStream(t.Context(), "$$s-1", esdb.AppendToStreamOptions{}, esdb.EventData{EventType: "$metadata", Data: []byte(data)})
		status, detail := inBatch(t, conn, "$$s-1", data)
		switch {
		case refused && (code(err) != esdb.ErrorCodeAccessDenied || !strings.Contains(err.Error(), "does not act on") || status != codes.PermissionDenied || detail != "AccessDenied"):
			t.Errorf("metadata %s: %v and %v with %s, want PERMISSION_DENIED", data, err, status, detail)
		case !refused && (err != nil || status != codes.OK):
			t.Errorf("metadata %s: %v and %v, want none", data, err, status)
		}
		if got, want := held(t, store), map[bool]int{true: 0, false: 2}[refused]; got != want {
			t.Errorf("metadata %s: %d records, want %d", data, got, want)
		}
		// They are data in any other stream.
		if _, err := c.AppendToStream(t.Context(), "s-1", esdb.AppendToStreamOptions{}, esdb.EventData{EventType: "$metadata", Data: []byte(data)}); err != nil {
			t.Errorf("%s in a stream that is no stream of metadata: %v", data, err)
		}
	}
}

// The client's calls for stream metadata and default access rights are refused.
func TestStreamMetadataCallsOfTheClientAreRefused(t *testing.T) {
	t.Parallel()
	_, c := pair(t)
	set := func(change func(*esdb.StreamMetadata)) error {
		m := esdb.StreamMetadata{}
		change(&m)
		_, err := c.SetStreamMetadata(t.Context(), "s-1", esdb.AppendToStreamOptions{}, m)
		return err
	}
	for name, change := range map[string]func(*esdb.StreamMetadata){
		"$maxCount":     func(m *esdb.StreamMetadata) { m.SetMaxCount(1) },
		"$maxAge":       func(m *esdb.StreamMetadata) { m.SetMaxAge(time.Second) },
		"$tb":           func(m *esdb.StreamMetadata) { m.SetTruncateBefore(1) },
		"$cacheControl": func(m *esdb.StreamMetadata) { m.SetCacheControl(time.Second) },
		"$acl": func(m *esdb.StreamMetadata) {
			acl := esdb.Acl{}
			acl.AddReadRoles("ada")
			m.SetAcl(acl)
		},
	} {
		if err := set(change); code(err) != esdb.ErrorCodeAccessDenied || !strings.Contains(err.Error(), name) {
			t.Errorf("set %s: %v, want AccessDenied that names it", name, err)
		}
	}
	if err := set(func(m *esdb.StreamMetadata) { m.AddCustomProperty("own", "x") }); err != nil {
		t.Error(err)
	}
	got, err := c.GetStreamMetadata(t.Context(), "s-1", esdb.ReadStreamOptions{})
	if err != nil || got.CustomProperty("own") != "x" {
		t.Errorf("the metadata are %+v, %v, want what was set", got, err)
	}
	if _, err := c.AppendToStream(t.Context(), "$settings", esdb.AppendToStreamOptions{}, esdb.EventData{
		EventType: "update-default-acl", ContentType: esdb.ContentTypeJson, Data: []byte(`{"$userStreamAcl":{"$r":"ada"}}`),
	}); code(err) != esdb.ErrorCodeAccessDenied {
		t.Errorf("the default rights are set: %v, want AccessDenied", err)
	}
}

// Metadata that the ledger copies from a database are stored unchanged and hide
// no records.
func TestCopiedMetadataHaveNoEffect(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	c := connect(t, serve(t, store, server.Config{Anonymous: auth.Ledger}))
	own, err := mapping.FromRecord(events.Record{ID: mint(1), Kind: "$metadata", Version: 1, Time: time.Unix(0, 0).UTC(), Data: []byte(`{"$maxCount":1}`)})
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, c, "$$s-1", esdb.NoStream{}, esdb.EventData{EventID: own.ID, EventType: own.Type, Data: own.Data, Metadata: own.Metadata})
	for i := range 3 {
		r := events.Record{ID: mint(byte(2 + i)), Kind: "A", Version: 1, Time: time.Unix(0, 0).UTC(), Data: []byte("{}")}
		if err := store.Append(t.Context(), "s-1", events.Revision(i), r); err != nil {
			t.Fatal(err)
		}
	}
	read, err := c.ReadStream(t.Context(), "s-1", esdb.ReadStreamOptions{}, 10)
	if got := collect(t, read, err); len(got) != 3 {
		t.Errorf("%d events are read, want 3: nothing is hidden", len(got))
	}
}

// With resolve_links a link is sent with its event, and without it alone; a
// broken link, and an event that is no link, are sent as they are.
func TestLinksAreResolvedOnRequest(t *testing.T) {
	t.Parallel()
	for _, resolve := range []bool{false, true} {
		conn := raw(t, serve(t, eventstest.NewSlice(), everything))
		c := connect(t, conn.Target())
		link := func(data string) esdb.EventData { return esdb.EventData{EventType: "$>", Data: []byte(data)} }
		mustAppend(t, c, "s-1", esdb.NoStream{}, many("A", 2)...)
		mustAppend(t, c, "l-1", esdb.NoStream{}, link("1@s-1"), link("2@s-1"), link("0@none"), link("x@s-1"), link("-1@s-1"), link("1@"),
			link("9223372036854775807@s-1"), link("18446744073709551615@s-1"), link("0@l-1"), link("\xff@\xff"), proposed("A", "own"))
		want := []string{"s-1/1", "-", "-", "-", "-", "-", "-", "-", "l-1/0", "-", ""}
		var got []string
		note := func(event, link *streams.ReadResp_ReadEvent_RecordedEvent) {
			switch {
			case link == nil:
				got = append(got, "")
			case event == nil:
				got = append(got, "-")
			default:
				got = append(got, fmt.Sprintf("%s/%d", event.StreamIdentifier.StreamName, event.StreamRevision))
			}
		}
		if !resolve {
			want = make([]string, len(want))
		}
		for _, count := range []bool{true, false} {
			got = nil
			o := request("l-1")
			o.ResolveLinks = resolve
			if count {
				o.CountOption = &streams.ReadReq_Options_Count{Count: uint64(len(want))}
			}
			n := 0
			received(t, conn, o, func(m *streams.ReadResp) bool {
				if e := m.GetEvent(); e != nil {
					note(e.Event, e.Link)
					n++
				}
				return n == len(want)
			})
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("resolving %t, counted %t: %q, want %q", resolve, count, got, want)
			}
		}
		settings := esdb.SubscriptionSettingsDefault()
		settings.ResolveLinkTos = resolve
		if err := c.CreatePersistentSubscription(t.Context(), "l-1", "g", esdb.PersistentStreamSubscriptionOptions{Settings: &settings, StartFrom: esdb.Start{}}); err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, e := range consumed(t, conn, "l-1", "g", len(want)) {
			event, link := &streams.ReadResp_ReadEvent_RecordedEvent{}, &streams.ReadResp_ReadEvent_RecordedEvent{}
			if e.Link == nil {
				link = nil
			}
			if e.Event == nil {
				event = nil
			} else {
				event.StreamIdentifier, event.StreamRevision = e.Event.StreamIdentifier, e.Event.StreamRevision
			}
			note(event, link)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("resolving %t, a consumer: %q, want %q", resolve, got, want)
		}
	}
}
