package server

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstoredb/mapping"
)

// maxName is how many bytes the name of a stream or of a group has at most.
const maxName = 1 << 10

// emptyMessage is the empty message of the protocol.
var emptyMessage = &shared.Empty{}

// The keys of an event's system metadata.
const (
	keyType        = "type"
	keyContentType = "content-type"
	keyCreated     = "created"
)

// An idForm is how a caller wants to be given IDs.
type uuidFormat func([16]byte) *shared.UUID

// structuredUUID returns an ID as two numbers.
func structuredUUID(id [16]byte) *shared.UUID {
	return &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits:  int64(binary.BigEndian.Uint64(id[:8])),
		LeastSignificantBits: int64(binary.BigEndian.Uint64(id[8:])),
	}}}
}

// textUUID returns an ID as text.
func textUUID(id [16]byte) *shared.UUID {
	return &shared.UUID{Value: &shared.UUID_String_{String_: uuidText(id)}}
}

func uuidText(id [16]byte) string {
	text := hex.EncodeToString(id[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// idOf reads an ID in either form.
func parseUUID(u *shared.UUID) (id [16]byte, err error) {
	switch v := u.GetValue().(type) {
	case *shared.UUID_Structured_:
		binary.BigEndian.PutUint64(id[:8], uint64(v.Structured.GetMostSignificantBits()))
		binary.BigEndian.PutUint64(id[8:], uint64(v.Structured.GetLeastSignificantBits()))
	case *shared.UUID_String_:
		text := strings.ReplaceAll(v.String_, "-", "")
		raw, err := hex.DecodeString(text)
		if err != nil || len(raw) != len(id) {
			return id, status.Errorf(codes.InvalidArgument, "read ID %q: it is not a UUID", v.String_)
		}
		copy(id[:], raw)
	default:
		return id, status.Error(codes.InvalidArgument, "read ID: there is none")
	}
	return id, nil
}

// streamOf reads the name of a stream.
func parseStream(id *shared.StreamIdentifier) (events.Stream, error) {
	name := string(id.GetStreamName())
	switch {
	case name == "":
		return "", status.Error(codes.InvalidArgument, "a stream is required, and none is named")
	case name == "$all":
		return "", status.Error(codes.InvalidArgument, "$all is no stream: ask for all")
	case len(name) > maxName:
		return "", status.Errorf(codes.InvalidArgument, "the name of the stream %q… has %d bytes, and the limit is %d", name[:16], len(name), maxName)
	case strings.IndexByte(name, 0) >= 0:
		return "", status.Errorf(codes.InvalidArgument, "the name of the stream %q has a zero byte", name)
	case !utf8.ValidString(name):
		return "", status.Errorf(codes.InvalidArgument, "the name of the stream %q is not UTF-8", name)
	}
	return events.Stream(name), nil
}

// lengthOf returns the length of a stream whose last entry has a revision, as
// the protocol counts. The largest number stands for the end and is none.
func parseRevision(revision uint64) (events.Revision, error) {
	if revision == math.MaxUint64 {
		return 0, status.Errorf(codes.InvalidArgument, "append: %d is no revision", revision)
	}
	return events.Revision(revision) + 1, nil
}

func streamIdentifier(s events.Stream) *shared.StreamIdentifier {
	return &shared.StreamIdentifier{StreamName: []byte(s)}
}

// The times that fit into nanoseconds, which clients make of ticks.
var firstTick, lastTick = time.Unix(0, math.MinInt64).Unix(), time.Unix(0, math.MaxInt64).Unix()

// ticks returns a time in units of 100 ns since 1970. A time that clients
// cannot hold is the nearest that they can.
func ticks(t time.Time) int64 {
	seconds := min(max(t.Unix(), firstTick+1), lastTick-1)
	return seconds*1e7 + int64(t.Nanosecond()/100)
}

// fitsTicks reports whether ticks tells the time.
func fitsTicks(t time.Time) bool { return t.Unix() > firstTick && t.Unix() < lastTick }

// isLedgerStream reports whether a stream is one of the ledger's own.
func isLedgerStream(s events.Stream) bool {
	switch s.Category() {
	case events.ProcessCategory, events.LayerCategory, events.SessionCategory:
		return true
	}
	return false
}

// rawEvent returns the form in which an entry is sent. What others wrote is sent
// as they wrote it, where that gives the same record again. In the ledger's own
// streams each record carries its version and time, so that a copy of them is
// one wherever it is kept.
func rawEvent(e events.Entry) (mapping.RawEvent, error) {
	if fitsTicks(e.Time) && !isLedgerStream(e.Stream) {
		if plain, ok := mapping.ForeignEvent(e.Record); ok {
			return plain, nil
		}
	}
	return mapping.FromRecord(e.Record)
}

// recordedEvent returns an entry as it is sent.
func recordedEvent(e events.Entry, ids uuidFormat) (*streams.ReadResp_ReadEvent_RecordedEvent, error) {
	f, err := rawEvent(e)
	if err != nil {
		return nil, status.Errorf(codes.DataLoss, "read revision %d of %s: %v", e.Revision-1, e.Stream, err)
	}
	commit, prepare := e.Position.Parts()
	return &streams.ReadResp_ReadEvent_RecordedEvent{
		Id:               ids(f.ID),
		StreamIdentifier: streamIdentifier(e.Stream),
		StreamRevision:   uint64(e.Revision) - 1,
		CommitPosition:   commit,
		PreparePosition:  prepare,
		Metadata: map[string]string{
			keyType:        f.Type,
			keyContentType: f.ContentType,
			keyCreated:     strconv.FormatInt(ticks(e.Time), 10),
		},
		CustomMetadata: f.Metadata,
		Data:           f.Data,
	}, nil
}

// eventResponse returns the message that tells of an entry.
func eventResponse(e events.Entry, ids uuidFormat) (*streams.ReadResp, error) {
	r, err := recordedEvent(e, ids)
	if err != nil {
		return nil, err
	}
	return &streams.ReadResp{Content: &streams.ReadResp_Event{Event: &streams.ReadResp_ReadEvent{
		Event:    r,
		Position: &streams.ReadResp_ReadEvent_CommitPosition{CommitPosition: r.CommitPosition},
	}}}, nil
}
