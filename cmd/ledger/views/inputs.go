package views

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
)

// The limits of inputs in rows, in bytes. A row contains an input of at most inputLimit bytes
// whole. In a longer input each string is cut to stringLimit bytes. If the input is still too
// long, the row contains the first inputLimit bytes of its text as one JSON string.
const (
	inputLimit  = 4 << 10
	stringLimit = 256
)

// ShowOptions selects what the pages of a session and a turn show.
type ShowOptions struct {
	FullInputs bool // show the full input of each call; false: shortened inputs
	Schemas    bool // show the schemas of the tools of a turn, and what changed since the turn before
}

// shortenInput returns an input as a row shows it. An input of at most inputLimit bytes
// is returned whole, and a longer one cut. The bool reports whether the input was cut.
// The result is always valid JSON.
func shortenInput(input json.RawMessage) (json.RawMessage, bool) {
	if len(input) <= inputLimit {
		return input, false
	}
	// A model may send duplicate names and invalid UTF-8, which the log keeps.
	lenient := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
	var short bytes.Buffer
	from, to := jsontext.NewDecoder(bytes.NewReader(input), lenient...), jsontext.NewEncoder(&short, lenient...)
	for to.OutputOffset() <= inputLimit {
		token, err := from.ReadToken()
		if errors.Is(err, io.EOF) {
			return bytes.TrimSpace(short.Bytes()), true
		}
		if err == nil && token.Kind() == '"' {
			token = jsontext.String(truncate(token.String(), stringLimit))
		}
		if err != nil || to.WriteToken(token) != nil {
			break
		}
	}
	text, _ := render.EncodeJSON(truncate(string(input), inputLimit)) // a string always encodes
	return text, true
}

// truncate returns text, or its first limit bytes and an ellipsis if text is longer. If
// the limit splits a character, truncate omits that character.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// inputText returns an input for a cell of a table: its most informative field, or the whole
// input if full is set.
func inputText(input json.RawMessage, full bool) string {
	if string(input) == "null" {
		return ""
	}
	if full {
		return render.Printable(string(input))
	}
	return render.OneLine(MainField(input), render.TextWidth)
}

// mainFields are the most informative fields of inputs, in order of preference.
var mainFields = []string{"command", "pattern", "file_path", "path", "notebook_path", "url", "query", "description", "prompt"}

// MainField returns the first of mainFields that is a non-empty string in the input. To
// a pattern it appends the path that was searched. Without such a field it returns the
// whole input.
func MainField(input json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(input, &fields) != nil {
		return render.Indented(input)
	}
	text := func(name string) (text string) {
		_ = json.Unmarshal(fields[name], &text) // a field that is no string does not count
		return text
	}
	for _, name := range mainFields {
		switch found := text(name); {
		case found == "":
		case name == "pattern":
			return strings.TrimSpace(found + " " + text("path"))
		default:
			return found
		}
	}
	return string(input)
}
