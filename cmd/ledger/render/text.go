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

// ShortID returns the short form of an ID for tables: its prefix, an ellipsis and its last six
// characters.
func ShortID(id fmt.Stringer) string { return Shorten(id.String()) }

// Shorten returns the short form of an ID, given as text: the prefix, an ellipsis and
// the last six characters. It returns a text unchanged if it is already short, or if it
// has no prefix of at most eight characters. IDs that were made at about the same time
// differ in their last characters, not in their first.
func Shorten(id string) string {
	const tail = 6
	prefix, _, ok := strings.Cut(id, "_")
	if !ok || len(prefix) > 8 || len(id) <= len(prefix)+1+2*tail {
		return id
	}
	return prefix + "_…" + id[len(id)-tail:]
}

// ShortCallID returns the short form of a call ID for tables, in at most 24 columns and
// without control characters. A provider chooses call IDs freely, so id may be any text.
func ShortCallID(id domain.CallID) string {
	if text := string(id); Printable(text) == text && isASCII(text) {
		return ansi.Truncate(Shorten(text), 24, "…")
	}
	return OneLine(string(id), 24)
}

// isASCII reports whether all bytes of text are below 0x80.
func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// Printable returns text without characters that control a terminal. It replaces an ASCII
// control character by its Unicode control picture, and other control characters and
// bidirectional controls by U+FFFD. Line feeds and tabs stay.
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

// OneLine returns the beginning of a text on one printable line of at most width
// columns. It joins words by single spaces. If it cuts the text, the line ends with an
// ellipsis. It examines at most 16 bytes for each column, so that a large output costs
// no more than a small one.
func OneLine(text string, width int) string {
	if len(text) > 16*width {
		text = strings.ToValidUTF8(text[:16*width], "")
	}
	return ansi.Truncate(Printable(strings.Join(strings.Fields(text), " ")), width, "…")
}

// TextWidth is the greatest width of a text in a table, in columns of the terminal.
const TextWidth = 60

// Bytes formats a size in bytes with a binary unit, such as 1.5 KiB.
func Bytes(n int64) string { return humanize.IBytes(uint64(max(0, n))) }

// Count formats a number with its noun, in the plural if n is not 1.
func Count(n int, noun string) string { return english.Plural(n, noun, "") }

// StringOf returns v.String(), or an empty string if v is nil.
func StringOf[T fmt.Stringer](v *T) string {
	if v == nil {
		return ""
	}
	return (*v).String()
}

// ValueOf returns the string that v points to, or an empty string if v is nil.
func ValueOf(v *string) string {
	if v == nil {
		return ""
	}
	return *v
}

// Indented formats JSON for a person: a JSON string as its text, null as an empty string, and
// other values indented. It returns invalid JSON unchanged.
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
