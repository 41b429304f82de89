package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// EncodeJSON encodes v as JSON on one line, without a line end. It does not escape <,
// > and &, so that a model's text stays readable. It returns an error for a value
// without a JSON form.
func EncodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write results: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// OrNull returns a pointer to a copy of v, or nil for the zero value. In JSON the nil
// pointer is null.
func OrNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// A Timestamp is a time in JSON results: RFC 3339 in UTC with microseconds, or null for the
// zero time.
type Timestamp time.Time

// MarshalJSON encodes the time as a JSON string, or as null if it is the zero time.
func (s Timestamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + s.String() + `"`), nil
}

// UnmarshalJSON decodes any RFC 3339 time. It leaves s unchanged for null.
func (s *Timestamp) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*time.Time)(s)) }

// String returns the time as RFC 3339 in UTC with six digits of a second.
func (s Timestamp) String() string { return time.Time(s).UTC().Format("2006-01-02T15:04:05.000000Z") }

// TimeOf converts a Timestamp to a time.Time.
func TimeOf(s Timestamp) time.Time { return time.Time(s) }

// RawJSON returns data unchanged if it is valid JSON, null if it is empty, and otherwise a
// JSON string of its text.
func RawJSON(data []byte) json.RawMessage {
	if len(data) == 0 {
		return json.RawMessage("null")
	}
	if json.Valid(data) {
		return data
	}
	text, err := EncodeJSON(string(data))
	if err != nil { // encoding a string never fails
		panic(err)
	}
	return text
}
