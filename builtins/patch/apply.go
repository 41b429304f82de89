package patch

import (
	"fmt"
	"strings"
)

// Apply returns the content of a file with the hunks of u applied. It returns content
// unchanged for an Update without hunks, ErrMismatch for a hunk whose headers or old
// lines are not in the file below the previous hunk, and ErrLimit for a file over the
// limits.
func (u Update) Apply(content string) (string, error) {
	if len(u.Hunks) == 0 {
		return content, nil
	}
	text, hasMark := strings.CutPrefix(content, bom)
	search, err := newLineSearch(text)
	if err != nil {
		return "", err
	}
	a := application{lineSearch: search}
	for _, h := range u.Hunks {
		if err := a.apply(h); err != nil {
			return "", err
		}
	}
	a.keep(len(a.lines))
	if hasMark {
		return bom + strings.TrimPrefix(a.out.String(), bom), nil
	}
	return a.out.String(), nil
}

// An application is the state while the hunks of an Update are applied.
type application struct {
	*lineSearch
	next  int             // index of the first line of the file that is not in out and was not removed
	out   strings.Builder // the result so far
	ended bool            // out is not empty, and its last line has a line end
}

// apply finds the place of a hunk and writes the lines up to its end.
func (a *application) apply(h Hunk) error {
	from, err := a.findHeaders(h)
	if err != nil {
		return err
	}
	old := h.old()
	if len(old) == 0 {
		if len(h.Headers) == 0 || h.EndOfFile {
			from = len(a.lines)
		}
		a.write(h, from)
		return nil
	}
	at, err := a.find(old, from, h.EndOfFile)
	for retry := 0; err == nil && at < 0 && endsBlank(h) && len(old) > 1 && retry < maxBlankLines; retry++ {
		h.Lines, old = h.Lines[:len(h.Lines)-1], old[:len(old)-1]
		at, err = a.find(old, from, h.EndOfFile)
	}
	if err != nil {
		return err
	}
	if at < 0 {
		return a.mismatch(h, from)
	}
	a.write(h, at)
	return nil
}

// maxBlankLines is the maximum number of empty lines at the end of a hunk that apply
// leaves out if the hunk is not found with them.
const maxBlankLines = 3

// endsBlank reports whether the last line of a hunk is an unchanged empty line. Such a
// line can stand for the end of the last line of a file, or separate two sections.
func endsBlank(h Hunk) bool { return h.Lines[len(h.Lines)-1] == Line{Op: Unchanged} }

// findHeaders returns the index of the line below the last header of a hunk, or of the
// line below the previous hunk if it has no header.
func (a *application) findHeaders(h Hunk) (int, error) {
	from := a.next
	for _, header := range h.Headers {
		at, err := a.find([]string{header}, from, false)
		if err != nil {
			return 0, err
		}
		if at < 0 {
			return 0, errorAt(h.Number, ErrMismatch, "the file has no line %s %s: after @@ give a whole line of the file", quote(header), below(from))
		}
		from = at + 1
	}
	return from, nil
}

// below returns a text that states where a search began.
func below(from int) string {
	if from == 0 {
		return "at all"
	}
	return fmt.Sprintf("below its line %d", from)
}

// write writes the lines of the file up to the line at, and then the result of the hunk.
func (a *application) write(h Hunk, at int) {
	a.keep(at)
	for _, line := range h.Lines {
		switch line.Op {
		case Unchanged:
			a.keep(a.next + 1)
		case Removed:
			a.next++
		case Inserted:
			a.emit(line.Text + a.lineEnd(a.next))
		}
	}
}

// keep writes the lines of the file from a.next up to the line end, which it does not
// include.
func (a *application) keep(end int) {
	for ; a.next < end; a.next++ {
		a.emit(a.lines[a.next])
	}
}

// emit appends a line with its line end to the result. The last line of the file can
// lack a line end, and gets one if a line follows it.
func (a *application) emit(line string) {
	if a.out.Len() > 0 && !a.ended {
		a.out.WriteString(a.lineEnd(a.next))
	}
	a.out.WriteString(line)
	a.ended = strings.HasSuffix(line, "\n")
}

// mismatch returns the error for a hunk whose old lines do not occur at or after the line
// from. The text says whether the old lines occur elsewhere in the file, and whether the
// new lines occur.
func (a *application) mismatch(h Hunk, from int) error {
	elsewhere, err := a.find(h.old(), 0, false)
	if err != nil {
		return err
	}
	switch {
	case elsewhere >= 0 && h.EndOfFile:
		return errorAt(h.Number, ErrMismatch, "the lines of the hunk begin at line %d of the file and do not end at its end, as %s says", elsewhere+1, eofMarker)
	case elsewhere >= 0:
		return errorAt(h.Number, ErrMismatch, "the lines of the hunk begin at line %d of the file, above the place that the previous hunk or @@ reached: give hunks in the order of the file", elsewhere+1)
	}
	if changed := h.new(); len(changed) > 0 {
		at, err := a.find(changed, 0, false)
		if err != nil {
			return err
		}
		if at >= 0 {
			return errorAt(h.Number, ErrMismatch, "the file does not have the old lines of the hunk, and has its new lines at line %d: the patch seems to be applied already. Old lines:\n%s", at+1, excerpt(h.old()))
		}
	}
	return errorAt(h.Number, ErrMismatch, "the file does not have the old lines of the hunk %s. Read the file again. Old lines:\n%s", below(from), excerpt(h.old()))
}

// excerpt returns the first lines of a pattern for an error text.
func excerpt(pattern []string) string {
	const limit = 5
	var b strings.Builder
	for i, line := range pattern {
		if i == limit {
			fmt.Fprintf(&b, "\n... and %d more", len(pattern)-limit)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strings.ToValidUTF8(line[:min(len(line), 240)], ""))
	}
	return b.String()
}
