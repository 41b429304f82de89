package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
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

// columns returns the width of the terminal that results go to: COLUMNS, or the
// width that the terminal reports, or 80. It returns 0 where they go elsewhere.
func (a *app) columns() int { return a.width(a.terminal, a.results) }

// toldWidth is columns for the standard error.
func (a *app) toldWidth() int { return a.width(a.watched, a.faults) }

func (a *app) width(watched bool, file *os.File) int {
	if !watched {
		return 0
	}
	if n, err := strconv.Atoi(a.variable("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if file != nil {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

// A table is rows of cells in columns, with a head. Cells may be painted.
type table struct {
	head  []string // names, before which > marks a column of numbers, ~ one of texts, and ? one that may be left out
	rows  [][]string
	empty string // the line in place of a table without rows
	whole bool   // it does not fit itself to the terminal
}

// Texts are shortened to fairWidth at least, and the last one that a row has left to
// leastWidth. An ID or an outcome has room in stackWidth.
const (
	fairWidth  = 12
	leastWidth = 8
	stackWidth = 18 // that values in blocks have at least beside their names
)

// add adds a row.
func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// A column is how the cells below a name of a head are written.
type column struct {
	name    string
	width   int
	numbers bool // its cells end below each other
	texts   bool // its cells may be shortened
	spare   bool // it may be left out
	out     bool // it is left out
}

func (t table) columns() []column {
	all := make([]column, len(t.head))
	for i, head := range t.head {
		name := strings.TrimLeft(head, ">~?")
		marks := strings.TrimSuffix(head, name)
		c := column{name: name, width: ansi.StringWidth(name)}
		c.numbers, c.texts, c.spare = strings.Contains(marks, ">"), strings.Contains(marks, "~"), strings.Contains(marks, "?")
		for _, row := range t.rows {
			c.width = max(c.width, ansi.StringWidth(row[i]))
		}
		all[i] = c
	}
	return all
}

// write writes a table: columns two spaces apart, nothing behind the last. On a
// terminal it fits its width: texts are shortened, columns left out, and where not
// even that helps each row is written as a block of lines.
func (a *app) write(t table) {
	if len(t.rows) == 0 {
		a.line("%s", t.empty)
		return
	}
	columns := t.columns()
	if width := a.columns(); width > 0 && !t.whole && !fitInto(columns, width) {
		a.blocks(columns, t.rows, width)
		return
	}
	head := make([]string, len(columns))
	for i, c := range columns {
		head[i] = c.name
	}
	a.line("%s", a.painted(bold, aligned(head, columns)))
	for _, row := range t.rows {
		a.line("%s", aligned(row, columns))
	}
}

// fitInto shortens columns of texts, and leaves columns out, until all fit into a
// width: first those that are spare, from the right, then all texts but the first.
// It reports whether that was possible.
func fitInto(columns []column, width int) bool {
	for {
		var texts, spare []int
		room, widest := width+2, 0
		for i, c := range columns {
			if c.out {
				continue
			}
			room -= 2
			if c.spare {
				spare = append(spare, i)
			}
			if c.texts {
				texts = append(texts, i)
				widest = max(widest, c.width)
			} else {
				room -= c.width
			}
		}
		least := fairWidth
		if len(texts) < 2 && len(spare) == 0 {
			least = leastWidth
		}
		if shorten(columns, texts, room, widest, least) {
			return true
		}
		switch {
		case len(spare) > 0:
			columns[spare[len(spare)-1]].out = true
		case len(texts) > 1:
			columns[texts[len(texts)-1]].out = true
		default:
			return false
		}
	}
}

// shorten shortens the widest texts so that all have room, none of them to less than
// least, and reports whether that was possible.
func shorten(columns []column, texts []int, room, widest, least int) bool {
	for level := widest; level >= min(least, widest); level-- {
		sum := 0
		for _, i := range texts {
			sum += min(columns[i].width, level)
		}
		if sum > room {
			continue
		}
		for _, i := range texts {
			columns[i].width = min(columns[i].width, level)
		}
		return true
	}
	return false
}

// blocks writes each row as lines of a name and a value; the values of a very narrow
// terminal stand below the names.
func (a *app) blocks(columns []column, rows [][]string, width int) {
	names := 0
	for _, c := range columns {
		names = max(names, ansi.StringWidth(c.name))
	}
	for i, row := range rows {
		if i > 0 {
			a.line("")
		}
		for i, cell := range row {
			name, cell := columns[i].name, strings.TrimLeft(cell, " ")
			switch room := width - names - 2; {
			case cell == "":
			case room < stackWidth && name != "":
				a.line("%s\n  %s", a.painted(dim, strings.TrimLeft(name, " ")), ansi.Truncate(cell, width-2, "…"))
			case room < stackWidth:
				a.line("  %s", ansi.Truncate(cell, width-2, "…"))
			default:
				a.line("%s  %s", a.painted(dim, fmt.Sprintf("%-*s", names, name)), ansi.Truncate(cell, room, "…"))
			}
		}
	}
}

// aligned returns a row with each cell as wide as its column.
func aligned(cells []string, columns []column) string {
	var b strings.Builder
	for i, c := range columns {
		if c.out {
			continue
		}
		cell := ansi.Truncate(cells[i], c.width, "…")
		room := strings.Repeat(" ", c.width-ansi.StringWidth(cell))
		if c.numbers {
			cell = room + cell
		} else {
			cell += room
		}
		if b.Len() > 0 {
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
