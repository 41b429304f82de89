package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// EncodeJSON returns v as JSON on one line, with <, > and & as they are.
func EncodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write results: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// OrNull returns nil for the zero value, which is null in JSON.
func OrNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// A Timestamp is a time as results have it: RFC 3339 in UTC, with microseconds,
// and null for none.
type Timestamp time.Time

// MarshalJSON writes the form that stamp documents.
func (s Timestamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + s.String() + `"`), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Timestamp) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*time.Time)(s)) }

// String returns the text without quotes.
func (s Timestamp) String() string { return time.Time(s).UTC().Format("2006-01-02T15:04:05.000000Z") }

// TimeOf returns the time of a stamp.
func TimeOf(s Timestamp) time.Time { return time.Time(s) }

// RawJSON returns bytes as they are if they are JSON, and as a string if not.
func RawJSON(data []byte) json.RawMessage {
	if len(data) == 0 {
		return json.RawMessage("null")
	}
	if json.Valid(data) {
		return data
	}
	text, err := EncodeJSON(string(data))
	if err != nil { // a string always is JSON
		panic(err)
	}
	return text
}
