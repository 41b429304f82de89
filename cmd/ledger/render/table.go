package render

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// A Table is rows of cells in columns, with a head. Cells may be painted.
type Table struct {
	Head      []string // names, before which > marks a column of numbers, ~ one of texts, and ? one that may be left out
	Rows      [][]string
	Empty     string // the line in place of a table without rows
	Unlimited bool   // it does not fit itself to the terminal
}

// Texts are shortened to fairWidth at least, and the last one that a row has left to
// leastWidth. An ID or an outcome has room in stackWidth.
const (
	fairWidth  = 12
	leastWidth = 8
	stackWidth = 18 // that values in blocks have at least beside their names
)

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// A column is how the cells below a name of a head are written.
type column struct {
	name    string
	width   int
	numbers bool // its cells end below each other
	texts   bool // its cells may be shortened
	spare   bool // it may be left out
	out     bool // it is left out
}

func (t Table) columns() []column {
	all := make([]column, len(t.Head))
	for i, head := range t.Head {
		name := strings.TrimLeft(head, ">~?")
		marks := strings.TrimSuffix(head, name)
		c := column{name: name, width: ansi.StringWidth(name)}
		c.numbers, c.texts, c.spare = strings.Contains(marks, ">"), strings.Contains(marks, "~"), strings.Contains(marks, "?")
		for _, row := range t.Rows {
			c.width = max(c.width, ansi.StringWidth(row[i]))
		}
		all[i] = c
	}
	return all
}

// Table writes a table: columns two spaces apart, nothing behind the last. On a
// terminal it fits its width: texts are shortened, columns left out, and where not
// even that helps each row is written as a block of lines.
func (p *Printer) Table(t Table) {
	if len(t.Rows) == 0 {
		p.Line("%s", t.Empty)
		return
	}
	columns := t.columns()
	if width := p.Columns(); width > 0 && !t.Unlimited && !fitInto(columns, width) {
		p.blocks(columns, t.Rows, width)
		return
	}
	head := make([]string, len(columns))
	for i, c := range columns {
		head[i] = c.name
	}
	p.Line("%s", p.Styled(Bold, aligned(head, columns)))
	for _, row := range t.Rows {
		p.Line("%s", aligned(row, columns))
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
func (p *Printer) blocks(columns []column, rows [][]string, width int) {
	names := 0
	for _, c := range columns {
		names = max(names, ansi.StringWidth(c.name))
	}
	for i, row := range rows {
		if i > 0 {
			p.Line("")
		}
		for i, cell := range row {
			name, cell := columns[i].name, strings.TrimLeft(cell, " ")
			switch room := width - names - 2; {
			case cell == "":
			case room < stackWidth && name != "":
				p.Line("%s\n  %s", p.Styled(Dim, strings.TrimLeft(name, " ")), ansi.Truncate(cell, width-2, "…"))
			case room < stackWidth:
				p.Line("  %s", ansi.Truncate(cell, width-2, "…"))
			default:
				p.Line("%s  %s", p.Styled(Dim, fmt.Sprintf("%-*s", names, name)), ansi.Truncate(cell, room, "…"))
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
