package jsonl

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// encodeLine encodes a message as a line, in the form that the package documents. The
// ID and the position come first, so that [readLineHead] finds them without decoding
// the data.
func encodeLine(topic string, m *message.Message) []byte {
	var b bytes.Buffer
	b.WriteString(`{"id":` + quoteJSON(m.UUID) + `,"position":` + quoteJSON(m.Metadata.Get(publish.KeyPosition)))
	b.WriteString(`,"stream":` + quoteJSON(m.Metadata.Get(publish.KeyStream)))
	b.WriteString(`,"revision":` + jsonNumber(m.Metadata.Get(publish.KeyRevision)))
	b.WriteString(`,"kind":` + quoteJSON(m.Metadata.Get(publish.KeyKind)))
	b.WriteString(`,"version":` + jsonNumber(m.Metadata.Get(publish.KeyVersion)))
	b.WriteString(`,"time":` + quoteJSON(m.Metadata.Get(publish.KeyTime)))
	for _, key := range []string{publish.KeySession, publish.KeyAgent, publish.KeyTool} {
		if value := m.Metadata.Get(key); value != "" {
			b.WriteString(`,"` + key + `":` + quoteJSON(value))
		}
	}
	b.WriteString(`,"topic":` + quoteJSON(topic))
	if metadata := m.Metadata.Get(publish.KeyMetadata); metadata != "" {
		writeDocument(&b, "metadata", []byte(metadata))
	}
	writeDocument(&b, "data", m.Payload)
	b.WriteString("}\n")
	return b.Bytes()
}

// writeDocument writes a member of a line. A JSON document is written unchanged,
// except that line ends between its values become spaces; other bytes are written in
// base64, under the name with the suffix _base64.
func writeDocument(b *bytes.Buffer, name string, data []byte) {
	if !json.Valid(data) || !utf8.Valid(data) {
		encoded, err := json.Marshal(data)
		if err != nil {
			panic(err) // bytes always encode
		}
		b.WriteString(`,"` + name + `_base64":`)
		b.Write(encoded)
		return
	}
	b.WriteString(`,"` + name + `":`)
	// Line ends occur between JSON values only. Within strings they are escaped.
	if bytes.ContainsAny(data, "\n\r") {
		data = bytes.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return ' '
			}
			return r
		}, data)
	}
	b.Write(data)
}

// quoteJSON returns text as a JSON string, without escaping <, > and &.
func quoteJSON(text string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // text always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// jsonNumber returns text if it is a JSON number of digits, and otherwise null.
func jsonNumber(text string) string {
	for _, r := range text {
		if r < '0' || r > '9' {
			return "null"
		}
	}
	if text == "" || len(text) > 1 && text[0] == '0' {
		return "null"
	}
	return text
}
