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

// maxName is the maximal length of a stream or group name, in bytes.
const maxName = 1 << 10

// emptyMessage is the protocol's message without fields. It is never changed.
var emptyMessage = &shared.Empty{}

// The keys of the system metadata of an event on the wire. EventStoreDB defines
// them.
const (
	keyType        = "type"
	keyContentType = "content-type"
	keyCreated     = "created"
)

// A uuidFormat encodes a UUID in one of the two forms that a client may request:
// structuredUUID or textUUID.
type uuidFormat func([16]byte) *shared.UUID

// structuredUUID encodes a UUID as two 64-bit integers, the most significant
// first.
func structuredUUID(id [16]byte) *shared.UUID {
	return &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits:  int64(binary.BigEndian.Uint64(id[:8])),
		LeastSignificantBits: int64(binary.BigEndian.Uint64(id[8:])),
	}}}
}

// textUUID encodes a UUID as its canonical text.
func textUUID(id [16]byte) *shared.UUID {
	return &shared.UUID{Value: &shared.UUID_String_{String_: uuidText(id)}}
}

// uuidText returns the canonical text of a UUID, in lower case.
func uuidText(id [16]byte) string {
	text := hex.EncodeToString(id[:])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// parseUUID decodes a UUID in either form. It accepts text with or without
// hyphens, in upper or lower case. It returns INVALID_ARGUMENT for other text and
// for a missing UUID.
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
		return id, status.Error(codes.InvalidArgument, "read ID: an ID is required")
	}
	return id, nil
}

// parseStream returns the stream name of a request. It returns INVALID_ARGUMENT
// for a name that is empty, longer than maxName, not UTF-8 or has a zero byte,
// and for $all, which clients address by another field.
func parseStream(id *shared.StreamIdentifier) (events.Stream, error) {
	name := string(id.GetStreamName())
	switch {
	case name == "":
		return "", status.Error(codes.InvalidArgument, "a stream name is required")
	case name == "$all":
		return "", status.Error(codes.InvalidArgument, "$all is not a stream: request all instead")
	case len(name) > maxName:
		return "", status.Errorf(codes.InvalidArgument, "the name of the stream %q… has %d bytes, and the limit is %d", name[:16], len(name), maxName)
	case strings.IndexByte(name, 0) >= 0:
		return "", status.Errorf(codes.InvalidArgument, "the name of the stream %q has a zero byte", name)
	case !utf8.ValidString(name):
		return "", status.Errorf(codes.InvalidArgument, "the name of the stream %q is not UTF-8", name)
	}
	return events.Stream(name), nil
}

// parseRevision converts a revision on the wire, of the last entry of a stream,
// to the length of that stream, which is greater by 1. It returns
// INVALID_ARGUMENT for the largest number, which is no revision: reads use it
// for the end of a stream.
func parseRevision(revision uint64) (events.Revision, error) {
	if revision == math.MaxUint64 {
		return 0, status.Errorf(codes.InvalidArgument, "append: %d is not a revision", revision)
	}
	return events.Revision(revision) + 1, nil
}

// streamIdentifier encodes a stream name.
func streamIdentifier(s events.Stream) *shared.StreamIdentifier {
	return &shared.StreamIdentifier{StreamName: []byte(s)}
}

// The first and last second, since 1970, that fit into a 64-bit number of
// nanoseconds: 1677 and 2262. Clients convert ticks to such numbers, which would
// overflow beyond them.
var firstTick, lastTick = time.Unix(0, math.MinInt64).Unix(), time.Unix(0, math.MaxInt64).Unix()

// ticks returns a time in units of 100 ns since 1970, as clients parse the
// creation time of an event. A time that clients cannot represent becomes the
// nearest time that they can represent.
func ticks(t time.Time) int64 {
	seconds := min(max(t.Unix(), firstTick+1), lastTick-1)
	return seconds*1e7 + int64(t.Nanosecond()/100)
}

// fitsTicks reports whether ticks represents a time without clamping.
func fitsTicks(t time.Time) bool { return t.Unix() > firstTick && t.Unix() < lastTick }

// isLedgerStream reports whether a stream belongs to the ledger itself: the
// streams of processes, layers and sessions.
func isLedgerStream(s events.Stream) bool {
	switch s.Category() {
	case events.ProcessCategory, events.LayerCategory, events.SessionCategory:
		return true
	}
	return false
}

// rawEvent returns the event that the server sends for an entry. If another program
// appended the event, the server sends it as that program appended it, provided that this
// form maps back to the same record. Every other event, and every event of a ledger
// stream, has the version and the time of the record in its metadata, so that a copy of
// the event in another store maps to the same record. The error matches
// mapping.ErrUnmappable.
func rawEvent(e events.Entry) (mapping.RawEvent, error) {
	if fitsTicks(e.Time) && !isLedgerStream(e.Stream) {
		if plain, ok := mapping.ForeignEvent(e.Record); ok {
			return plain, nil
		}
	}
	return mapping.FromRecord(e.Record)
}

// recordedEvent encodes an entry as the protocol's event. It returns DATA_LOSS
// for a record that has no event.
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

// eventResponse returns the response of Streams.Read with one entry and no link.
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
