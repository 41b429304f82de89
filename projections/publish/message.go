package publish

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// The keys of a message's metadata. A key is absent if the record has no such value:
// session, agent, tool and metadata are optional.
const (
	KeyStream   = "stream"
	KeyRevision = "revision"
	KeyPosition = "position"
	KeyKind     = "kind"
	KeyVersion  = "version"
	// KeyTime is the key of the record's time: RFC 3339, UTC, to the microsecond.
	KeyTime    = "time"
	KeySession = "session"
	KeyAgent   = "agent"
	KeyTool    = "tool"
	// KeyMetadata is the key of the record's metadata document, as written.
	KeyMetadata = "metadata"
)

// attributes are the values of a record that filters and topics use. They are decoded
// from the bytes of the record, not from a typed event, so that records of unknown
// kinds have attributes too. A missing value is "".
type attributes struct {
	stream events.Stream
	kind   string
	// session is the session of the stream. For other streams it is the session that
	// the metadata of the record names as correlation.
	session string
	// agent is the agent of that session. The agentCache supplies it.
	agent string
	// tool is the member tool of the data.
	tool string
}

// attributesOf returns the attributes of a record, without its agent. Members
// of an unexpected type are empty.
func attributesOf(e events.Entry) attributes {
	p := attributes{stream: e.Stream, kind: e.Kind}
	var data struct {
		Tool json.RawMessage `json:"tool"`
	}
	if json.Unmarshal(e.Data, &data) == nil {
		// A tool of another type than text stays empty.
		_ = json.Unmarshal(data.Tool, &p.tool)
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

// messageOf returns the message of a record, with the event ID as its UUID. The
// payload shares the memory of the record's data, which a Target must not change.
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
