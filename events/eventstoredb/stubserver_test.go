package eventstoredb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A stubServer is a server whose responses the test sets.
type stubServer struct {
	serverfeatures.UnimplementedServerFeaturesServer
	streams.UnimplementedStreamsServer
	version   string
	conflicts bool // reports for every append that the stream has another length
	onAppend  func(streams.Streams_AppendServer) error
	onRead    func(*streams.ReadReq_Options, streams.Streams_ReadServer) error
	date      func() time.Time // of the Date header; nil: no header
}

func (s *stubServer) GetSupportedMethods(ctx context.Context, _ *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	if s.date != nil {
		if err := grpc.SetHeader(ctx, metadata.Pairs("date", s.date().UTC().Format(http.TimeFormat))); err != nil {
			return nil, err
		}
	}
	if s.version == "" {
		return nil, status.Error(codes.Unimplemented, "unknown service")
	}
	return &serverfeatures.SupportedMethods{EventStoreServerVersion: s.version}, nil
}

func (s *stubServer) Read(q *streams.ReadReq, to streams.Streams_ReadServer) error {
	if s.onRead == nil {
		return nil
	}
	return s.onRead(q.GetOptions(), to)
}

// Append responds as a server does that already has the IDs of the records at their
// revisions.
func (s *stubServer) Append(from streams.Streams_AppendServer) error {
	if s.onAppend != nil {
		return s.onAppend(from)
	}
	for n := 0; ; n++ {
		if _, err := from.Recv(); errors.Is(err, io.EOF) && s.conflicts {
			return from.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: &streams.AppendResp_WrongExpectedVersion{}}})
		} else if errors.Is(err, io.EOF) {
			return from.SendAndClose(&streams.AppendResp{Result: &streams.AppendResp_Success_{Success: &streams.AppendResp_Success{
				CurrentRevisionOption: &streams.AppendResp_Success_CurrentRevision{CurrentRevision: uint64(n - 2)},
				PositionOption:        &streams.AppendResp_Success_Position{Position: &streams.AppendResp_Position{CommitPosition: 10, PreparePosition: 10}},
			}}})
		} else if err != nil {
			return err
		}
	}
}

// serve serves until the test ends, and returns a connection string.
func (s *stubServer) serve(t testing.TB) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	serverfeatures.RegisterServerFeaturesServer(server, s)
	streams.RegisterStreamsServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(at) }) // it ends when it is stopped
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return "esdb://" + at.Addr().String() + "?tls=false"
}

func (s *stubServer) open(t testing.TB) *eventstoredb.Store {
	t.Helper()
	s.version = "24.10.5"
	store, err := eventstoredb.Open(t.Context(), s.serve(t), eventstoredb.Config{RetryTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// recordedEvent is an event as a server sends it.
func recordedEvent(stream, kind, metadata string, revision, position uint64) *streams.ReadResp {
	return &streams.ReadResp{Content: &streams.ReadResp_Event{Event: &streams.ReadResp_ReadEvent{
		Event: &streams.ReadResp_ReadEvent_RecordedEvent{
			Id:               &shared.UUID{Value: &shared.UUID_String_{String_: "0190a1b2-0000-7000-8000-000000000001"}},
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(stream)},
			StreamRevision:   revision, CommitPosition: position, PreparePosition: position,
			Metadata:       map[string]string{"type": kind, "content-type": "application/json", "created": "17000000000000000"},
			CustomMetadata: []byte(metadata), Data: []byte(`{"a":1}`),
		},
	}}}
}

var (
	confirmation = &streams.ReadResp{Content: &streams.ReadResp_Confirmation{Confirmation: &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: "1"}}}
	caughtUp     = &streams.ReadResp{Content: &streams.ReadResp_CaughtUp_{CaughtUp: &streams.ReadResp_CaughtUp{}}}
	notFound     = &streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("x")}}}}
)

// respondWith responds to a read of $all with all events, to a read of a stream with
// the events of that stream, and to a backward read with the last of these.
func respondWith(all ...*streams.ReadResp) func(*streams.ReadReq_Options, streams.Streams_ReadServer) error {
	return func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		answer := all
		if stream := q.GetStream(); stream != nil {
			answer = nil
			for _, e := range all {
				if string(e.GetEvent().GetEvent().GetStreamIdentifier().GetStreamName()) == string(stream.GetStreamIdentifier().GetStreamName()) {
					answer = append(answer, e)
				}
			}
			if answer == nil {
				answer = []*streams.ReadResp{notFound}
			}
		}
		if q.GetSubscription() != nil {
			answer = append([]*streams.ReadResp{confirmation}, answer...)
			answer = append(answer, caughtUp)
		}
		if q.GetReadDirection() == streams.ReadReq_Options_Backwards && len(answer) > 0 {
			answer = answer[len(answer)-1:]
		}
		for _, m := range answer {
			if err := to.Send(m); err != nil {
				return err
			}
		}
		if q.GetSubscription() != nil {
			<-to.Context().Done()
		}
		return nil
	}
}

// Open returns ErrTooOld or ErrPreRelease for a server version that cannot keep the
// promises of a store.
func TestVersionsThatCannotKeepThePromisesAreRefused(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]error{
		"":            eventstoredb.ErrTooOld,
		"5.0.11":      eventstoredb.ErrTooOld,
		"22.10.5":     eventstoredb.ErrTooOld,
		"23.10.7":     eventstoredb.ErrTooOld,
		"23.10.8":     nil,
		"24.2.9":      eventstoredb.ErrTooOld,
		"24.10.4":     eventstoredb.ErrTooOld,
		"24.10.5":     nil,
		"25.0.0":      eventstoredb.ErrTooOld,
		"25.0.1":      nil,
		"25.1.0":      nil,
		"26.0.0":      nil,
		"26.1.0-rc.1": eventstoredb.ErrPreRelease,
	} {
		s, err := eventstoredb.Open(t.Context(), (&stubServer{version: version}).serve(t), eventstoredb.Config{})
		if !errors.Is(err, want) {
			t.Errorf("Open of version %q = %v, want %v", version, err, want)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// Events that other programs wrote are yielded with their data unchanged.
func TestEventsOfOthersPassThrough(t *testing.T) {
	t.Parallel()
	s := (&stubServer{onRead: respondWith(
		recordedEvent("$stats-0", "$statsCollected", "", 0, 5),
		recordedEvent("session-1", "Unheard", `{"who":"they"}`, 0, 10),
	)}).open(t)
	for what, loop := range map[string]func(func(events.Entry, error) bool){
		"Read": s.Read(t.Context(), "session-1", 0), "ReadAll": s.ReadAll(t.Context(), events.Position{}),
	} {
		entries, err := collect(loop)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%s yields %d entries and %v, want 1", what, len(entries), err)
		}
		if e := entries[0]; e.Kind != "Unheard" || e.Version != 1 || string(e.Metadata) != `{"who":"they"}` || e.Time != time.Unix(0, 17000000000000000*100).UTC() || e.Position != events.NewPosition(10, 10) {
			t.Errorf("%s yields %+v, want it as it was written", what, e)
		}
	}
}

// A damaged record ends a loop with an events.DamagedRecord that has its position.
func TestRecordThatIsDamagedNamesItsPosition(t *testing.T) {
	t.Parallel()
	s := (&stubServer{onRead: respondWith(
		recordedEvent("session-1", "PromptAdmitted", "", 0, 10),
		recordedEvent("session-1", "PromptAdmitted", `{"$ledger":{"v":"x"}}`, 1, 4711),
	)}).open(t)
	for what, loop := range map[string]func(func(events.Entry, error) bool){
		"Read": s.Read(t.Context(), "session-1", 0), "ReadAll": s.ReadAll(t.Context(), events.Position{}), "Follow": s.Follow(t.Context(), events.Position{}),
	} {
		entries, err := collect(loop)
		if len(entries) != 1 || !errors.Is(err, events.ErrDamaged) || !strings.Contains(err.Error(), "entry 2 of session-1 at position 4711") {
			t.Errorf("%s yields %d entries and %v, want one, and ErrDamaged with the position", what, len(entries), err)
		}
		if d, ok := errors.AsType[*events.DamagedRecord](err); !ok || d.Position.String() != "4711" {
			t.Errorf("%s ends with %v, want a Damage at 4711", what, err)
		}
	}
}

// A stream that was deleted or truncated ends a loop with ErrDeleted, and is not
// yielded as empty.
func TestStreamThatSomebodyDeletedIsNotEmpty(t *testing.T) {
	t.Parallel()
	tombstoned := func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetStream() == nil {
			return nil
		}
		to.SetTrailer(metadata.Pairs("exception", "stream-deleted", "stream-name", "session-1"))
		return status.Error(codes.FailedPrecondition, "deleted")
	}
	hidden := recordedEvent("$$session-1", "$metadata", "", 0, 20)
	hidden.GetEvent().GetEvent().Data = []byte(`{"$tb":9223372036854775807}`)
	// Records older than $maxAge exist, and the server does not send them.
	expired := func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetStream() != nil && string(q.GetStream().GetStreamIdentifier().GetStreamName()) != "session-1" {
			return to.Send(notFound)
		}
		return nil
	}
	for name, read := range map[string]func(*streams.ReadReq_Options, streams.Streams_ReadServer) error{
		"tombstone": tombstoned,
		"soft":      respondWith(hidden),
		"cut short": respondWith(recordedEvent("session-1", "Kind", "", 7, 10)),
		"expired":   expired,
		"a gap":     respondWith(recordedEvent("session-1", "Kind", "", 0, 10), recordedEvent("session-1", "Kind", "", 2, 12)),
	} {
		s := (&stubServer{onRead: read}).open(t)
		for what, loop := range map[string]func(func(events.Entry, error) bool){
			"Read": s.Read(t.Context(), "session-1", 0), "Scan": s.Scan(t.Context(), events.Query{Stream: "session-1"}),
		} {
			_, err := collect(loop)
			if !errors.Is(err, eventstoredb.ErrDeleted) || !errors.Is(err, events.ErrDamaged) {
				t.Errorf("%s: %s = %v, want ErrDeleted, which is ErrDamaged", name, what, err)
			}
		}
		if name == "a gap" {
			continue // the stub sends one event backward
		}
		if _, err := collect(s.Scan(t.Context(), events.Query{Stream: "session-1", Backward: true})); !errors.Is(err, eventstoredb.ErrDeleted) {
			t.Errorf("%s: Scan backward = %v, want ErrDeleted", name, err)
		}
	}
}

// A user without the right to read $all can read and append to single streams.
func TestDatabaseThatRefusesAllStreamsGivesSingleOnes(t *testing.T) {
	t.Parallel()
	one := respondWith(recordedEvent("session-1", "Kind", "", 0, 10))
	at := &stubServer{onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetAll() != nil {
			return status.Error(codes.PermissionDenied, "access to $all denied")
		}
		return one(q, to)
	}}
	s := at.open(t)
	entries, err := collect(s.Read(t.Context(), "session-1", 0))
	if err != nil || len(entries) != 1 {
		t.Fatalf("Read yields %d entries and %v, want 1", len(entries), err)
	}
	// Such a store reads the stream after each append to find out whether the append
	// was new.
	other := changed(entries[0].Record, func(r *events.Record) { r.Data = []byte("2") })
	if err := at.open(t).Append(t.Context(), "session-1", 0, other); !errors.Is(err, events.ErrConflict) {
		t.Errorf("Append of other data = %v, want a Conflict", err)
	}
	if err := at.open(t).Append(t.Context(), "session-1", 0, entries[0].Record); err != nil {
		t.Errorf("Append of what is there = %v", err)
	}
	for what, loop := range map[string]func(func(events.Entry, error) bool){
		"ReadAll": s.ReadAll(t.Context(), events.Position{}), "Follow": s.Follow(t.Context(), events.Position{}), "Backward": s.Scan(t.Context(), events.Query{Backward: true}),
	} {
		if _, err := collect(loop); !errors.Is(err, eventstoredb.ErrRefused) || !strings.Contains(err.Error(), "access to $all denied") {
			t.Errorf("%s = %v, want ErrRefused", what, err)
		}
	}
}

// A panic of the client becomes an ErrBroken.
func TestPanicOfTheClientIsAnError(t *testing.T) {
	t.Parallel()
	s := (&stubServer{onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetAll() != nil {
			return nil
		}
		return to.Send(&streams.ReadResp{Content: &streams.ReadResp_LastStreamPosition{LastStreamPosition: 3}})
	}}).open(t)
	if _, err := collect(s.Read(t.Context(), "session-1", 0)); !errors.Is(err, eventstoredb.ErrBroken) {
		t.Errorf("Read = %v, want ErrBroken", err)
	}
	nameless := recordedEvent("session-1", "Kind", "", 0, 10)
	nameless.GetEvent().GetEvent().StreamIdentifier = nil
	broken := &stubServer{version: "24.10.5", onRead: respondWith(nameless)}
	if _, err := eventstoredb.Open(t.Context(), broken.serve(t), eventstoredb.Config{}); !errors.Is(err, eventstoredb.ErrBroken) {
		t.Errorf("Open = %v, want ErrBroken", err)
	}
}

// Events that a server sends again, because it lost its place, are yielded once, and
// a repeated CaughtUp is reported once.
func TestRepeatedEventsAreYieldedOnce(t *testing.T) {
	t.Parallel()
	one, two := recordedEvent("session-1", "Kind", "", 0, 10), recordedEvent("session-1", "Kind", "", 1, 12)
	s := (&stubServer{onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetSubscription() == nil {
			return respondWith(one, two)(q, to)
		}
		for _, m := range []*streams.ReadResp{confirmation, one, caughtUp, one, two, caughtUp, one, two, caughtUp, caughtUp} {
			if err := to.Send(m); err != nil {
				return err
			}
		}
		<-to.Context().Done()
		return nil
	}}).open(t)
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	entries, _ := collect(s.Follow(ctx, events.Position{}, events.Following{CaughtUp: func(p events.Position) {
		if told++; p != events.NewPosition(12, 12) {
			t.Errorf("CaughtUp(%s), want 12", p)
		}
		cancel()
	}}))
	if len(entries) != 2 || told != 1 {
		t.Errorf("Follow yields %d entries and catches up %d times, want 2 and once", len(entries), told)
	}
}

// If a server reports success for records whose IDs it already had, the store
// compares the stored records in all fields.
func TestRepeatedAppendIsComparedWithStoredRecords(t *testing.T) {
	t.Parallel()
	s := (&stubServer{onRead: respondWith(recordedEvent("session-1", "Kind", "", 0, 10))}).open(t)
	entries, err := collect(s.Read(t.Context(), "session-1", 0))
	if err != nil || len(entries) != 1 {
		t.Fatalf("Read yields %d entries and %v, want 1", len(entries), err)
	}
	if err := s.Append(t.Context(), "session-1", 0, entries[0].Record); err != nil {
		t.Errorf("Append of what is there = %v, want nil", err)
	}
	other := entries[0].Record
	other.Data = []byte(`{"a":2}`)
	if err := s.Append(t.Context(), "session-1", 0, other); !errors.Is(err, events.ErrConflict) {
		t.Errorf("Append of other data = %v, want a Conflict", err)
	}
}

// Positions keep their commit and their prepare part in both directions.
func TestPositionsKeepBothTheirParts(t *testing.T) {
	t.Parallel()
	split := func(stream, kind string, revision, commit, prepare uint64) *streams.ReadResp {
		e := recordedEvent(stream, kind, "", revision, commit)
		e.GetEvent().GetEvent().PreparePosition = prepare
		return e
	}
	one, two := split("session-1", "Kind", 0, 20, 12), split("session-1", "Kind", 1, 20, 15)
	passed := &streams.ReadResp{Content: &streams.ReadResp_Checkpoint_{Checkpoint: &streams.ReadResp_Checkpoint{CommitPosition: 40, PreparePosition: 33}}}
	var mu sync.Mutex
	var asked []string
	ended := 0
	s := (&stubServer{onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetSubscription() == nil {
			if at := q.GetAll().GetPosition(); at != nil {
				mu.Lock()
				asked = append(asked, fmt.Sprintf("back from %d/%d", at.GetCommitPosition(), at.GetPreparePosition()))
				mu.Unlock()
				return respondWith()(q, to)
			}
			return respondWith(one, two)(q, to)
		}
		mu.Lock()
		asked = append(asked, fmt.Sprintf("%d/%d", q.GetAll().GetPosition().GetCommitPosition(), q.GetAll().GetPosition().GetPreparePosition()))
		ended++
		n := ended
		mu.Unlock()
		all := []*streams.ReadResp{confirmation, one}
		switch n {
		case 2:
			all = []*streams.ReadResp{confirmation, two}
		case 3:
			all = []*streams.ReadResp{confirmation, passed}
		case 4:
			all = []*streams.ReadResp{confirmation, split("session-1", "Kind", 2, 41, 34)}
		}
		for _, m := range all {
			if err := to.Send(m); err != nil {
				return err
			}
		}
		return status.Error(codes.Unavailable, "gone")
	}}).open(t)
	var got []string
	for e, err := range s.Follow(t.Context(), events.NewPosition(9, 7)) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Position.String()); len(got) == 3 {
			break
		}
	}
	if text := strings.Join(got, " "); text != "20/12 20/15 41/34" {
		t.Errorf("Follow yields entries at %s", text)
	}
	if text := strings.Join(asked, " "); text != "9/7 20/12 20/15 40/33" {
		t.Errorf("the server was asked for what stands behind %s", text)
	}
	asked = nil
	if _, err := collect(s.Scan(t.Context(), events.Query{Backward: true, After: events.NewPosition(20, 15)})); err != nil {
		t.Error(err)
	}
	if text := strings.Join(asked, " "); text != "back from 20/15" {
		t.Errorf("the server was asked %s", text)
	}
}

// Events that other programs wrote into the streams of the ledger are yielded
// unchanged: links, types and names of any form. A tombstone, which the server
// writes, is not.
func TestEventsOfOtherWritersAreYielded(t *testing.T) {
	t.Parallel()
	dangling := &streams.ReadResp{Content: &streams.ReadResp_Event{Event: &streams.ReadResp_ReadEvent{Link: recordedEvent("links", "$>", "", 0, 9).GetEvent().GetEvent()}}}
	s := (&stubServer{onRead: respondWith(
		dangling,
		recordedEvent("links", "$>", `{"$v":"1:-1:1:4"}`, 0, 10),
		recordedEvent("session-2", "$streamDeleted", "", 0, 11), // a foreign event of that type, and no tombstone
		recordedEvent("SESSION", " Kind\n", "\x00", 0, 12),
		recordedEvent("session-", "Ω", "[]", 0, 13),
		recordedEvent("session-1", "$streamDeleted", "", 1<<63-1, 14),
	)}).open(t)
	entries, err := collect(s.ReadAll(t.Context(), events.Position{}))
	if err != nil || len(entries) != 4 {
		t.Fatalf("ReadAll yields %d entries and %v, want 4", len(entries), err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, fmt.Sprintf("%s %d %q %q", e.Stream, e.Revision, e.Kind, e.Metadata))
	}
	want := `links 1 "$>" "{\"$v\":\"1:-1:1:4\"}", session-2 1 "$streamDeleted" "", SESSION 1 " Kind\n" "\x00", session- 1 "Ω" "[]"`
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("ReadAll yields %s, want %s", text, want)
	}
}

// If a server reports another length for a stream that has the appended records,
// Append reads the stream and succeeds.
func TestFalseConflictIsResolvedByReading(t *testing.T) {
	t.Parallel()
	at := &stubServer{conflicts: true, onRead: respondWith(recordedEvent("session-1", "Kind", "", 0, 10), recordedEvent("session-1", "Kind", "", 1, 11))}
	s := at.open(t)
	entries, err := collect(s.Read(t.Context(), "session-1", 0))
	if err != nil || len(entries) != 2 {
		t.Fatalf("Read yields %d entries and %v, want 2", len(entries), err)
	}
	one, two := entries[0].Record, entries[1].Record
	for name, of := range map[string]struct {
		records []events.Record
		want    error
	}{
		"what is there":              {[]events.Record{one, two}, nil},
		"the beginning of it":        {[]events.Record{one}, nil},
		"more than is there":         {[]events.Record{one, two, two}, events.ErrConflict},
		"other data":                 {[]events.Record{one, changed(two, func(r *events.Record) { r.Data = []byte("2") })}, events.ErrConflict},
		"other metadata":             {[]events.Record{changed(one, func(r *events.Record) { r.Metadata = []byte("2") })}, events.ErrConflict},
		"another kind":               {[]events.Record{changed(one, func(r *events.Record) { r.Kind = "Other" })}, events.ErrConflict},
		"another version":            {[]events.Record{changed(one, func(r *events.Record) { r.Version++ })}, events.ErrConflict},
		"another time":               {[]events.Record{changed(one, func(r *events.Record) { r.Time = r.Time.Add(time.Hour) })}, events.ErrConflict},
		"the same with another name": {[]events.Record{changed(one, func(r *events.Record) { r.ID = newMint().Event() })}, events.ErrConflict},
	} {
		if err := s.Append(t.Context(), "session-1", 0, of.records...); !errors.Is(err, of.want) {
			t.Errorf("Append of %s = %v, want %v", name, err, of.want)
		}
	}
}

func changed(r events.Record, by func(*events.Record)) events.Record { by(&r); return r }

// A read that makes progress between failures may take longer than the retry timeout.
func TestReadWithProgressOutlastsTheRetryTimeout(t *testing.T) {
	t.Parallel()
	const length = 40
	s := (&stubServer{onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		at := q.GetStream().GetRevision()
		if q.GetStream() == nil || at == length {
			return nil
		}
		if err := to.Send(recordedEvent("session-1", "Kind", "", at, 10+at)); err != nil {
			return err
		}
		return status.Error(codes.Internal, "that was it")
	}}).open(t)
	if entries, err := collect(s.Read(t.Context(), "session-1", 0)); err != nil || len(entries) != length {
		t.Errorf("Read yields %d entries and %v, want %d", len(entries), err, length)
	}
	stuck := (&stubServer{onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetStream() == nil {
			return nil
		}
		return status.Error(codes.Internal, "nothing")
	}}).open(t)
	if _, err := collect(stuck.Read(t.Context(), "session-1", 0)); !errors.Is(err, eventstoredb.ErrUnreachable) {
		t.Errorf("Read of a server that never gets on = %v, want ErrUnreachable", err)
	}
}

// The caller may reuse the memory of its records when Append has returned, although
// the client may still send them.
func TestAppendCopiesTheRecords(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release, ended := make(chan struct{}), make(chan struct{})
	at := &stubServer{}
	at.onAppend = func(from streams.Streams_AppendServer) error {
		defer close(ended)
		cancel()
		<-release
		for {
			m, err := from.Recv()
			if err != nil {
				return err
			}
			if data := m.GetProposedMessage().GetData(); bytes.ContainsRune(data, 'y') {
				t.Error("the server was sent what was written after Append had returned")
				return status.Error(codes.Internal, "enough")
			}
		}
	}
	s := at.open(t)
	mint := newMint()
	records := make([]events.Record, 10)
	for i := range records {
		records[i] = record(mint, "Kind", i)
		records[i].Data = []byte(`"` + strings.Repeat("x", 60_000) + `"`)
	}
	if err := s.Append(ctx, "session-1", 0, records...); !errors.Is(err, context.Canceled) {
		t.Errorf("Append = %v, want the cause of its context", err)
	}
	for _, r := range records {
		for i := range r.Data {
			r.Data[i] = 'y'
		}
	}
	close(release)
	<-ended
}

// A subscription that the server ends is resumed, and its end is not taken for the
// end of the log.
func TestEndedSubscriptionIsResumed(t *testing.T) {
	t.Parallel()
	one, two := recordedEvent("session-1", "Kind", "", 0, 10), recordedEvent("session-1", "Kind", "", 1, 12)
	s := (&stubServer{onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetSubscription() != nil && q.GetAll().GetPosition().GetCommitPosition() == 0 {
			if err := to.Send(confirmation); err != nil {
				return err
			}
			return to.Send(one)
		}
		if q.GetSubscription() != nil {
			return respondWith(two)(q, to)
		}
		return respondWith(one, two)(q, to)
	}}).open(t)
	if entries, err := collect(s.ReadAll(t.Context(), events.Position{})); err != nil || len(entries) != 2 {
		t.Errorf("ReadAll yields %d entries and %v, want 2", len(entries), err)
	}
	var got []events.Revision
	for e, err := range s.Follow(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, e.Revision); len(got) == 2 {
			break
		}
	}
	if fmt.Sprint(got) != "[1 2]" {
		t.Errorf("Follow yields entries %v, want 1 and 2", got)
	}
}

// The server receives the filter of a follower, and its checkpoints advance the
// follower.
func TestServerReceivesTheFilter(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	s := (&stubServer{onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetSubscription() != nil {
			f := q.GetFilter()
			mu.Lock()
			asked = append(asked, fmt.Sprintf("%s %q %s %q %d %d",
				f.GetStreamIdentifier().GetRegex(), f.GetStreamIdentifier().GetPrefix(), f.GetEventType().GetRegex(), f.GetEventType().GetPrefix(), f.GetMax(), f.GetCheckpointIntervalMultiplier()))
			mu.Unlock()
		}
		return respondWith(recordedEvent("session-1", "Kind", "", 0, 10))(q, to)
	}}).open(t)
	for _, f := range []events.Filter{{}, {Kinds: []string{"Kind", "K.2"}}, {Categories: []string{"session", "a.b"}}, {Prefixes: []string{"session-", "x"}}} {
		if _, err := collect(s.Scan(t.Context(), events.Query{Filter: f})); err != nil {
			t.Error(err)
		}
		for range s.Follow(t.Context(), events.Position{}, events.Following{Filter: f}) {
			break
		}
	}
	each := []string{
		`^[^$] []  [] 512 1`, ` [] ^(?:Kind|K\.2)$ [] 512 1`, `^(?:session|a\.b)(?:-|$) []  [] 512 1`, ` ["session-" "x"]  [] 512 1`,
	}
	for i, got := range asked {
		if want := each[i/2]; got != want {
			t.Errorf("the server was asked for %s, want %s", got, want)
		}
	}
	if len(asked) != 2*len(each) {
		t.Errorf("the server was asked %d times, want %d", len(asked), 2*len(each))
	}
}

// A follower yields a record that was appended after the server reported that the
// subscription caught up, before it calls CaughtUp.
func TestFollowerYieldsPendingEntriesBeforeItCatchesUp(t *testing.T) {
	t.Parallel()
	one, two := recordedEvent("session-1", "Kind", "", 0, 10), recordedEvent("session-1", "Kind", "", 1, 12)
	subscribed, looked := make(chan struct{}), make(chan struct{})
	look := sync.OnceFunc(func() { close(looked) })
	s := (&stubServer{onRead: func(q *streams.ReadReq_Options, to streams.Streams_ReadServer) error {
		if q.GetSubscription() == nil {
			select {
			case <-subscribed:
				look()
			default: // the store is opened
			}
			return respondWith(one, two)(q, to)
		}
		for _, m := range []*streams.ReadResp{confirmation, one, caughtUp} {
			if err := to.Send(m); err != nil {
				return err
			}
		}
		close(subscribed)
		select {
		case <-looked:
		case <-to.Context().Done():
		}
		if err := to.Send(two); err != nil {
			return err
		}
		<-to.Context().Done()
		return nil
	}}).open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	for e, err := range s.Follow(ctx, events.Position{}, events.Following{CaughtUp: func(p events.Position) {
		got = append(got, "caught up at "+p.String())
		cancel()
	}}) {
		if err != nil {
			break
		}
		got = append(got, e.Position.String())
	}
	if text := strings.Join(got, ", "); text != "10, 12, caught up at 12" {
		t.Errorf("the follower was given %s", text)
	}
}

// An append that the server ends each time before all records were sent returns
// ErrRefused, since the client hides the reason.
func TestAppendThatTheServerAlwaysEndsIsRefused(t *testing.T) {
	t.Parallel()
	s := (&stubServer{onAppend: func(streams.Streams_AppendServer) error { return status.Error(codes.Aborted, "no") }}).open(t)
	mint := newMint()
	records := make([]events.Record, 20) // more than the client sends before the server reads
	for i := range records {
		records[i] = record(mint, "Kind", i)
		records[i].Data = []byte(`"` + strings.Repeat("x", 50_000) + `"`)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Append(ctx, "session-1", 0, records...); !errors.Is(err, eventstoredb.ErrRefused) {
		t.Errorf("Append = %v, want ErrRefused", err)
	}
}
