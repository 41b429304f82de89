package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// text returns the text of a value that may be absent.
func text[T fmt.Stringer](v *T) string {
	if v == nil {
		return ""
	}
	return (*v).String()
}

// value returns a text that may be absent.
func value(v *string) string {
	if v == nil {
		return ""
	}
	return *v
}

// timeOf returns the time of a stamp.
func timeOf(s stamp) time.Time { return time.Time(s) }

// pretty returns JSON for a person: a string as its text, anything else over
// several lines.
func pretty(data json.RawMessage) string {
	if len(data) == 0 || bytes.Equal(data, []byte("null")) {
		return ""
	}
	var s string
	if json.Unmarshal(data, &s) == nil {
		return s
	}
	var b bytes.Buffer
	if json.Indent(&b, data, "", "  ") != nil {
		return string(data)
	}
	return b.String()
}
