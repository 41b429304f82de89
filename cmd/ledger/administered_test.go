package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	streamspb "github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/verify"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
)

// deletingServer is a fake EventStoreDB whose administrator hides and deletes records.
// ledger serve refuses such operations, so no real server of the module can play this
// part. As in EventStoreDB, a read of one stream omits the records that the stream
// metadata hides, and a read of $all returns them until scavenge removes them.
type deletingServer struct {
	serverfeatures.UnimplementedServerFeaturesServer
	streamspb.UnimplementedStreamsServer
	mu      sync.Mutex
	all     []*streamspb.ReadResp_ReadEvent_RecordedEvent // in log order; guarded by mu once serve was called
	denies  func(stream string) bool                      // reports whether to deny a read of the stream, or of $all; nil denies no read
	appends atomic.Int64                                  // append requests received, all of them denied
}

// GetSupportedMethods returns a server version and no method, which is enough for the
// client to connect.
func (*deletingServer) GetSupportedMethods(context.Context, *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	return &serverfeatures.SupportedMethods{EventStoreServerVersion: "24.10.5"}, nil
}

// add appends an event of a kind to a stream, at a revision counted from 0 as the
// protocol counts it. change may alter the event before it is stored. It is called
// before serve.
func (a *deletingServer) add(stream, kind string, revision uint64, change func(*streamspb.ReadResp_ReadEvent_RecordedEvent)) {
	at := uint64(100 * (len(a.all) + 1))
	e := &streamspb.ReadResp_ReadEvent_RecordedEvent{
		Id:               &shared.UUID{Value: &shared.UUID_String_{String_: fmt.Sprintf("0190a1b2-0000-7000-8000-%012d", len(a.all)+1)}},
		StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
		StreamRevision:   revision, CommitPosition: at, PreparePosition: at,
		Metadata: map[string]string{"type": kind, "content-type": "application/json", "created": fmt.Sprint(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixNano() / 100)},
	}
	change(e)
	a.all = append(a.all, e)
}

// fill appends the records of entries to the log, mapped to events as the adapter maps
// them.
func (a *deletingServer) fill(t *testing.T, entries []events.Entry) {
	t.Helper()
	for _, e := range entries {
		f, err := mapping.FromRecord(e.Record)
		if err != nil {
			t.Fatal(err)
		}
		a.add(string(e.Stream), f.Type, uint64(e.Revision-1), func(r *streamspb.ReadResp_ReadEvent_RecordedEvent) {
			r.Data, r.CustomMetadata = f.Data, f.Metadata
			r.Id = &shared.UUID{Value: &shared.UUID_String_{String_: fmt.Sprintf("%x-%x-%x-%x-%x", f.ID[:4], f.ID[4:6], f.ID[6:8], f.ID[8:10], f.ID[10:])}}
		})
	}
}

// setMetadata writes metadata to a stream, and a tombstone if metadata is empty.
func (a *deletingServer) setMetadata(stream, metadata string) {
	if metadata == "" {
		a.add(stream, "$streamDeleted", 1<<63-1, func(*streamspb.ReadResp_ReadEvent_RecordedEvent) {})
		return
	}
	a.add("$$"+stream, "$metadata", 0, func(e *streamspb.ReadResp_ReadEvent_RecordedEvent) { e.Data = []byte(metadata) })
}

// scavenge removes the events for which goes returns true. goes takes revisions counted
// from 1, as the ledger counts them.
func (a *deletingServer) scavenge(goes func(stream string, revision uint64) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = slices.DeleteFunc(slices.Clone(a.all), func(e *streamspb.ReadResp_ReadEvent_RecordedEvent) bool { return goes(streamOf(e), e.StreamRevision+1) })
}

// streamOf returns the name of the stream that holds an event.
func streamOf(e *streamspb.ReadResp_ReadEvent_RecordedEvent) string {
	return string(e.StreamIdentifier.StreamName)
}

// serve starts a gRPC server on a loopback port and returns its connection string. The
// server stops when the test ends.
func (a *deletingServer) serve(t *testing.T) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	serverfeatures.RegisterServerFeaturesServer(server, a)
	streamspb.RegisterStreamsServer(server, a)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(at) }) // returns once the cleanup stops the server
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return "esdb://" + at.Addr().String() + "?tls=false"
}

// Append counts the request and denies it.
func (a *deletingServer) Append(streamspb.Streams_AppendServer) error {
	a.appends.Add(1)
	return grpcstatus.Error(codes.PermissionDenied, "append denied")
}

// Read serves reads and subscriptions of one stream or of $all, in either direction and
// up to a count. A subscription sends the stored events, reports that it caught up, and
// then stays idle until the client cancels it.
func (a *deletingServer) Read(q *streamspb.ReadReq, to streamspb.Streams_ReadServer) error {
	o := q.GetOptions()
	name := "$all"
	if s := o.GetStream(); s != nil {
		name = string(s.StreamIdentifier.StreamName)
	}
	if a.denies != nil && a.denies(name) {
		return grpcstatus.Errorf(codes.PermissionDenied, "access to %s denied", name)
	}
	found, err := a.found(o, name, to)
	if err != nil {
		return err
	}
	if o.GetReadDirection() == streamspb.ReadReq_Options_Backwards {
		slices.Reverse(found)
	}
	if n := o.GetCount(); n > 0 && uint64(len(found)) > n {
		found = found[:n]
	}
	if o.GetSubscription() != nil {
		if err := to.Send(&streamspb.ReadResp{Content: &streamspb.ReadResp_Confirmation{Confirmation: &streamspb.ReadResp_SubscriptionConfirmation{SubscriptionId: "1"}}}); err != nil {
			return err
		}
	}
	for _, e := range found {
		if err := to.Send(&streamspb.ReadResp{Content: &streamspb.ReadResp_Event{Event: &streamspb.ReadResp_ReadEvent{Event: e}}}); err != nil {
			return err
		}
	}
	if o.GetSubscription() != nil {
		if err := to.Send(&streamspb.ReadResp{Content: &streamspb.ReadResp_CaughtUp_{CaughtUp: &streamspb.ReadResp_CaughtUp{}}}); err != nil {
			return err
		}
		<-to.Context().Done()
	}
	return nil
}

// found returns the events that a request selects, oldest first. For a tombstoned
// stream it returns the error that EventStoreDB returns; for a missing stream it sends
// StreamNotFound itself and returns no events.
func (a *deletingServer) found(o *streamspb.ReadReq_Options, name string, to streamspb.Streams_ReadServer) (found []*streamspb.ReadResp_ReadEvent_RecordedEvent, err error) {
	a.mu.Lock()
	all := a.all
	a.mu.Unlock()
	for _, e := range all {
		switch {
		case name == streamOf(e) && e.Metadata["type"] == "$streamDeleted":
			to.SetTrailer(metadata.Pairs("exception", "stream-deleted", "stream-name", name))
			return nil, grpcstatus.Error(codes.FailedPrecondition, "deleted")
		case name == "$all" && matchesFilter(o.GetFilter(), e), name == streamOf(e):
			found = append(found, e)
		}
	}
	expired := false
	if name != "$all" && len(found) > 0 {
		found, expired = visibleEvents(all, name, found)
	}
	if name != "$all" && len(found) == 0 && !expired { // a stream whose records have all expired exists and is empty
		return nil, to.Send(&streamspb.ReadResp{Content: &streamspb.ReadResp_StreamNotFound_{StreamNotFound: &streamspb.ReadResp_StreamNotFound{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(name)}}}})
	}
	return found, nil
}

// visibleEvents returns the events of a stream that its metadata leaves visible. It treats
// every event as older than any $maxAge, and reports in expired whether the metadata
// sets one.
func visibleEvents(all []*streamspb.ReadResp_ReadEvent_RecordedEvent, name string, found []*streamspb.ReadResp_ReadEvent_RecordedEvent) (shown []*streamspb.ReadResp_ReadEvent_RecordedEvent, expired bool) {
	var m struct {
		Before   uint64 `json:"$tb"`
		MaxCount int    `json:"$maxCount"`
		MaxAge   int    `json:"$maxAge"`
	}
	for _, e := range all {
		if streamOf(e) == "$$"+name {
			m.Before, m.MaxCount, m.MaxAge = 0, 0, 0
			_ = json.Unmarshal(e.Data, &m) // the test wrote valid JSON
		}
	}
	if m.MaxCount > 0 && len(found) > m.MaxCount {
		found = found[len(found)-m.MaxCount:]
	}
	return slices.DeleteFunc(found, func(e *streamspb.ReadResp_ReadEvent_RecordedEvent) bool {
		return e.StreamRevision < m.Before || m.MaxAge > 0
	}), m.MaxAge > 0
}

// matchesFilter reports whether a filter admits an event. A nil filter admits every event;
// otherwise a prefix or the regular expression must match the stream name or the event
// type.
func matchesFilter(f *streamspb.ReadReq_Options_FilterOptions, e *streamspb.ReadResp_ReadEvent_RecordedEvent) bool {
	if f == nil {
		return true
	}
	x, text := f.GetStreamIdentifier(), streamOf(e)
	if x == nil {
		x, text = f.GetEventType(), e.Metadata["type"]
	}
	for _, p := range x.GetPrefix() {
		if strings.HasPrefix(text, p) {
			return true
		}
	}
	return len(x.GetPrefix()) == 0 && regexp.MustCompile(x.GetRegex()).MatchString(text)
}

// A command whose user lacks the right to read $all fails before it sends an append,
// and the doctor prints the event that grants the right.
func TestWhoMayNotReadAllIsToldBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	a := &deletingServer{denies: func(stream string) bool { return stream == "$all" }}
	url := a.serve(t)
	node := []string{"LEDGER_NODE=" + t.TempDir(), "LEDGER_PATIENCE=1s"}
	for _, args := range [][]string{{"recover"}, {"call", "ls"}, {"verify"}, {"store", "copy", newSeededStore(t)}} {
		if args[0] == "store" {
			args = append(args, url)
		} else {
			args = append(args, "--store", url)
		}
		got := ledgerWithEnv(t, node, args...)
		if got.exit != fault.ExitFailed || !strings.Contains(string(got.err), "user lacks a right that the ledger needs: it may not read $all") || !strings.Contains(string(got.err), "ledger doctor") {
			t.Errorf("ledger %v = %d %s, want that the right is missing", args, got.exit, got.err)
		}
	}
	if n := a.appends.Load(); n > 0 {
		t.Errorf("%d appends were sent before the right was found missing", n)
	}
	e, got := runDoctor(t, url)
	if got.exit != fault.ExitFailed {
		t.Errorf("doctor = %d %s", got.exit, got.err)
	}
	for _, missing := range checksNamed(e, "rights") {
		switch {
		case missing.OK:
			if missing.Detail != "the user may read the ledger's streams" {
				t.Errorf("rights = %s", missing.Detail)
			}
		case !strings.Contains(*missing.Advice, `"$systemStreamAcl":{"$r":["$admins","ledger"]`), !strings.Contains(*missing.Advice, "$settings"), !strings.Contains(*missing.Advice, "update-default-acl"):
			t.Errorf("advice = %s, want the event that gives the right", *missing.Advice)
		}
	}
	if n := len(checksNamed(e, "rights")); n != 3 { // one passed check, and two failed ones: $all and append
		t.Errorf("%d lines about rights, want 3", n)
	}
}

// verify reports every way in which an administrator can hide or delete the records of
// a ledger stream, before the scavenge and after it. Before the scavenge it names the
// event that caused it and how to undo it.
func TestVerifySeesWhatAnAdministratorDid(t *testing.T) {
	t.Parallel()
	entries := readEntries(t, newSeededStore(t))
	longest, lengths := "", map[string]uint64{}
	for _, e := range entries {
		if lengths[string(e.Stream)]++; lengths[string(e.Stream)] > lengths[longest] {
			longest = string(e.Stream)
		}
	}
	n := lengths[longest]
	if n < 5 {
		t.Fatalf("%s has %d records, too few for this test", longest, n)
	}
	through := func(last uint64) func(string, uint64) bool {
		return func(stream string, revision uint64) bool { return stream == longest && revision <= last }
	}
	hides := func(last uint64) string {
		return fmt.Sprintf("revisions 1 to %d are hidden from readers of the stream", last)
	}
	gone := func(last uint64) string { return fmt.Sprintf("revisions 1 to %d are gone: only a backup", last) }
	undo := "write metadata without $tb, $maxCount and $maxAge to the stream, in $$" + longest
	for name, c := range map[string]struct {
		metadata      []string // written to the stream, in order; "" writes a tombstone
		before, after []string // texts that verify must print before and after the scavenge
		goes          func(string, uint64) bool
	}{
		"$maxCount":                 {[]string{`{"$maxCount":2}`}, []string{`the metadata was set to {"$maxCount":2} at 2026-03-01T12:00:00Z (event 0190a1b2-`, hides(n - 2), undo}, []string{gone(n - 2), "no record that is left is hidden by now"}, through(n - 2)},
		"$tb":                       {[]string{`{"$tb":3}`}, []string{hides(3), undo}, []string{gone(3)}, through(3)},
		"$maxAge":                   {[]string{`{"$maxAge":60}`}, []string{hides(n), undo}, []string{"its records are gone, if it had any"}, through(n)},
		"deleted":                   {[]string{`{"$tb":9223372036854775807}`}, []string{hides(n), undo}, []string{gone(n - 1), fmt.Sprintf("revision %d is hidden", n)}, through(n - 1)},
		"tombstone":                 {[]string{""}, []string{"the stream was deleted permanently, by a tombstone, at 2026", hides(n), "a tombstone cannot be removed", "ledger store copy"}, []string{"its records are gone, if it had any"}, func(s string, r uint64) bool { return s == longest && r <= n }},
		"taken back":                {[]string{`{"$tb":3}`, `{}`}, nil, []string{gone(3), "that was taken back since"}, through(3)},
		"access":                    {[]string{`{"$acl":{"$r":"ops"}}`}, nil, nil, func(string, uint64) bool { return false }},
		"a cause that is not known": {nil, nil, []string{"revisions 1 to 2 are missing before it"}, through(2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &deletingServer{}
			a.fill(t, entries)
			for _, m := range c.metadata {
				a.setMetadata(longest, m)
			}
			url := a.serve(t)
			node := []string{"LEDGER_NODE=" + t.TempDir()}
			check := func(when string, says []string) {
				ran := ledgerWithEnv(t, node, "verify", "--outputs=false", "--store", url, "-o", "json")
				if len(ran.out) == 0 {
					t.Fatalf("%s the scavenge verify = %d %s", when, ran.exit, ran.err)
				}
				got := decodeJSON[verify.Report](t, ran.out)
				var details []string
				for _, e := range got.Exceptions {
					if e.Law == verify.RecordsKept || e.Law == verify.StreamInOrder {
						details = append(details, e.Detail)
					}
				}
				all := strings.Join(details, "\n")
				for _, text := range says {
					if !strings.Contains(all, text) {
						t.Errorf("%s the scavenge verify says %q, want it to say %q", when, all, text)
					}
				}
				if len(details) > 1 || len(details) == 0 != (len(says) == 0) {
					t.Errorf("%s the scavenge verify says %d things: %s", when, len(details), all)
				}
				if strings.Contains(all, "9223372036854775808") || strings.Contains(all, "the one before it") {
					t.Errorf("%s the scavenge verify says %s", when, all)
				}
			}
			check("before", c.before)
			show := ledgerWithEnv(t, node, "session", "show", strings.TrimPrefix(longest, "session-"), "--store", url)
			if text := string(show.err); len(c.before) > 0 && (show.exit != fault.ExitFailed || !strings.Contains(text, "stream was deleted or truncated on the server") || !strings.Contains(text, "ledger verify") || strings.Contains(text, "92233720368547758")) {
				t.Errorf("session show = %d %s, want that the stream was cut short, and to verify", show.exit, text)
			}
			if e, _ := runDoctor(t, url); len(c.before) > 0 {
				if sick := failedCheck(t, e, "records"); !strings.Contains(sick.Detail, longest) || sick.Advice == nil || !strings.Contains(*sick.Advice, "do not scavenge") {
					t.Errorf("the doctor says %+v", sick)
				}
			}
			a.scavenge(c.goes)
			check("after", c.after)
		})
	}
}
