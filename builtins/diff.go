package builtins

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// The limits of a diff. Lines that the beginnings and the ends of both texts
// have in common are cut off first and cost no memory.
const (
	// maxDiffInput is the size of both texts together, in bytes, up to which they are
	// compared line by line.
	maxDiffInput = 2 << 20
	// maxDiffSide is the size of the excerpt of each text if maxDiffInput is exceeded, in
	// bytes.
	maxDiffSide = 64 << 10
	// diffContext is the number of unchanged lines around a change.
	diffContext = udiff.DefaultContextLines
)

// A diffResult is the difference between two versions of a file.
type diffResult struct {
	patch     string // a unified diff
	additions int    // added lines
	deletions int    // removed lines
	truncated bool   // the patch does not contain all lines
}

// diff compares two versions of a file and returns a unified diff with file as its name.
// It compares line by line up to maxDiffInput, after it removed the lines that both
// versions begin and end with. Longer texts yield a truncated patch.
func diff(file, before, after string) diffResult {
	head, tail := commonLines(before, after)
	first := strings.Count(before[:head], "\n")
	before, after = before[head:len(before)-tail], after[head:len(after)-tail]
	if len(before)+len(after) > maxDiffInput {
		return truncatedDiff(file, before, after, first)
	}
	d := diffResult{}
	var b strings.Builder
	n := 0
	for line := range strings.Lines(udiff.Unified("a/"+file, "b/"+file, before, after)) {
		switch n++; {
		case n <= 2: // the names of the file
		case line[0] == '+':
			d.additions++
		case line[0] == '-':
			d.deletions++
		case line[0] == '@':
			line = renumber(line, first)
		}
		b.WriteString(line)
	}
	d.patch = b.String()
	return d
}

// renumber adds the number by to both line numbers in header, the header of a hunk. The
// parameter by is the number of lines before the compared part of the text.
func renumber(header string, by int) string {
	fields := strings.Fields(header) // @@ -1,2 +1,3 @@
	for i, field := range fields {
		if number, _, _ := strings.Cut(field[1:], ","); field[0] == '-' || field[0] == '+' {
			if n, err := strconv.Atoi(number); err == nil {
				fields[i] = field[:1] + strconv.Itoa(n+by) + field[1+len(number):]
			}
		}
	}
	return strings.Join(fields, " ") + "\n"
}

// commonLines returns the sizes, in bytes, of the whole lines that two texts have in
// common at their beginning and at their end. It leaves out the lines that a diff shows
// as context.
func commonLines(a, b string) (head, tail int) {
	n := min(len(a), len(b))
	for head < n && a[head] == b[head] {
		head++
	}
	if head == len(a) && head == len(b) {
		return 0, 0
	}
	for tail < n-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	at := head
	for range diffContext + 1 {
		at = strings.LastIndexByte(a[:max(at, 0)], '\n')
	}
	end := len(a) - tail
	for range diffContext + 1 {
		next := strings.IndexByte(a[end:], '\n')
		if next < 0 {
			end = len(a)
			break
		}
		end += next + 1
	}
	return at + 1, len(a) - end
}

// truncatedDiff returns a patch with the first maxDiffSide bytes of each side, for texts
// that are too long to compare. first is the number of lines before the change.
func truncatedDiff(file, before, after string, first int) diffResult {
	d := diffResult{additions: countLines(after), deletions: countLines(before), truncated: true}
	var b strings.Builder
	fmt.Fprintf(&b, "--- a/%s\n+++ b/%s\n@@ -%d,%d +%d,%d @@\n", file, file, first+1, d.deletions, first+1, d.additions)
	for _, side := range []struct{ sign, text string }{{"-", before}, {"+", after}} {
		shown := strings.ToValidUTF8(side.text[:min(len(side.text), maxDiffSide)], "")
		for line := range strings.Lines(shown) {
			b.WriteString(side.sign + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	d.patch = b.String()
	return d
}

// countLines returns the number of lines of a text. A last line without a line end
// counts.
func countLines(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}
