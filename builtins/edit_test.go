package builtins

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// Scenario 148.
func TestEditReplacesExactly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "src/a.go", "package a\n\nvar x = 1\n-- y\n")
	out, text := must[editResult](t, b, "edit", input{"path": "src/a.go", "oldString": "var x = 1\n-- y", "newString": "var x = $1\n$&"})
	if got, want := b.content(t, "src/a.go"), "package a\n\nvar x = $1\n$&\n"; got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
	if out.Replacements != 1 || len(out.Files) != 1 {
		t.Fatalf("edit = %+v", out)
	}
	f := out.Files[0]
	if f.File != "src/a.go" || f.Status != "modified" || f.Additions != 2 || f.Deletions != 2 {
		t.Errorf("edit changed %+v, want 2 additions and 2 deletions in src/a.go", f)
	}
	if want := "--- a/src/a.go\n+++ b/src/a.go\n@@ -1,4 +1,4 @@\n package a\n \n-var x = 1\n--- y\n+var x = $1\n+$&\n"; f.Patch != want {
		t.Errorf("the patch is %q, want %q", f.Patch, want)
	}
	want := "Edited file successfully: src/a.go\nReplacements: 1\n\n```diff\n- var x = 1\n- -- y\n+ var x = $1\n+ $&\n```"
	if text != want {
		t.Errorf("the model reads %q, want %q", text, want)
	}
	if got := fmt.Sprint(b.order(), b.asked[0].Save); got != "[edit src/a.go] [*]" {
		t.Errorf("asked %s", got)
	}
}

// Scenario 148.
func TestEditSaysWhyNot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "one two two aaa\n")
	b.put(t, "binary", "a\xff")
	for _, c := range []struct{ path, before, after, want string }{
		{"a", "one", "one", "No changes to apply: oldString and newString are identical."},
		{"a", "", "x", "oldString must not be empty. Use write to create or overwrite a file."},
		{"a", "three", "x", "Could not find oldString in the file. It must match exactly, including whitespace and indentation."},
		{"a", "two", "x", "Found multiple exact matches for oldString. Provide more surrounding context or set replaceAll to true."},
		{"a", "aa", "x", "Found multiple exact matches for oldString."},
		{"a", "\n", "\r\n", "No changes to apply"},
		{"none", "a", "b", "Unable to edit none: no such file or directory"},
		{"binary", "a", "b", "Unable to edit binary: it is not UTF-8 text"},
		{".", "a", "b", "Unable to edit ."},
	} {
		b.fails(t, "edit", input{"path": c.path, "oldString": c.before, "newString": c.after}, c.want)
	}
	if b.content(t, "a") != "one two two aaa\n" {
		t.Errorf("the file holds %q", b.content(t, "a"))
	}
}

// Scenario 148.
func TestDeniedEditTellsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "one")
	b.decide = refuse("edit")
	var texts []string
	for _, c := range []struct{ path, before string }{{"a", "one"}, {"a", "none"}, {"missing", "x"}} {
		_, err := b.run(t, "edit", input{"path": c.path, "oldString": c.before, "newString": "y"})
		denied, ok := errors.AsType[*domain.Denied](err)
		if !ok || denied.Resource != c.path {
			t.Fatalf("edit = %v, want a denial", err)
		}
		texts = append(texts, strings.TrimSuffix(err.Error(), c.path))
	}
	if texts[0] != texts[1] || texts[1] != texts[2] {
		t.Errorf("a denial differs by what the file holds: %q", texts)
	}
}

// Scenario 148.
func TestReplaceAllCounts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "x y x y x")
	out, _ := must[editResult](t, b, "edit", input{"path": "a", "oldString": "x", "newString": "$0", "replaceAll": true})
	if out.Replacements != 3 || b.content(t, "a") != "$0 y $0 y $0" {
		t.Errorf("edit = %+v, and the file holds %q", out, b.content(t, "a"))
	}
}

// Scenario 148.
func TestEditKeepsMarkAndLineEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, find, put, after string }{
		{"\ufeffa\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "\ufeffx\r\ny\r\nz\r\nc\r\n"},
		{"\ufeffa\r\nb\r\n", "\ufeffa", "x\n", "\ufeffx\r\n\r\nb\r\n"},
		{"a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"},
		{"a\r\nb\nc\n", "b\nc", "x\ny", "a\r\nx\ny\n"},
		{"a\r\nb\nc\n", "a\nb", "x\ny", "x\r\ny\nc\n"},
	} {
		b := newBench(t)
		b.put(t, "a", c.before)
		if must[editResult](t, b, "edit", input{"path": "a", "oldString": c.find, "newString": c.put}); b.content(t, "a") != c.after {
			t.Errorf("edit of %q: %q to %q gives %q, want %q", c.before, c.find, c.put, b.content(t, "a"), c.after)
		}
	}
}

// Scenario 148.
func TestStaleEditChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "one")
	c, err := b.config.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	tool, err := editTool{c, func(h *workspace.Handle, before, after []byte) error {
		b.put(t, "a", "one, and what somebody else wrote")
		return h.Replace(before, after)
	}}.tool()
	if err != nil {
		t.Fatal(err)
	}
	_, err = call(t.Context(), t, tool, input{"path": "a", "oldString": "one", "newString": "two"}, domain.Invocation{})
	if _, ok := errors.AsType[*domain.Failure](err); !ok || err.Error() != "File changed after permission approval. Read it again before editing." {
		t.Errorf("edit = %v, want that the file changed", err)
	}
	if got := b.content(t, "a"); got != "one, and what somebody else wrote" {
		t.Errorf("the file holds %q", got)
	}
}

// Scenario 152.
func TestConcurrentEditsLoseNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const n = 12
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "before %c\n", 'a'+i)
	}
	b.put(t, "a", lines.String())
	var editors sync.WaitGroup
	for i := range n {
		editors.Go(func() {
			for {
				_, err := b.run(t, "edit", input{"path": "a", "oldString": fmt.Sprintf("before %c", 'a'+i), "newString": fmt.Sprintf("after %c", 'a'+i)})
				if err == nil {
					return
				}
				if !strings.HasPrefix(err.Error(), "File changed") {
					t.Errorf("edit = %v", err)
					return
				}
			}
		})
	}
	editors.Wait()
	if got, want := b.content(t, "a"), strings.ReplaceAll(lines.String(), "before", "after"); got != want {
		t.Errorf("the file holds %q, want %q", got, want)
	}
}

func TestPreviewIsShort(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	before := strings.Repeat("line\n", 10)
	b.put(t, "a", before)
	_, text := must[editResult](t, b, "edit", input{"path": "a", "oldString": before, "newString": strings.Repeat("é", 300) + "```"})
	if strings.Count(text, "- line\n") != 6 || !strings.Contains(text, "- ...\n") || !strings.Contains(text, "+ "+strings.Repeat("é", 240)+"...\n") {
		t.Errorf("the preview is %q", text)
	}
}

func FuzzSubstitute(f *testing.F) {
	f.Add("a\r\nb\r\n", "a\n", "$1\n", false)
	f.Add("\ufeffxx x", "x", "\\0", true)
	f.Add("aaa", "aa", "b", false)
	f.Add("\r\n", "\r", "0", false)
	f.Fuzz(func(t *testing.T, content, before, after string, all bool) {
		if before == "" || before == after {
			return
		}
		got, n, err := applyEdit(content, editArgs{OldString: before, NewString: after, ReplaceAll: all})
		if err != nil {
			if _, ok := errors.AsType[*domain.Failure](err); !ok || got != "" || n != 0 {
				t.Fatalf("substitute = %q, %d, %v", got, n, err)
			}
			return
		}
		if n < 1 || !all && n != 1 {
			t.Fatalf("substitute made %d replacements, all is %v", n, all)
		}
		text, marked := strings.CutPrefix(content, bom)
		find, put := matchLineEnds(text, strings.TrimPrefix(before, bom), strings.TrimPrefix(after, bom))
		parts := strings.Split(text, find)
		want := strings.Join(parts, put)
		if marked {
			want = bom + want
		}
		if len(parts) != n+1 || got != want {
			t.Fatalf("substitute of %q, %q by %q gives %q after %d", content, find, put, got, n)
		}
		if halfEnd(find) || halfEnd(put) { // it cuts line ends in half, and is meant to
			return
		}
		if strings.Contains(text, "\r\n") && strings.Count(text, "\r\n") == strings.Count(text, "\n") && strings.Count(got, "\r\n") != strings.Count(got, "\n") {
			t.Fatalf("substitute of %q gives %q: the line ends are not kept", content, got)
		}
	})
}

// halfEnd reports whether a text holds a CR that is no part of a line end.
func halfEnd(text string) bool { return strings.Count(text, "\r") != strings.Count(text, "\r\n") }
