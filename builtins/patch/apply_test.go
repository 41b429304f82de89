package patch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// update returns the Update of a patch that has only hunks.
func update(t testing.TB, hunks string) Update {
	t.Helper()
	changes, err := Parse(wrap("*** Update File: f\n" + hunks))
	if err != nil {
		t.Fatalf("Parse(%q) = %v", hunks, err)
	}
	return changes[0].(Update)
}

// Scenario 151.
func TestHunksApply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, hunks, after string }{
		"replace":              {"a\nb\nc\n", "@@\n a\n-b\n+x\n c", "a\nx\nc\n"},
		"literally":            {"a\n", "-a\n+$1 $& \\0 ${x}", "$1 $& \\0 ${x}\n"},
		"first of equal":       {"a\nb\na\nb\n", "-a\n+x", "x\nb\na\nb\n"},
		"in order":             {"a\nb\na\nb\n", "-a\n+x\n@@\n-a\n+y", "x\nb\ny\nb\n"},
		"header":               {"f\n a\ng\n a\n", "@@ g\n- a\n+ x", "f\n a\ng\n x\n"},
		"nested headers":       {"A\n f\n  1\nB\n g\n  1\n f\n  1\n", "@@ B\n@@  f\n-  1\n+  2", "A\n f\n  1\nB\n g\n  1\n f\n  2\n"},
		"insert below header":  {"f\ng\n", "@@ f\n+x", "f\nx\ng\n"},
		"insert at end":        {"f\ng\n", "@@\n+x\n\n", "f\ng\nx\n"},
		"insert at marked end": {"f\ng\n", "@@ f\n+x\n*** End of File", "f\ng\nx\n"},
		"into an empty file":   {"", "@@\n+x\n+y", "x\ny\n"},
		"end of file":          {"m\ne\nx\nm\ne\n", "@@\n m\n-e\n+y\n*** End of File", "m\ne\nx\nm\ny\n"},
		"end before fuzzy":     {"m\nx\nm \n", "@@\n-m\n+y\n*** End of File", "m\nx\ny\n"},
		"exact first":          {"a \na\n", "-a\n+x", "a \nx\n"},
		"trailing space":       {"a  \nb\t\n", "@@\n a\n-b\n+x", "a  \nx\n"},
		"trailing first":       {"  a\na \n", "-a\n+x", "  a\nx\n"},
		"indentation":          {"\t\ta\n\t\tb\n", "@@\n a\n-b\n+\t\tx", "\t\ta\n\t\tx\n"},
		"typography":           {"it\u2019s \u2014 \u201cx\u201d\u00a0y\u2026\nz\n", "@@\n it's - \"x\" y...\n-z\n+w", "it\u2019s \u2014 \u201cx\u201d\u00a0y\u2026\nw\n"},
		"typography of patch":  {"a - b\n", "-a \u2013 b\n+x", "x\n"},
		"byte order mark":      {"\ufeffa\nb\n", "-a\n+x", "\ufeffx\nb\n"},
		"one mark":             {"\ufeffa\nb\n", "-\ufeffa\n+\ufeffx", "\ufeffx\nb\n"},
		"mark of an empty":     {"\ufeff", "+x", "\ufeffx\n"},
		"CRLF":                 {"a\r\nb\r\nc\r\n", " a\n-b\n+x\n+y\n c", "a\r\nx\r\ny\r\nc\r\n"},
		"CRLF first line":      {"a\r\nb\r\n", "+x\n a", "x\r\na\r\nb\r\n"},
		"mixed ends":           {"a\r\nb\nc\r\nd\n", " a\n-b\n+x\n c\n+y\n d", "a\r\nx\nc\r\ny\r\nd\n"},
		"no final line end":    {"a\nb", "-a\n+x", "x\nb"},
		"kept last line":       {"a\nb", "-a\n+x\n b", "x\nb"},
		"written last line":    {"a\nb", "-b\n+x", "a\nx\n"},
		"below last line":      {"a\r\nb", " b\n+x", "a\r\nb\r\nx\r\n"},
		"only line":            {"a", " a\n+x", "a\nx\n"},
		"removed last line":    {"a\nb", "-b", "a\n"},
		"everything removed":   {"a\nb\n", "-a\n-b", ""},
		"trailing blank":       {"a\nb\n", "-b\n+x\n ", "a\nx\n"},
		"separating blank":     {"a\nb\nc\n", "-a\n+x\n\n@@\n-c\n+y\n\n", "x\nb\ny\n"},
		"blank in the file":    {"a\n\na\nb\n", "-a\n+x\n\n", "x\n\na\nb\n"},
		"lone CR":              {"a\rb\nc\n", "-c\n+x", "a\rb\nx\n"},
		"context hunk":         {"a\nb\na\n", "@@\n b\n@@\n-a\n+x", "a\nb\nx\n"},
	} {
		got, err := update(t, c.hunks).Apply(c.before)
		if err != nil || got != c.after {
			t.Errorf("%s: Apply to %q = %q, %v, want %q", name, c.before, got, err, c.after)
		}
	}
}

// Scenario 151.
func TestHunksThatDoNotMatchSayWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, hunks, want string }{
		"absent":         {"a\n", "-b\n+c", "line 3 of the patch: the file does not have the old lines of the hunk at all. Read the file again. Old lines:\nb"},
		"below":          {"a\nb\n", "-a\n+x\n@@\n-c", "line 5 of the patch: the file does not have the old lines of the hunk below its line 1."},
		"out of order":   {"a\nb\n", "-b\n+x\n@@\n-a\n+y", "the lines of the hunk begin at line 1 of the file, above the place"},
		"overlapping":    {"a\nb\n", "-a\n-b\n+x\n@@\n-b\n+y", "the lines of the hunk begin at line 2 of the file, above the place"},
		"not at the end": {"a\nb\n", "-a\n*** End of File", "the lines of the hunk begin at line 1 of the file and do not end at its end"},
		"header":         {"a\n", "@@ b\n-a", `the file has no line "b" at all: after @@ give a whole line of the file`},
		"second header":  {"a\nb\n", "@@ b\n@@ a\n-b", `the file has no line "a" below its line 2`},
		"empty file":     {"", "-a", "the file does not have the old lines"},
		"applied":        {"x\nb\n", "-a\n+x", "the file does not have the old lines of the hunk, and has its new lines at line 1: the patch seems to be applied already."},
		"many lines":     {"", "-1\n-2\n-3\n-4\n-5\n-6\n-7", "\n5\n... and 2 more"},
	} {
		got, err := update(t, c.hunks).Apply(c.before)
		if !errors.Is(err, ErrMismatch) || !strings.Contains(fmt.Sprint(err), c.want) || got != "" {
			t.Errorf("%s: Apply = %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestAppliedAgainFails(t *testing.T) {
	t.Parallel()
	u := update(t, "@@ f\n a\n-b\n+c\n@@\n d\n+e\n g")
	once, err := u.Apply("f\na\nb\nd\ng\n")
	if err != nil {
		t.Fatal(err)
	}
	if twice, err := u.Apply(once); !errors.Is(err, ErrMismatch) {
		t.Errorf("Apply = %q, %v, want ErrMismatch", twice, err)
	}
}

func TestWorkIsBounded(t *testing.T) {
	t.Parallel()
	s, err := newLineSearch("a\nb\n")
	if err != nil {
		t.Fatal(err)
	}
	s.comparisons = maxComparisons
	if at, err := s.find([]string{"b"}, 0, false); err == nil || !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "comparisons") {
		t.Errorf("find after too many comparisons = %d, %v, want ErrLimit", at, err)
	}
	if _, err := update(t, "+a").Apply(strings.Repeat("\n", maxTextLines)); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "lines") {
		t.Errorf("Apply to too many lines = %v, want ErrLimit", err)
	}
}

// Scenario 151.
func FuzzApply(f *testing.F) {
	f.Add("a\nb\n", "@@\n-a\n+x")
	f.Add("\ufeffa\r\nb", "@@ a\n b\n+x\n*** End of File")
	f.Add("f\n  a\u00a0\n", "@@ f\n@@\n a\n+\ufeff\n\n\n")
	f.Add("", "+x")
	f.Fuzz(func(t *testing.T, before, hunks string) {
		changes, err := Parse(wrap("*** Update File: f\n" + hunks))
		if err != nil {
			return
		}
		u, ok := changes[0].(Update)
		if !ok {
			t.Fatalf("Parse = %+v", changes)
		}
		after, err := u.Apply(before)
		if err != nil {
			if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrLimit) || after != "" {
				t.Fatalf("Apply = %q, %v", after, err)
			}
			return
		}
		checkUnchangedLines(t, u, before, after)
	})
}

// checkUnchangedLines fails the test unless after has each line of before, byte for
// byte and in order, but those that u removes, and as many further lines as u inserts.
func checkUnchangedLines(t *testing.T, u Update, before, after string) {
	t.Helper()
	removed, inserted := 0, 0
	for _, h := range u.Hunks {
		removed += len(slices.DeleteFunc(slices.Clone(h.Lines), func(line Line) bool { return line.Op != Removed }))
		inserted += len(slices.DeleteFunc(slices.Clone(h.Lines), func(line Line) bool { return line.Op != Inserted }))
	}
	a, b := splitLines(strings.TrimPrefix(before, bom)), splitLines(strings.TrimPrefix(after, bom))
	if strings.HasPrefix(before, bom) && !strings.HasPrefix(after, bom) {
		t.Fatalf("Apply to %q gives %q without its byte order mark", before, after)
	}
	if n := len(a) - removed + inserted; len(b) != n {
		t.Fatalf("Apply to %q gives %q with %d lines, want %d", before, after, len(b), n)
	}
	if len(a) > 0 && len(b) > 0 && len(a) < 200 && len(b) < 200 {
		if last := len(a) - 1; !strings.HasSuffix(a[last], "\n") && !slices.Contains(b, a[last]) { // it may have got a line end
			a[last] += string(b[len(b)-1][len(content(b[len(b)-1])):])
		}
		if kept := len(common(a, b)); kept < len(a)-removed-1 {
			t.Fatalf("Apply to %q gives %q, which keeps %d lines of %d less %d", before, after, kept, len(a), removed)
		}
	}
}

// Scenario 151.
func FuzzDiffApplies(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nx\nc\n", uint8(1))
	f.Add("a\r\nb\r\n", "b\r\nc\r\n", uint8(0))
	f.Add("\ufeffa\nb", "\ufeffb\na\n", uint8(2))
	f.Add("", "a\n", uint8(3))
	f.Add("a\n\n\na\n", "\n\n", uint8(2))
	f.Add("0", "\xef\xbb\r\xbf", uint8(116))
	f.Fuzz(func(t *testing.T, before, after string, size uint8) {
		before, after = unixText(before), unixText(after)
		hunks := diffHunks(splitLines(before), splitLines(after), int(size%7)+1)
		if hunks == "" {
			return
		}
		for _, end := range []string{"\n", "\r\n"} {
			if before == "" && end != "\n" { // no line shows the line end
				continue
			}
			from, to := strings.ReplaceAll(before, "\n", end), strings.ReplaceAll(after, "\n", end)
			for _, mark := range []string{"", bom} {
				got, err := update(t, hunks).Apply(mark + from)
				if err != nil || got != mark+to {
					t.Fatalf("Apply %q to %q = %q, %v, want %q", hunks, mark+from, got, err, mark+to)
				}
			}
		}
	})
}

// unixText returns a text of at most 60 lines that end with LF, without CR and byte order
// marks.
func unixText(text string) string {
	text = strings.ReplaceAll(text, "\r", "")
	for strings.Contains(text, bom) { // the bytes around a mark can form another one
		text = strings.ReplaceAll(text, bom, "")
	}
	lines := splitLines(text)
	text = strings.Join(lines[:min(len(lines), 60)], "")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// splitLines returns the lines of a text with their line ends.
func splitLines(text string) []string { return slices.Collect(strings.Lines(text)) }

// diffHunks returns hunks that cover all lines of a and change them to b, each with at
// most size old lines. It returns an empty text if a and b are equal.
func diffHunks(a, b []string, size int) string {
	if slices.Equal(a, b) {
		return ""
	}
	kept := append(common(a, b), "\x00none")
	var out strings.Builder
	i, j, k, old := 0, 0, 0, 0
	for i < len(a) || j < len(b) {
		if old == size && i < len(a) {
			out.WriteString("@@\n")
			old = 0
		}
		switch {
		case i < len(a) && a[i] != kept[k]:
			out.WriteString("-" + a[i])
			i, old = i+1, old+1
		case j < len(b) && b[j] != kept[k]:
			out.WriteString("+" + b[j])
			j++
		default:
			out.WriteString(" " + a[i])
			i, j, k, old = i+1, j+1, k+1, old+1
		}
	}
	return "@@\n" + out.String()
}

// common returns a longest common subsequence of two lists of lines.
func common(a, b []string) []string {
	lengths := make([][]int, len(a)+1)
	for i := range lengths {
		lengths[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			lengths[i][j] = max(lengths[i+1][j], lengths[i][j+1])
			if a[i] == b[j] {
				lengths[i][j] = lengths[i+1][j+1] + 1
			}
		}
	}
	var kept []string
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			kept = append(kept, a[i])
			i, j = i+1, j+1
		case lengths[i+1][j] >= lengths[i][j+1]:
			i++
		default:
			j++
		}
	}
	return kept
}
