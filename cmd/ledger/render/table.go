package render

import (
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// A Table has a head and rows of cells. A cell may contain SGR sequences of Styled,
// which have no width.
type Table struct {
	// Head has the names of the columns, each with marks before it: > aligns the
	// cells to the right, as numbers; ~ permits shortened cells, for texts; ? permits
	// Table to omit the column.
	Head []string
	// Rows each have a cell for every name of the head.
	Rows [][]string
	// Empty is the line that replaces a table without rows.
	Empty string
	// Unlimited permits a table wider than the terminal.
	Unlimited bool
}

// The smallest widths, in columns of the terminal.
const (
	// fairWidth is the least width of a column of texts.
	fairWidth = 12
	// leastWidth is the least width of a column of texts if the table has no other.
	leastWidth = 8
	// stackWidth is the least width of a value on the line of its name in a block. An
	// ID or an outcome fits into it.
	stackWidth = 18
)

// Add appends a row, with a cell for each name of the head.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// A column is the layout of one column of a table.
type column struct {
	// name is the text of the head without marks.
	name string
	// width is that of the widest cell, or less if fitInto shortened the column.
	width int
	// numbers, texts and spare are the marks >, ~ and ?.
	numbers bool
	texts   bool
	spare   bool
	// out reports that fitInto omitted the column.
	out bool
}

// columns returns the layout in which each cell has its full width.
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

// Table writes a table with two spaces between columns and no trailing spaces. On a terminal
// it fits the table to the width: it shortens texts, omits columns, and writes each row as a
// block of lines if neither suffices.
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

// fitInto shortens and omits columns until the table fits into width, and reports
// whether it fits.
//
// In each round it divides the room that the other columns leave among the columns of
// texts. If each of these gets its full width or at least fairWidth, the table fits.
// Otherwise fitInto omits one column and begins the next round. It omits first the
// columns marked ? from the right, then the columns of texts from the right, except the
// first. The last remaining column of texts may shrink to leastWidth. There are at most
// as many rounds as columns.
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

// shorten limits the width of the columns of texts so that their total width is at most
// room. texts are the indexes of these columns. It tries each width from widest, the
// full width of the widest of these columns, down to least. It applies the first width
// that fits and returns true. If no width fits, it changes no column and returns false.
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

// blocks writes each row as a block with a line for each name and value, and an empty line
// between blocks. If a value has less than stackWidth, it has a line of its own below its
// name.
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

// aligned returns the line of a row. It truncates or pads each cell to the width of its
// column.
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
