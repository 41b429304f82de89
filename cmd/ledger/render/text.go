package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/settlement-ledger/ledger/domain"
)

// ShortID returns an ID as tables print it: the prefix, an ellipsis and the last
// six letters.
func ShortID(id fmt.Stringer) string { return Shorten(id.String()) }

func Shorten(id string) string {
	const tail = 6
	prefix, _, ok := strings.Cut(id, "_")
	if !ok || len(prefix) > 8 || len(id) <= len(prefix)+1+2*tail {
		return id
	}
	return prefix + "_…" + id[len(id)-tail:]
}

// ShortCallID returns a provider's call ID as tables print it. It may be any
// text.
func ShortCallID(id domain.CallID) string {
	if text := string(id); Printable(text) == text && isASCII(text) {
		return ansi.Truncate(Shorten(text), 24, "…")
	}
	return OneLine(string(id), 24)
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Printable returns text without what controls a terminal: a control character
// is shown by its picture, and what turns the direction of writing by a
// replacement. Line ends and tabs stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < 0x20:
			return 0x2400 + r
		case r == 0x7f:
			return '␡'
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// OneLine returns the beginning of a text on one line of at most so many
// columns.
func OneLine(text string, width int) string {
	if len(text) > 16*width {
		text = strings.ToValidUTF8(text[:16*width], "")
	}
	return ansi.Truncate(Printable(strings.Join(strings.Fields(text), " ")), width, "…")
}

// TextWidth is how many columns a table gives to a text.
const TextWidth = 60

// Bytes returns a number of bytes as people say it.
func Bytes(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

// Count returns a number with its noun.
func Count(n int, noun string) string { return english.Plural(n, noun, "") }

// StringOf returns the text of a value that may be absent.
func StringOf[T fmt.Stringer](v *T) string {
	if v == nil {
		return ""
	}
	return (*v).String()
}

// ValueOf returns a text that may be absent.
func ValueOf(v *string) string {
	if v == nil {
		return ""
	}
	return *v
}

// Indented returns JSON for a person: a string as its text, anything else over
// several lines.
func Indented(data json.RawMessage) string {
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
