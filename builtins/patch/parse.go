package patch

import (
	"fmt"
	"regexp"
	"strings"
)

// The marker lines of a patch. A marker that ends with a colon is followed by a path.
const (
	beginMarker  = "*** Begin Patch"
	endMarker    = "*** End Patch"
	addMarker    = "*** Add File:"
	deleteMarker = "*** Delete File:"
	updateMarker = "*** Update File:"
	moveMarker   = "*** Move to:"
	eofMarker    = "*** End of File"
)

// bom is the byte order mark of UTF-8.
const bom = "\ufeff"

// Parse parses a patch and returns its file sections in order. It returns ErrMalformed
// with the number of the first line that is not part of the format, ErrEmpty for a patch
// without a file section, and ErrLimit for a patch over the limits.
func Parse(text string) ([]Change, error) {
	if len(text) > MaxPatch {
		return nil, fmt.Errorf("%w: the patch has %d bytes, and the limit is %d: split it", ErrLimit, len(text), MaxPatch)
	}
	p, err := newPatchParser(text)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for p.skipBlank(); !p.done(); p.skipBlank() {
		if len(changes) == MaxChanges {
			return nil, errorAt(p.number(), ErrLimit, "the limit is %d files in a patch: split it", MaxChanges)
		}
		c, err := p.section()
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	if len(changes) == 0 {
		return nil, ErrEmpty
	}
	return changes, nil
}

// A patchParser reads the lines between the markers of a patch.
type patchParser struct {
	lines []string // without line ends
	at    int      // index of the next line
	first int      // number of lines[0] in the patch, from 1
}

// newPatchParser splits a patch into lines and removes blank lines around it, the
// heredoc and the markers of its begin and end.
func newPatchParser(text string) (*patchParser, error) {
	text = strings.TrimPrefix(text, bom)
	if n := strings.Count(text, "\n"); n > maxPatchLines {
		return nil, fmt.Errorf("%w: the patch has %d lines, and the limit is %d: split it", ErrLimit, n, maxPatchLines)
	}
	p := &patchParser{lines: strings.Split(text, "\n"), first: 1}
	for i, line := range p.lines {
		p.lines[i] = strings.TrimSuffix(line, "\r")
	}
	if p.trimBlank(); len(p.lines) == 0 {
		return nil, errorAt(1, ErrMalformed, "the first line of a patch must be %s", beginMarker)
	}
	if err := p.removeHeredoc(); err != nil {
		return nil, err
	}
	if len(p.lines) == 0 || strings.TrimSpace(p.lines[0]) != beginMarker {
		return nil, errorAt(p.first, ErrMalformed, "the first line of a patch must be %s", beginMarker)
	}
	last := len(p.lines) - 1
	if last == 0 || strings.TrimSpace(p.lines[last]) != endMarker {
		return nil, errorAt(p.first+last, ErrMalformed, "the last line of a patch must be %s", endMarker)
	}
	p.lines, p.first = p.lines[1:last], p.first+1
	return p, nil
}

// trimBlank removes the blank lines at both ends.
func (p *patchParser) trimBlank() {
	for len(p.lines) > 0 && isBlank(p.lines[0]) {
		p.lines, p.first = p.lines[1:], p.first+1
	}
	for len(p.lines) > 0 && isBlank(p.lines[len(p.lines)-1]) {
		p.lines = p.lines[:len(p.lines)-1]
	}
}

// heredoc matches the first line of a shell command with a heredoc. Its second group is
// the quote before the word that ends the heredoc, and the fourth the quote after it.
var heredoc = regexp.MustCompile(`^\s*((?:cat|apply_patch)\s+)?<<-?\s*(['"]?)(\w+)(['"]?)\s*$`)

// removeHeredoc removes the first and the last line if they begin and end a heredoc. It
// returns ErrMalformed for a heredoc without an end.
func (p *patchParser) removeHeredoc() error {
	if len(p.lines) == 0 {
		return nil
	}
	match := heredoc.FindStringSubmatch(p.lines[0])
	if match == nil || match[2] != match[4] {
		return nil
	}
	last := len(p.lines) - 1
	if word := match[3]; last == 0 || strings.TrimSpace(p.lines[last]) != word {
		return errorAt(p.first+last, ErrMalformed, "the heredoc of line %d must end with a line %s", p.first, word)
	}
	p.lines, p.first = p.lines[1:last], p.first+1
	p.trimBlank()
	return nil
}

// done reports whether no line is left.
func (p *patchParser) done() bool { return p.at >= len(p.lines) }

// number returns the number of the next line in the patch.
func (p *patchParser) number() int { return p.first + p.at }

// skipBlank skips blank lines.
func (p *patchParser) skipBlank() {
	for !p.done() && isBlank(p.lines[p.at]) {
		p.at++
	}
}

// blankUpToMarker reports whether only blank lines are left before the next marker, @@ or
// the end of the patch.
func (p *patchParser) blankUpToMarker() bool {
	for _, line := range p.lines[p.at:] {
		if !isBlank(line) {
			return isMarker(line) || isHeader(line)
		}
	}
	return true
}

// isBlank reports whether a line has only white space.
func isBlank(line string) bool { return strings.TrimSpace(line) == "" }

// isMarker reports whether a line begins like a marker.
func isMarker(line string) bool { return strings.HasPrefix(line, "***") }

// marked returns the path after marker if the line has that marker.
func marked(line, marker string) (path string, ok bool) {
	rest, ok := strings.CutPrefix(line, marker)
	return strings.TrimSpace(rest), ok
}

// section parses one file section.
func (p *patchParser) section() (Change, error) {
	number, line := p.number(), p.lines[p.at]
	p.at++
	for _, kind := range []struct {
		marker string
		parse  func(number int, path string) (Change, error)
	}{{addMarker, p.add}, {deleteMarker, p.delete}, {updateMarker, p.update}} {
		path, ok := marked(line, kind.marker)
		if ok && path == "" {
			return nil, errorAt(number, ErrMalformed, "a path must follow %s", kind.marker)
		}
		if ok {
			return kind.parse(number, path)
		}
	}
	return nil, errorAt(number, ErrMalformed, "%s does not start a file section: use %s, %s or %s and a path",
		quote(line), addMarker, deleteMarker, updateMarker)
}

// add parses the lines of an added file.
func (p *patchParser) add(_ int, path string) (Change, error) {
	var content strings.Builder
	for !p.done() && !isMarker(p.lines[p.at]) {
		line := p.lines[p.at]
		if isBlank(line) && p.blankUpToMarker() {
			p.skipBlank()
			break
		}
		text, ok := strings.CutPrefix(line, string(Inserted))
		if !ok {
			return nil, errorAt(p.number(), ErrMalformed, "every line of an added file must begin with +, and this is %s", quote(line))
		}
		content.WriteString(text + "\n")
		p.at++
	}
	return Add{path, content.String()}, nil
}

// delete returns the Delete of a path. The section has no further line.
func (p *patchParser) delete(_ int, path string) (Change, error) { return Delete{path}, nil }

// update parses the move and the hunks of an updated file. number is the line of the
// marker.
func (p *patchParser) update(number int, path string) (Change, error) {
	u := Update{Path: path}
	if !p.done() {
		to, ok := marked(p.lines[p.at], moveMarker)
		if ok && to == "" {
			return nil, errorAt(p.number(), ErrMalformed, "a path must follow %s", moveMarker)
		}
		if ok {
			u.MoveTo = to
			p.at++
		}
	}
	changes := false
	for p.skipToHunk(); !p.done() && !isMarker(p.lines[p.at]); p.skipToHunk() {
		h, err := p.hunk()
		if err != nil {
			return nil, err
		}
		changes = changes || h.changes()
		u.Hunks = append(u.Hunks, h)
	}
	if !changes && (u.MoveTo == "" || len(u.Hunks) > 0) {
		return nil, errorAt(number, ErrMalformed, "the update of %s has no line with - or +", path)
	}
	return u, nil
}
