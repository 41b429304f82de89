package bus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/events"
)

// kind is that of the records that are messages, of the one version there is.
const kind = "MessagePublished"

const inBase64 = "base64"

// A messageMetadata is the metadata of a record that is a message.
type messageMetadata struct {
	UUID     string            `json:"uuid"`
	Headers  map[string]string `json:"headers,omitempty"`
	Encoding string            `json:"encoding,omitempty"` // of the data, where they are not the payload
}

// record returns a message as it is kept.
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

// checkUTF8 returns an ErrBadMessage unless UUID and metadata are text, which
// JSON can keep.
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

// messageOf returns the message that an entry is. A record of another kind, that
// another program put into the stream, is one with the ID of the event.
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
