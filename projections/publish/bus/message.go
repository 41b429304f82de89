package bus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// kind is the kind of message records. They have one version, 1.
const kind = "MessagePublished"

// inBase64 is the value of messageMetadata.Encoding for a payload in base64.
const inBase64 = "base64"

// messageMetadata is the metadata document of a message record. Headers are the
// metadata of the message.
type messageMetadata struct {
	UUID    string            `json:"uuid"`
	Headers map[string]string `json:"headers,omitempty"`
	// Encoding is inBase64 if the data encode the payload, and empty if they are the
	// payload.
	Encoding string `json:"encoding,omitempty"`
}

// record encodes a message as a record. A payload that is valid JSON in UTF-8 becomes
// the data unchanged. Any other payload becomes a JSON string in base64. record
// copies the payload. A nil and an empty payload give the same record.
func (b *Bus) record(m *message.Message) (events.Record, error) {
	envelope := messageMetadata{UUID: m.UUID, Headers: m.Metadata}
	if err := checkUTF8(m); err != nil {
		return events.Record{}, err
	}
	data := bytes.Clone(m.Payload)
	if !json.Valid(data) || !utf8.Valid(data) {
		envelope.Encoding = inBase64
		encoded, err := json.Marshal([]byte(m.Payload))
		if err != nil {
			return events.Record{}, err
		}
		if data = encoded; m.Payload == nil {
			data = []byte(`""`)
		}
	}
	metadata, err := json.Marshal(envelope)
	if err != nil {
		return events.Record{}, err
	}
	return events.Record{
		ID: b.config.Mint.Event(), Kind: kind, Version: 1, Time: b.config.Now().UTC().Truncate(1000),
		Data: data, Metadata: metadata,
	}, nil
}

// checkUTF8 returns an ErrBadMessage unless the UUID and the metadata of a message
// are UTF-8. JSON would replace other bytes, and the message would arrive changed.
func checkUTF8(m *message.Message) error {
	for key, value := range m.Metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return fmt.Errorf("%w: %s: its metadata %q are not UTF-8", ErrBadMessage, m.UUID, key)
		}
	}
	if !utf8.ValidString(m.UUID) {
		return fmt.Errorf("%w: its UUID %q is not UTF-8", ErrBadMessage, m.UUID)
	}
	return nil
}

// messageOf decodes a record as a message. Another program can append a record of
// another kind to the stream; its message has the event ID as its UUID. Invalid
// metadata or base64 is an events.ErrDamaged.
func messageOf(e events.Entry) (*message.Message, error) {
	if e.Kind != kind {
		return message.NewMessage(e.ID.String(), e.Data), nil
	}
	var envelope messageMetadata
	err := json.Unmarshal(e.Metadata, &envelope)
	payload := e.Data
	if err == nil && envelope.Encoding == inBase64 {
		payload = nil
		err = json.Unmarshal(e.Data, &payload)
	}
	if err != nil {
		return nil, fmt.Errorf("read the message at revision %d of %s: %w: %w", e.Revision, e.Stream, events.ErrDamaged, err)
	}
	m := message.NewMessage(envelope.UUID, payload)
	for key, value := range envelope.Headers {
		m.Metadata.Set(key, value)
	}
	return m, nil
}
