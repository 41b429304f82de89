package patch

import (
	"regexp"
	"slices"
	"strings"
)

// headerMarker begins a hunk. A header can follow it.
const headerMarker = "@@"

// isHeader reports whether a line is @@, alone or with a header.
func isHeader(line string) bool {
	return strings.TrimRight(line, " \t") == headerMarker || strings.HasPrefix(line, headerMarker+" ")
}

// lineNumbers matches the header of a hunk of a unified diff, without its first @@.
var lineNumbers = regexp.MustCompile(`^-\d+(,\d+)? \+\d+(,\d+)? @@`)

// changes reports whether a hunk has a removed or an inserted line.
func (h Hunk) changes() bool {
	return slices.ContainsFunc(h.Lines, func(line Line) bool { return line.Op != Unchanged })
}

// skipToHunk skips blank lines that are not part of a hunk, because only blank lines
// precede the next @@, the next marker or the end.
func (p *patchParser) skipToHunk() {
	if p.blankUpToMarker() {
		p.skipBlank()
	}
}

// hunk parses the headers, the lines and the end marker of one hunk.
func (p *patchParser) hunk() (Hunk, error) {
	h := Hunk{Number: p.number()}
	for ; !p.done() && isHeader(p.lines[p.at]); p.at++ {
		header := strings.TrimPrefix(strings.TrimPrefix(p.lines[p.at], headerMarker), " ")
		if lineNumbers.MatchString(header) {
			return Hunk{}, errorAt(p.number(), ErrMalformed, "%s has line numbers: write @@ alone, or @@ and a line of the file above the hunk", quote(p.lines[p.at]))
		}
		if !isBlank(header) {
			h.Headers = append(h.Headers, header)
		}
	}
	if err := p.hunkLines(&h); err != nil {
		return Hunk{}, err
	}
	if len(h.Lines) == 0 {
		return Hunk{}, errorAt(h.Number, ErrMalformed, "the hunk has no lines")
	}
	return h, p.endOfFile(&h)
}

// hunkLines parses the lines of a hunk up to the next @@ or marker. An empty line is an
// unchanged empty line. At the end of a hunk that otherwise has no old line, empty lines
// separate sections and are dropped.
func (p *patchParser) hunkLines(h *Hunk) error {
	filled, old := 0, false // lines up to the last one that is not empty; whether one of these is old
	for ; !p.done() && !isHeader(p.lines[p.at]) && !isMarker(p.lines[p.at]); p.at++ {
		line := p.lines[p.at]
		if line == "" {
			h.Lines = append(h.Lines, Line{Op: Unchanged})
			continue
		}
		op := Op(line[0])
		if op != Unchanged && op != Removed && op != Inserted {
			return errorAt(p.number(), ErrMalformed, "every line of a hunk must begin with a space, - or +, and this is %s", quote(line))
		}
		h.Lines = append(h.Lines, Line{op, line[1:]})
		filled, old = len(h.Lines), old || op != Inserted
	}
	if !old && !slices.ContainsFunc(h.Lines[:filled], func(line Line) bool { return line.Op == Unchanged }) {
		h.Lines = h.Lines[:filled]
	}
	return nil
}

// endOfFile parses the marker of the end of the file, if it comes next.
func (p *patchParser) endOfFile(h *Hunk) error {
	if p.done() || strings.TrimRight(p.lines[p.at], " \t") != eofMarker {
		return nil
	}
	h.EndOfFile = true
	p.at++
	p.skipToHunk()
	if !p.done() && !isMarker(p.lines[p.at]) && !isHeader(p.lines[p.at]) {
		return errorAt(p.number(), ErrMalformed, "%s belongs to no hunk: %s ends a hunk", quote(p.lines[p.at]), eofMarker)
	}
	return nil
}
