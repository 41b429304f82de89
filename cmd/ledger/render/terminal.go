package render

import (
	"os"
	"strconv"

	"golang.org/x/term"
)

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// colored reports whether results have colours. The first of these settings that is
// present decides: the flag --color, NO_COLOR, FORCE_COLOR or CLICOLOR_FORCE. Without
// any of them, results have colours on a terminal whose TERM is not dumb.
func (p *Printer) colored() bool {
	set := func(name string) bool { v := p.Variable(name); return v != "" && v != "0" }
	switch {
	case p.Color != ColorAuto:
		return p.Color == colorAlways
	case p.Variable("NO_COLOR") != "":
		return false
	case set("FORCE_COLOR") || set("CLICOLOR_FORCE"):
		return true
	}
	return p.Terminal && p.Variable("TERM") != "dumb"
}

// A paint is a colour or a style of text: the parameter of an SGR sequence, a
// standard control sequence of terminals.
type paint string

// The paints, by their SGR parameters. Plain text has no SGR sequence.
const (
	plain   paint = ""
	Bold    paint = "1"
	Dim     paint = "2"
	Red     paint = "31"
	Green   paint = "32"
	Yellow  paint = "33"
	Magenta paint = "35"
	cyan    paint = "36"
)

// Styled returns text between the SGR sequences that begin and end style. It returns
// text unchanged if the text is empty or results have no colours.
func (p *Printer) Styled(style paint, text string) string {
	if style == plain || text == "" || !p.colored() {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// Columns returns the width of the terminal to which results go: the variable COLUMNS, or the
// width that the terminal reports, or 80. It returns 0 if results go to a pipe or a file.
func (p *Printer) Columns() int { return p.width(p.Terminal, p.OutFile) }

// ErrColumns returns the width of the terminal to which the standard error goes, as
// Columns does for results.
func (p *Printer) ErrColumns() int { return p.width(p.ErrTerminal, p.ErrFile) }

// width returns the number of columns of the terminal to which file writes. It returns 0
// if watched is false, which means that file is not a terminal.
func (p *Printer) width(watched bool, file *os.File) int {
	if !watched {
		return 0
	}
	if n, err := strconv.Atoi(p.Variable("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if file != nil {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}
