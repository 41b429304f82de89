package patch

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// wrap returns a patch with the given lines between its markers.
func wrap(lines string) string {
	return "*** Begin Patch\n" + lines + "\n*** End Patch"
}

// Scenario 151.
func TestEverySectionIsParsed(t *testing.T) {
	t.Parallel()
	got, err := Parse(wrap(strings.Join([]string{
		"*** Add File: new.txt", "+one", "+", "++two",
		"*** Delete File:  old dir/b.txt ",
		"*** Update File: a.go", "*** Move to: b.go",
		"@@ class A", "@@   def f():", " x", "", "-y", "+z", "*** End of File",
		"*** Add File: empty",
		"*** Update File: c.go", "-first hunk needs no header", "@@", "+last", "",
		"*** Update File: moved", "*** Move to: here",
	}, "\n")))
	want := []Change{
		Add{"new.txt", "one\n\n+two\n"},
		Delete{"old dir/b.txt"},
		Update{"a.go", "b.go", []Hunk{{9, []string{"class A", "  def f():"}, []Line{{Unchanged, "x"}, {Unchanged, ""}, {Removed, "y"}, {Inserted, "z"}}, true}}},
		Add{"empty", ""},
		Update{"c.go", "", []Hunk{{18, nil, []Line{{Removed, "first hunk needs no header"}}, false}, {19, nil, []Line{{Inserted, "last"}}, false}}},
		Update{"moved", "here", nil},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Parse = %+v, %v, want %+v", got, err, want)
	}
}

// Scenario 151.
func TestWrappersAreRemoved(t *testing.T) {
	t.Parallel()
	bare := wrap("*** Update File: a\n@@\n-b\n+c")
	want, err := Parse(bare)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"heredoc":        "<<'EOF'\n" + bare + "\nEOF\n",
		"plain heredoc":  "<<PATCH\n" + bare + "\nPATCH",
		"double quotes":  "<<\"EOF\"\n" + bare + "\nEOF",
		"cat":            "cat <<'EOF'\n" + bare + "\nEOF",
		"command":        "apply_patch <<'EOF'\n\n" + bare + "\n\nEOF\n\n",
		"CRLF":           strings.ReplaceAll(bare, "\n", "\r\n"),
		"CRLF heredoc":   strings.ReplaceAll("<<'EOF'\n"+bare+"\nEOF\n", "\n", "\r\n"),
		"blank lines":    "\n \n" + bare + "\n\n",
		"byte order":     "\ufeff" + bare,
		"marker spacing": strings.ReplaceAll(bare, "Patch", "Patch  "),
	} {
		got, err := Parse(text)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: Parse = %v, %v", name, got, err)
			continue
		}
		u := got[0].(Update)
		u.Hunks[0].Number = want[0].(Update).Hunks[0].Number
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: Parse = %+v, want %+v", name, got, want)
		}
	}
}

// Scenario 151.
func TestMalformedPatchesAreRejectedByLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
		kind       error
	}{
		{"", "line 1 of the patch: the first line", ErrMalformed},
		{"diff --git a/x b/x", "line 1 of the patch: the first line", ErrMalformed},
		{"Here it is:\n" + wrap("*** Delete File: a"), "line 1 of the patch: the first line", ErrMalformed},
		{"*** Begin Patch", "line 1 of the patch: the last line", ErrMalformed},
		{"*** Begin Patch\n*** Delete File: a\n", "line 2 of the patch: the last line", ErrMalformed},
		{wrap("*** Delete File: a") + "\nthat is all", "line 4 of the patch: the last line", ErrMalformed},
		{"<<'EOF'\n" + wrap("*** Delete File: a"), "line 4 of the patch: the heredoc of line 1 must end with a line EOF", ErrMalformed},
		{"<<'EOF", "line 1 of the patch: the first line", ErrMalformed},
		{"*** Begin Patch\n*** End Patch", ErrEmpty.Error(), ErrEmpty},
		{wrap("\n"), ErrEmpty.Error(), ErrEmpty},
		{wrap("text"), `line 2 of the patch: "text" does not start a file section`, ErrMalformed},
		{wrap("*** Rename File: a"), "does not start a file section", ErrMalformed},
		{wrap("*** Add File:"), "line 2 of the patch: a path must follow *** Add File:", ErrMalformed},
		{wrap("*** Update File:  "), "a path must follow", ErrMalformed},
		{wrap("*** Update File: a\n*** Move to: \n@@\n+b"), "line 3 of the patch: a path must follow *** Move to:", ErrMalformed},
		{wrap("*** Add File: a\n+b\nc"), `line 4 of the patch: every line of an added file must begin with +, and this is "c"`, ErrMalformed},
		{wrap("*** Add File: a\n+b\n\n+c"), "line 4 of the patch: every line of an added file", ErrMalformed},
		{wrap("*** Delete File: a\n-b"), `line 3 of the patch: "-b" does not start`, ErrMalformed},
		{wrap("*** Update File: a"), "line 2 of the patch: the update of a has no line with - or +", ErrMalformed},
		{wrap("*** Update File: a\n@@\n b"), "the update of a has no line with - or +", ErrMalformed},
		{wrap("*** Update File: a\n*** Move to: c\n@@\n b"), "the update of a has no line with - or +", ErrMalformed},
		{wrap("*** Update File: a\n@@ b"), "line 3 of the patch: the hunk has no lines", ErrMalformed},
		{wrap("*** Update File: a\n@@\nb"), `line 4 of the patch: every line of a hunk must begin with a space, - or +, and this is "b"`, ErrMalformed},
		{wrap("*** Update File: a\n@@b\n-c"), `line 3 of the patch: every line of a hunk must begin`, ErrMalformed},
		{wrap("*** Update File: a\n@@ -1,2 +1,3 @@ f\n-c"), `line 3 of the patch: "@@ -1,2 +1,3 @@ f" has line numbers`, ErrMalformed},
		{wrap("*** Update File: a\n-b\n*** End of File\n-c"), `line 5 of the patch: "-c" belongs to no hunk`, ErrMalformed},
		{wrap("*** Update File: a\n-b\n*** End of Files"), "line 4 of the patch: \"*** End of Files\" does not start", ErrMalformed},
		{wrap("*** Update File: a\n*** End of File"), "line 2 of the patch: the update of a has no line", ErrMalformed},
		{wrap(strings.Repeat("*** Delete File: a\n", MaxChanges+1)), "line 258 of the patch: the limit is 256 files", ErrLimit},
		{wrap(strings.Repeat("x", MaxPatch)), "bytes, and the limit is", ErrLimit},
		{wrap(strings.Repeat("\n", maxPatchLines)), "lines, and the limit is", ErrLimit},
	} {
		got, err := Parse(c.text)
		if !errors.Is(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.want) || got != nil {
			t.Errorf("Parse(%.60q) = %v, %v, want %q", c.text, got, err, c.want)
		}
	}
}

// Scenario 151.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		wrap("*** Add File: a\n+b"), wrap("*** Delete File: a"), wrap("*** Update File: a\n*** Move to: b\n@@ c\n d\n-e\n+f\n*** End of File"),
		"<<'EOF'\n" + wrap("*** Add File: a\n+b") + "\nEOF", wrap("*** Update File: a\n\n@@\n\n-b\n\n@@\n+c\n"), "\ufeff*** Begin Patch\r\n*** End Patch\r\n",
		wrap("*** Update File: a\n@@\n+b\n*** End of File\n\n*** Add File: c"),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		changes, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrEmpty) && !errors.Is(err, ErrLimit) || changes != nil {
				t.Fatalf("Parse = %v, %v", changes, err)
			}
			return
		}
		again, err := Parse(render(changes))
		if err != nil {
			t.Fatalf("Parse of the rendered patch %q = %v", render(changes), err)
		}
		if a, b := fmt.Sprintf("%+q", withoutNumbers(changes)), fmt.Sprintf("%+q", withoutNumbers(again)); a != b {
			t.Fatalf("the patch reads %s, and rendered and parsed again %s", a, b)
		}
	})
}

// render returns the patch of changes.
func render(changes []Change) string {
	var b strings.Builder
	for _, c := range changes {
		switch c := c.(type) {
		case Add:
			b.WriteString(addMarker + " " + c.Path + "\n")
			for line := range strings.Lines(c.Content) {
				b.WriteString("+" + line)
			}
		case Delete:
			b.WriteString(deleteMarker + " " + c.Path + "\n")
		case Update:
			b.WriteString(updateMarker + " " + c.Path + "\n")
			if c.MoveTo != "" {
				b.WriteString(moveMarker + " " + c.MoveTo + "\n")
			}
			for _, h := range c.Hunks {
				b.WriteString(renderHunk(h))
			}
		}
	}
	return beginMarker + "\n" + b.String() + endMarker
}

// renderHunk returns the lines of a hunk.
func renderHunk(h Hunk) string {
	var b strings.Builder
	b.WriteString("@@\n")
	for _, header := range h.Headers {
		b.WriteString("@@ " + header + "\n")
	}
	for _, line := range h.Lines {
		b.WriteString(string(rune(line.Op)) + line.Text + "\n")
	}
	if h.EndOfFile {
		b.WriteString(eofMarker + "\n")
	}
	return b.String()
}

// withoutNumbers returns changes without the line numbers of the hunks.
func withoutNumbers(changes []Change) []Change {
	for _, c := range changes {
		if u, ok := c.(Update); ok {
			for i := range u.Hunks {
				u.Hunks[i].Number = 0
			}
		}
	}
	return changes
}
