package patch

import (
	"errors"
	"fmt"
)

// The errors of this package. Callers match them with errors.Is.
var (
	ErrMalformed = errors.New("the patch is malformed")
	ErrEmpty     = errors.New("the patch has no file section")
	ErrMismatch  = errors.New("the hunk does not match the file")
	ErrLimit     = errors.New("a limit of patches is exceeded")
)

// The limits of a patch.
const (
	// MaxPatch is the maximum size of a patch, in bytes.
	MaxPatch = 4 << 20
	// MaxChanges is the maximum number of file sections of a patch.
	MaxChanges = 256
	// maxPatchLines is the maximum number of lines of a patch.
	maxPatchLines = 1 << 19
)

// A Change is one file section of a patch: an [Add], a [Delete] or an [Update]. Paths are
// as in the patch, without white space around them, and not empty.
type Change interface{ isChange() }

// An Add creates a file.
type Add struct {
	Path    string
	Content string // lines that all end with LF; empty for an empty file
}

// A Delete removes a file.
type Delete struct{ Path string }

// An Update changes the lines of a file, moves it to another path, or both.
type Update struct {
	Path   string
	MoveTo string // empty: the file keeps its path
	Hunks  []Hunk // empty only if the file moves
}

func (Add) isChange()    {}
func (Delete) isChange() {}
func (Update) isChange() {}

// A Hunk is a group of lines of an Update that follow each other in the file.
type Hunk struct {
	Number    int      // of the first line of the hunk in the patch, from 1
	Headers   []string // lines of the file above the hunk
	Lines     []Line   // not empty
	EndOfFile bool     // the hunk ends where the file ends
}

// old returns the unchanged and the removed lines of the hunk.
func (h Hunk) old() []string { return h.side(Removed) }

// new returns the unchanged and the inserted lines of the hunk.
func (h Hunk) new() []string { return h.side(Inserted) }

// side returns the unchanged lines and the lines of the kind op, in order.
func (h Hunk) side(op Op) []string {
	var side []string
	for _, line := range h.Lines {
		if line.Op == Unchanged || line.Op == op {
			side = append(side, line.Text)
		}
	}
	return side
}

// A Line is a line of a hunk.
type Line struct {
	Op   Op
	Text string // without line end
}

// An Op is the first character of a line of a hunk. The zero Op is invalid.
type Op byte

// The operations on a line.
const (
	Unchanged Op = ' '
	Removed   Op = '-'
	Inserted  Op = '+'
)

// A lineError is an error at a line of the patch.
type lineError struct {
	number  int    // of the line, from 1
	problem string // for the model
	kind    error  // one of the errors of this package
}

// errorAt returns a *lineError with a formatted problem.
func errorAt(number int, kind error, format string, args ...any) error {
	return &lineError{number, fmt.Sprintf(format, args...), kind}
}

// Error returns the line number and the problem.
func (e *lineError) Error() string {
	return fmt.Sprintf("line %d of the patch: %s", e.number, e.problem)
}

// Unwrap returns one of the errors of this package.
func (e *lineError) Unwrap() error { return e.kind }

// quote returns a line for an error text, quoted and cut after 120 bytes.
func quote(line string) string {
	const limit = 120
	if len(line) > limit {
		return fmt.Sprintf("%q...", line[:limit])
	}
	return fmt.Sprintf("%q", line)
}
