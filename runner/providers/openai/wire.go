package openai

import (
	"encoding/json"
	"strings"
)

// present reports whether a member is there and not null.
func present(data json.RawMessage) bool { return len(data) > 0 && string(data) != "null" }

// brokenOff returns arguments that broke off as a JSON string, which no tool accepts as an
// input, even if the text so far is JSON.
func brokenOff(text string) json.RawMessage {
	input, _ := json.Marshal(text) // encoding a string never fails
	return input
}

// valid returns text with each invalid byte replaced by U+FFFD, as JSON stores it.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
