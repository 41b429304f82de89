package publish

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// The keys of a message's metadata. Session, agent and tool are there where the
// record has one, and the metadata document where it is not empty.
const (
	KeyStream   = "stream"
	KeyRevision = "revision"
	KeyPosition = "position"
	KeyKind     = "kind"
	KeyVersion  = "version"
	KeyTime     = "time" // RFC 3339, UTC, to the microsecond
	KeySession  = "session"
	KeyAgent    = "agent"
	KeyTool     = "tool"
	KeyMetadata = "metadata" // the record's metadata document, as written
)

// attributes are the values of a record that filters and topics use. They are
// decoded from its bytes, whatever its kind, so that unknown kinds are
// published like others.
type attributes struct {
	stream  events.Stream
	kind    string
	session string // whose stream it is in, or that it belongs to
	agent   string // of that session
	tool    string // the member tool of its data
}

// attributesOf returns the attributes of a record, without its agent. Members
// of an unexpected type are empty.
func attributesOf(e events.Entry) attributes {
	p := attributes{stream: e.Stream, kind: e.Kind}
	var data struct {
		Tool json.RawMessage `json:"tool"`
	}
	if json.Unmarshal(e.Data, &data) == nil {
		_ = json.Unmarshal(data.Tool, &p.tool) // of another type it is no tool
	}
	if id, ok := e.Stream.Session(); ok {
		p.session = id.String()
		return p
	}
	var metadata struct {
		Session json.RawMessage `json:"$correlationId"`
	}
	if len(e.Metadata) > 0 && json.Unmarshal(e.Metadata, &metadata) == nil {
		_ = json.Unmarshal(metadata.Session, &p.session)
	}
	return p
}

// messageOf returns the message of a record. The payload shares the memory of
// the record's data.
func messageOf(e events.Entry, p attributes) *message.Message {
	m := message.NewMessage(e.ID.String(), e.Data)
	for key, value := range map[string]string{
		KeyStream:   string(e.Stream),
		KeyRevision: strconv.FormatUint(uint64(e.Revision), 10),
		KeyPosition: e.Position.String(),
		KeyKind:     e.Kind,
		KeyVersion:  strconv.Itoa(e.Version),
		KeyTime:     e.Time.Format(time.RFC3339Nano),
		KeySession:  p.session,
		KeyAgent:    p.agent,
		KeyTool:     p.tool,
		KeyMetadata: string(e.Metadata),
	} {
		if value != "" {
			m.Metadata.Set(key, value)
		}
	}
	return m
}
