package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// A format is how results are written.
type format string

const (
	asTable format = "table" // for a person
	asJSON  format = "json"  // one document
	asLines format = "jsonl" // one object a line
)

var formats = []string{string(asTable), string(asJSON), string(asLines)}

// String, Set and Type make a format the value of a flag.
func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }
func (f *format) Set(text string) error {
	return setWord(f, text, formats)
}

// A coloring says when there are colours.
type coloring string

const (
	colorAuto   coloring = "auto" // where a person looks, and nothing says otherwise
	colorAlways coloring = "always"
	colorNever  coloring = "never"
)

var colorings = []string{string(colorAuto), string(colorAlways), string(colorNever)}

// String, Set and Type make a coloring the value of a flag.
func (c *coloring) String() string { return string(*c) }
func (c *coloring) Type() string   { return "when" }
func (c *coloring) Set(text string) error {
	return setWord(c, text, colorings)
}

func setWord[W ~string](word *W, text string, words []string) error {
	if !slices.Contains(words, text) {
		return fmt.Errorf("%q is not %s", text, strings.Join(words, ", "))
	}
	*word = W(text)
	return nil
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colored reports whether results are coloured.
func (a *app) colored() bool {
	set := func(name string) bool { v := a.variable(name); return v != "" && v != "0" }
	switch {
	case a.color != colorAuto:
		return a.color == colorAlways
	case a.variable("NO_COLOR") != "":
		return false
	case set("FORCE_COLOR") || set("CLICOLOR_FORCE"):
		return true
	}
	return a.terminal && a.variable("TERM") != "dumb"
}

// A paint is a colour, or another way to set text off: the parameter of an
// SGR sequence.
type paint string

const (
	plain   paint = ""
	bold    paint = "1"
	dim     paint = "2"
	red     paint = "31"
	green   paint = "32"
	yellow  paint = "33"
	magenta paint = "35"
	cyan    paint = "36"
)

// painted returns text in a paint, where there are colours.
func (a *app) painted(p paint, text string) string {
	if p == plain || text == "" || !a.colored() {
		return text
	}
	return "\x1b[" + string(p) + "m" + text + "\x1b[0m"
}

// A table is rows of cells in columns, with a head. Cells may be painted.
type table struct {
	head  []string // a name that begins with > is that of a column of numbers
	rows  [][]string
	empty string // what is said where there are no rows
}

// add adds a row.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// write writes a table: columns two spaces apart, nothing behind the last.
func (a *app) write(t table) {
	if len(t.rows) == 0 {
		a.line("%s", t.empty)
		return
	}
	widths := make([]int, len(t.head))
	head := make([]string, len(t.head))
	for i, name := range t.head {
		head[i] = strings.TrimPrefix(name, ">")
		widths[i] = ansi.StringWidth(head[i])
		for _, row := range t.rows {
			widths[i] = max(widths[i], ansi.StringWidth(row[i]))
		}
	}
	a.line("%s", a.painted(bold, t.aligned(head, widths)))
	for _, row := range t.rows {
		a.line("%s", t.aligned(row, widths))
	}
}

func (t table) aligned(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		room := strings.Repeat(" ", widths[i]-ansi.StringWidth(cell))
		switch {
		case strings.HasPrefix(t.head[i], ">"):
			cell = room + cell
		case i < len(cells)-1:
			cell += room
		}
		if i > 0 {
			b.WriteString("  ")
		}
		b.WriteString(cell)
	}
	return strings.TrimRight(b.String(), " ")
}

// line writes one line of results.
func (a *app) line(format string, args ...any) {
	fmt.Fprintf(a.out, format+"\n", args...) // an error stays in the writer until it is flushed
}

// fields writes names and values below each other; values that are empty are
// left out.
func (a *app) fields(pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			width = max(width, len(pairs[i]))
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			a.line("%s  %s", a.painted(dim, fmt.Sprintf("%-*s", width, pairs[i])), pairs[i+1])
		}
	}
}

// emit writes rows: an array, an object a line, or what a person is shown.
func emit[T any](a *app, rows []T, show func()) error {
	switch a.output {
	case asJSON:
		if rows == nil {
			rows = []T{}
		}
		return a.document(rows)
	case asLines:
		for _, row := range rows {
			if err := a.object(row); err != nil {
				return err
			}
		}
		return nil
	}
	show()
	return nil
}

// emitOne writes one object, or what a person is shown of it.
func (a *app) emitOne(v any, show func()) error {
	switch a.output {
	case asJSON:
		return a.document(v)
	case asLines:
		return a.object(v)
	}
	show()
	return nil
}

// document writes v as JSON over several lines.
func (a *app) document(v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, data, "", "  "); err != nil {
		return err
	}
	a.line("%s", indented.Bytes())
	return nil
}

// object writes v as JSON on one line.
func (a *app) object(v any) error {
	data, err := encode(v)
	if err == nil {
		a.line("%s", data)
	}
	return err
}

// encode returns v as JSON on one line, with <, > and & as they are.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write results: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// opt returns nil for the zero value, which is null in JSON.
func opt[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// A stamp is a time as results have it: RFC 3339 in UTC, with microseconds,
// and null for none.
type stamp time.Time

// MarshalJSON writes the form that stamp documents.
func (s stamp) MarshalJSON() ([]byte, error) {
	if time.Time(s).IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + s.String() + `"`), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *stamp) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, (*time.Time)(s)) }

// String returns the text without quotes.
func (s stamp) String() string { return time.Time(s).UTC().Format("2006-01-02T15:04:05.000000Z") }
