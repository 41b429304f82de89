package builtins

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// Scenario 149.
func TestWriteSaysWhatItDid(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	out, text := must[writeResult](t, b, "write", input{"path": "new/dir/a.txt", "content": "one"})
	if want := (writeResult{"write", filepath.Join(b.dir, "new/dir/a.txt"), "new/dir/a.txt", false}); out != want || text != "Created file successfully: new/dir/a.txt" {
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
