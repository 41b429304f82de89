package builtins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/domain"
)

// Scenario 149.
func TestWriteSaysWhatItDid(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	out, text := must[writeResult](t, b, "write", input{"path": "new/dir/a.txt", "content": "one"})
	want := writeResult{Operation: "write", Target: filepath.Join(b.dir, "new/dir/a.txt"), Resource: "new/dir/a.txt"}
	if diff := cmp.Diff(want, out); diff != "" || text != "Created file successfully: new/dir/a.txt" {
		t.Errorf("write = %+v, %q, want %+v", out, text, want)
	}
	out, text = must[writeResult](t, b, "write", input{"path": "new/dir/a.txt", "content": ""})
	if !out.Existed || text != "Wrote file successfully: new/dir/a.txt" || b.content(t, "new/dir/a.txt") != "" {
		t.Errorf("write = %+v, %q", out, text)
	}
	if got := b.order()[0]; got != "edit new/dir/a.txt" {
		t.Errorf("asked %q", got)
	}
}

// Scenario 149.
func TestWriteKeepsOneMark(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ before, content, after string }{
		{"x", "a", "a"}, {"\ufeffx", "a", "\ufeffa"}, {"x", "\ufeffa", "\ufeffa"}, {"\ufeffx", "\ufeff\ufeffa", "\ufeffa"}, {"\ufeff", "", "\ufeff"},
	} {
		b := newBench(t)
		b.put(t, "a", c.before)
		if must[writeResult](t, b, "write", input{"path": "a", "content": c.content}); b.content(t, "a") != c.after {
			t.Errorf("write %q over %q gives %q, want %q", c.content, c.before, b.content(t, "a"), c.after)
		}
	}
}

// Scenario 149.
func TestWriteKeepsUniformLineEnds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<16)
	for _, c := range []struct{ before, content, after string }{
		{"a\r\nb\r\n", "x\ny\n", "x\r\ny\r\n"},
		{"a\r\nb", "x\r\ny\nz", "x\r\ny\r\nz"},
		{"a\nb\n", "x\r\ny\n", "x\ny\n"},
		{"a\r\nb\n", "x\r\ny\n", "x\r\ny\n"}, // both
		{"a", "x\r\ny\n", "x\r\ny\n"},        // no line end
		{"", "x\r\ny\n", "x\r\ny\n"},
		{"a\rb", "x\r\ny\n", "x\r\ny\n"}, // a lone CR ends no line
		{"\ufeffa\r\n", "x\n", "\ufeffx\r\n"},
		{long[1:] + "\r\n" + long + "\r\n", "x\n", "x\r\n"}, // a CRLF on the border of two reads
		{long + "\r\n" + long + "\n", "x\r\ny\n", "x\r\ny\n"},
		{"\n\n", "\r\r\n", "\r\n"},
	} {
		b := newBench(t)
		b.put(t, "a", c.before)
		if must[writeResult](t, b, "write", input{"path": "a", "content": c.content}); b.content(t, "a") != c.after {
			t.Errorf("write %q over %.20q gives %q, want %q", c.content, c.before, b.content(t, "a"), c.after)
		}
		if shown := b.shown[0].Text; strings.Contains(c.after, "x\r\n") != strings.Contains(shown, "x\r\n") {
			t.Errorf("write %q over %.20q: a person sees %q", c.content, c.before, shown)
		}
	}
}

// The form of a text is the same in whatever parts it is read.
func TestFormDoesNotDependOnTheParts(t *testing.T) {
	t.Parallel()
	part := rapid.SampledFrom([]string{"\r", "\n", "\r\n", "a", "\xef", "\xbb", "\xbf", bom, ""})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(part, 0, 8).Draw(t, "parts")
		var form textForm
		for _, p := range parts {
			_, _ = form.Write([]byte(p))
		}
		text := strings.Join(parts, "")
		got := fmt.Sprint(string(form.head) == bom, form.lines, form.dos)
		if want := fmt.Sprint(strings.HasPrefix(text, bom), strings.Count(text, "\n"), strings.Count(text, "\r\n")); got != want {
			t.Fatalf("the form of %q is %s, want %s", text, got, want)
		}
	})
}

// Scenario 149.
func TestChangedFileKeepsItsMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []os.FileMode{0o755, 0o600, 0o644, 0o755 | os.ModeSetuid} {
		for tool, in := range map[string]input{"write": {"path": "a", "content": "two"}, "edit": {"path": "a", "oldString": "one", "newString": "two"}} {
			for _, links := range []int{1, 2} { // replaced, and overwritten in place
				b := newBench(t)
				b.put(t, "a", "one")
				path := filepath.Join(b.dir, "a")
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
				if links == 2 {
					if err := os.Link(path, path+".link"); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := b.run(t, tool, in); err != nil {
					t.Fatal(err)
				}
				info, err := os.Stat(path)
				if err != nil || info.Mode() != mode || b.content(t, "a") != "two" {
					t.Errorf("%s with %d links of a file of mode %v leaves %v, %v", tool, links, mode, info.Mode(), err)
				}
			}
		}
	}
	b := newBench(t)
	must[writeResult](t, b, "write", input{"path": "new/a", "content": "#!/bin/sh\n"})
	if info, err := os.Stat(filepath.Join(b.dir, "new/a")); err != nil || info.Mode()&^0o666 != 0 {
		t.Errorf("a new file has mode %v, %v: it may be run or more", info.Mode(), err)
	}
}

// Scenario 149.
func TestDeniedWriteLeavesTheFile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "one")
	b.decide = refuse("edit")
	for _, path := range []string{"a", "new/b"} {
		if _, err := b.run(t, "write", input{"path": path, "content": "two"}); !errors.Is(err, domain.ErrDenied) {
			t.Errorf("write %s = %v, want a denial", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "new")); b.content(t, "a") != "one" || err == nil {
		t.Error("a denied write had an effect")
	}
}

func TestWriteSaysWhyNot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "one")
	b.fails(t, "write", input{"path": "a/b", "content": "x"}, "Unable to write a/b: resolve a/b: non_directory_ancestor")
	b.fails(t, "write", input{"path": ".", "content": "x"}, "Unable to write .: open .: not a regular file")
}
