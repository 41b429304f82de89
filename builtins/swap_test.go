package builtins

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// A person approves a question. While that person decides, another process puts
// something else in its place.
func TestSwapDuringTheAnswerReachesNoOtherFile(t *testing.T) {
	t.Parallel()
	at := func(b *bench, name string) string { return filepath.Join(b.dir, name) }
	swaps := map[string]func(b *bench) error{
		"the file by a link": func(b *bench) error {
			return errors.Join(os.Remove(at(b, "sub/a.txt")), os.Symlink("../private/a.txt", at(b, "sub/a.txt")))
		},
		"the file by a link out": func(b *bench) error {
			return errors.Join(os.Remove(at(b, "sub/a.txt")), os.Symlink(b.outside+"/a.txt", at(b, "sub/a.txt")))
		},
		"the file by another": func(b *bench) error { return os.Rename(at(b, "private/a.txt"), at(b, "sub/a.txt")) },
		"the file by a pipe": func(b *bench) error {
			return errors.Join(os.Remove(at(b, "sub/a.txt")), syscall.Mkfifo(at(b, "sub/a.txt"), 0o644))
		},
		"the directory by a link": func(b *bench) error {
			return errors.Join(os.Rename(at(b, "sub"), at(b, "was")), os.Symlink("private", at(b, "sub")))
		},
		"the directory by a link out": func(b *bench) error {
			return errors.Join(os.Rename(at(b, "sub"), at(b, "was")), os.Symlink(b.outside, at(b, "sub")))
		},
		"the directory by another": func(b *bench) error {
			return errors.Join(os.Rename(at(b, "sub"), at(b, "was")), os.Rename(at(b, "private"), at(b, "sub")))
		},
		"the workspace by a link": func(b *bench) error {
			return errors.Join(os.Rename(b.dir, b.dir+".was"), os.Symlink(b.outside, b.dir))
		},
	}
	calls := map[string][]input{
		"read":  {{"path": "sub/a.txt"}, {"path": "sub"}},
		"write": {{"path": "sub/a.txt", "content": "written"}, {"path": "sub/b.txt", "content": "written"}},
		"edit":  {{"path": "sub/a.txt", "oldString": "one", "newString": "written"}},
		"grep":  {{"pattern": "secret|one", "path": "sub"}, {"pattern": "secret|one", "path": "sub/a.txt"}},
		"glob":  {{"pattern": "*", "path": "sub"}},
	}
	for what, swap := range swaps {
		for tool, inputs := range calls {
			for _, in := range inputs {
				b := newBench(t, withoutProgram)
				b.put(t, "sub/a.txt", "one\n")
				b.put(t, "private/a.txt", "secret one\n")
				b.put(t, "private/hidden", "secret one\n")
				b.put(t, b.outside+"/a.txt", "secret one\n")
				b.put(t, b.outside+"/hidden", "secret one\n")
				swapped := false
				b.decide = func(permission.Ask) error {
					if swapped {
						return nil
					}
					swapped = true
					return swap(b)
				}
				out, err := b.run(t, tool, in)
				path := in["path"].(string)
				if !swapped {
					t.Fatalf("%s(%v): %s was not asked about", tool, in, what)
				}
				for _, shown := range []string{"secret", "hidden"} {
					renamed := tool == "grep" && path == "sub" && what == "the file by another" // a search of sub was approved, and it is in there
					if err == nil && !renamed && strings.Contains(out.Content().Text(), shown) {
						t.Errorf("%s(%v), %s: shows %q", tool, in, what, out.Content().Text())
					}
				}
				atFile := strings.HasSuffix(path, ".txt") && !strings.HasSuffix(path, "b.txt")
				if failure, ok := errors.AsType[*domain.Failure](err); (atFile || strings.HasPrefix(what, "the directory") || strings.HasPrefix(what, "the workspace")) && !ok {
					t.Errorf("%s(%v), %s = %v, want a failure: %v", tool, in, what, err, failure)
				}
				for _, name := range []string{"private/a.txt", "was/a.txt", "sub/b.txt", "was/b.txt", "private/b.txt"} {
					if data, _ := os.ReadFile(at(b, name)); strings.Contains(string(data), "written") && !(name == "sub/b.txt" && strings.HasPrefix(what, "the file")) {
						t.Errorf("%s(%v), %s: wrote %s", tool, in, what, name)
					}
				}
				if data, _ := os.ReadFile(b.outside + "/a.txt"); string(data) != "secret one\n" {
					t.Errorf("%s(%v), %s: wrote outside", tool, in, what)
				}
				if _, err := os.Lstat(b.outside + "/b.txt"); err == nil {
					t.Errorf("%s(%v), %s: created a file outside", tool, in, what)
				}
			}
		}
	}
}

// write does not compare the file with its earlier state if rules allow the call, so
// writes can follow each other. It does if a person decides.
func TestWritesThatRulesAllowFollowOneAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rules = domain.Rules{{Action: "*", Resource: "*", Effect: domain.Allow}}
	b.put(t, "a", "one")
	b.decide = func(permission.Ask) error { b.put(t, "a", "theirs"); return nil }
	must[writeResult](t, b, "write", input{"path": "a", "content": "two"})
	if b.content(t, "a") != "two" {
		t.Errorf("the file holds %q, want two", b.content(t, "a"))
	}
	b.rules = nil
	b.decide = func(permission.Ask) error { b.put(t, "a", "theirs again"); return nil }
	b.fails(t, "write", input{"path": "a", "content": "three"}, "File changed after permission approval. Read it again before writing.")
}
