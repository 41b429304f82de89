package builtins

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
)

// withoutProgram makes the tools search without a search program.
func withoutProgram(c *Config) { c.SearchProgram = NoSearchProgram }

// grow fills a bench with the files that a search handles specially, such as ignore
// files, dot files and binary files.
func (b *bench) grow(t testing.TB) {
	t.Helper()
	for name, content := range map[string]string{
		".gitignore":             "*.log\n!keep.log\n/build/\nnode_modules\nsecret*\n",
		".git/config":            "needle",
		".hidden":                "needle",
		".config/a.txt":          "needle",
		"a.log":                  "needle",
		"keep.log":               "needle\r\nno\nneedle needle\n",
		"build/out.txt":          "needle",
		"src/build/in.txt":       "needle",
		"src/main.go":            "package main // Needle\n",
		"src/deep/x.go":          "// needle é\n",
		"src/.gitignore":         "deep/*.txt\n!a.log\n*.tmp\n",
		"src/a.log":              "needle",
		"src/deep/y.txt":         "needle",
		"src/deep/z.tmp":         "needle",
		"node_modules/m/i.js":    "needle",
		"node_modules/.keep":     "needle",
		"binary":                 "needle\x00needle",
		"utf16":                  "\xff\xfen\x00e\x00e\x00",
		"empty":                  "",
		"nested/.git":            "gitdir: ../.git/modules/nested",
		"nested/a.log":           "needle",
		"nested/b.txt":           "needle",
		".ignore":                "!admitted.log\n!kept.tmp\nhidden.txt\n",
		"src/kept.tmp":           "needle",
		".rgignore":              "!hidden.txt\ngone.txt\n",
		"admitted.log":           "needle",
		"src/admitted.log":       "needle",
		"src/hidden.txt":         "needle",
		"src/gone.txt":           "needle",
		"with space/[x] {y}.txt": "needle",
		"long.txt":               strings.Repeat("é", 2500) + " needle\nlatin \xe9 needle\n",
	} {
		b.put(t, name, content)
	}
	b.put(t, b.outside+"/needle.txt", "needle")
	b.put(t, filepath.Dir(b.dir)+"/.gitignore", "*\n") // above the workspace, so it does not count
	for target, name := range map[string]string{b.outside: "out", "src/main.go": "link.go", "src": "linked", "none": "dangling"} {
		if err := os.Symlink(target, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bench) found(t testing.TB, tool string, in input) string {
	t.Helper()
	_, text := must[struct{}](t, b, tool, in)
	return strings.ReplaceAll(text, b.dir+"/", "")
}

func TestSearchFindsTheSameWithAndWithoutProgram(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("rg"); err != nil {
		t.Skip("ripgrep (rg) is not in PATH: there is nothing to compare")
	}
	with := newBench(t, func(c *Config) { c.SearchProgram = "rg" })
	with.grow(t)
	without, err := Tools(Config{Workspace: with.config.Workspace, Permission: with.fakePermission, SearchProgram: NoSearchProgram})
	if err != nil {
		t.Fatal(err)
	}
	var calls []struct {
		tool string
		in   input
	}
	add := func(tool string, in input) {
		calls = append(calls, struct {
			tool string
			in   input
		}{tool, in})
	}
	for _, path := range []string{".", "src", "src/deep", "node_modules", "nested", with.outside} {
		for _, pattern := range []string{"*", "**", "**/*.go", "*.{txt,log}", ".*", "src/**", "/a*", ".config/*", "[!a]*", "[[]x*"} {
			add("glob", input{"pattern": pattern, "path": path})
		}
		for _, pattern := range []string{"needle", "(?i)needle", "n.*e$", "^needle", `\bneedle\b`, "é", "needle|package", "x?needle", `\x{e9}`, "nothing at all", "(needle)+ n", "[^\\w]"} {
			for _, include := range []string{"", "*.txt"} {
				in := input{"pattern": pattern, "path": path}
				if include != "" {
					in["include"] = include
				}
				add("grep", in)
			}
		}
	}
	hits := 0
	for _, c := range calls {
		got, err := call(t.Context(), t, with.tools[c.tool], c.in, domain.Invocation{})
		if err != nil {
			t.Fatalf("%s(%v) with rg = %v", c.tool, c.in, err)
		}
		want, err := call(t.Context(), t, without[c.tool], c.in, domain.Invocation{})
		if err != nil {
			t.Fatalf("%s(%v) without = %v", c.tool, c.in, err)
		}
		if diff := cmp.Diff(string(want.Structured()), string(got.Structured())); diff != "" {
			t.Errorf("%s(%v) with rg (-without +with):\n%s", c.tool, c.in, diff)
		}
		if !strings.HasPrefix(want.Content().Text(), "No files found") {
			hits++
		}
	}
	if hits < len(calls)/4 {
		t.Errorf("only %d of %d searches found anything", hits, len(calls))
	}
}

func TestProgramOnlyProposes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	program := filepath.Join(b.outside, "rg")
	for _, c := range []struct{ exit, want string }{{"0", "a.txt"}, {"1", "a.txt"}, {"2", "a.txt\nb.txt"}} {
		b.put(t, program, "#!/bin/sh\nprintf './a.txt\\0../outside/needle.txt\\0./ignored.txt\\0.git/x.txt\\0none.txt\\0sub\\0'\nexit "+c.exit)
		if err := os.Chmod(program, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a.txt", "b.txt", "ignored.txt", ".git/x.txt", "sub/x", b.outside + "/needle.txt"} {
			b.put(t, name, "needle")
		}
		b.put(t, ".gitignore", "ignored.txt")
		b.config.SearchProgram = program
		tools, err := Tools(b.config)
		if err != nil {
			t.Fatal(err)
		}
		b.tools = tools
		if got := b.found(t, "glob", input{"pattern": "*.txt"}); got != c.want {
			t.Errorf("with a program that exits with %s, glob finds %q, want %q", c.exit, got, c.want)
		}
	}
}

func TestGlobRespectsGitignoreAndDots(t *testing.T) {
	t.Parallel()
	b := newBench(t, withoutProgram)
	b.grow(t)
	for _, c := range []struct{ pattern, path, want string }{
		{"*.log", ".", "admitted.log\nkeep.log\nsrc/a.log\nsrc/admitted.log"},
		{"**/*.go", ".", "src/deep/x.go\nsrc/main.go"},
		{"*.go", "src", "src/deep/x.go\nsrc/main.go"},
		{"*.log", "src", "src/a.log\nsrc/admitted.log"}, // src/.gitignore outranks the one above
		{"deep/*", "src", "src/deep/x.go"},
		{"*.txt", ".", "long.txt\nnested/b.txt\nsrc/build/in.txt\nsrc/hidden.txt\nwith space/[x] {y}.txt"},
		{"*.js", ".", "No files found"},
		{"*", "node_modules", "node_modules/m/i.js"}, // it was named
		{".*", ".", ".gitignore\n.hidden\n.ignore\n.rgignore\nsrc/.gitignore"},
		{".config/*", ".", ".config/a.txt"},
		{"*/a.txt", ".", "No files found"},
		{"/k*", ".", "keep.log"},
	} {
		if got := b.found(t, "glob", input{"pattern": c.pattern, "path": c.path}); got != c.want {
			t.Errorf("glob %s in %s finds\n%s\nwant\n%s", c.pattern, c.path, got, c.want)
		}
	}
	if got := b.asked[0]; got.Action != "glob" || got.Resources[0] != "*.log" || got.Save[0] != "*" || !strings.Contains(string(got.Metadata), b.dir) {
		t.Errorf("asked %+v", got)
	}
}

func TestSearchSaysThatThereIsMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.grow(t)
	if got, want := b.found(t, "glob", input{"pattern": "*.go", "limit": 1}), "src/deep/x.go\n\n(1 of 2 files; narrow the pattern or raise limit)"; got != want {
		t.Errorf("glob = %q, want %q", got, want)
	}
	got := b.found(t, "grep", input{"pattern": "needle", "path": "keep.log", "limit": 1})
	if want := "Found 2 matches\nkeep.log:\n  Line 1: needle\n\n(1 of 2 matches; narrow the search or raise limit)"; got != want {
		t.Errorf("grep = %q, want %q", got, want)
	}
}

func TestGrepShowsLinesByFile(t *testing.T) {
	t.Parallel()
	b := newBench(t, withoutProgram)
	b.grow(t)
	got := b.found(t, "grep", input{"pattern": "(?i)needle", "include": "*.{go,log}"})
	want := "Found 7 matches\nadmitted.log:\n  Line 1: needle\n\nkeep.log:\n  Line 1: needle\n  Line 3: needle needle\n\nsrc/a.log:\n  Line 1: needle\n\nsrc/admitted.log:\n  Line 1: needle\n\nsrc/deep/x.go:\n  Line 1: // needle é\n\nsrc/main.go:\n  Line 1: package main // Needle"
	if got != want {
		t.Errorf("grep finds\n%s\nwant\n%s", got, want)
	}
	out, _ := must[grepResult](t, b, "grep", input{"pattern": "needle", "path": "keep.log"})
	if diff := cmp.Diff([][2]int{{0, 6}, {7, 13}}, out.Matches[1].Submatches); diff != "" {
		t.Errorf("submatches (-want +got):\n%s", diff)
	}
	out, _ = must[grepResult](t, b, "grep", input{"pattern": "needle", "path": "long.txt"})
	if len(out.Matches) != 2 || out.Matches[0].Text != strings.Repeat("é", 2000)+"..." || out.Matches[1].Text != "latin \ufffd needle" {
		t.Errorf("grep = %+v", out)
	}
	for _, name := range []string{"binary", ".git/config", "node_modules", "outside", "link.go"} {
		if text := b.found(t, "grep", input{"pattern": "needle"}); strings.Contains(text, name) {
			t.Errorf("grep finds %s in\n%s", name, text)
		}
	}
	if got := b.found(t, "grep", input{"pattern": "absent"}); got != "No files found" {
		t.Errorf("grep = %q", got)
	}
}

func TestBadPatternSaysWhy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fails(t, "grep", input{"pattern": "a("}, "Unable to grep for a(: error parsing regexp: missing closing )")
	b.fails(t, "grep", input{"pattern": "a", "include": "{"}, "include {: not a pattern")
	b.fails(t, "glob", input{"pattern": "[a"}, "Unable to find files matching [a: not a pattern")
	b.fails(t, "glob", input{"pattern": "../*"}, "not a pattern: ..")
	b.fails(t, "glob", input{"pattern": "!*.go"}, "a pattern cannot exclude")
	if len(b.asked) != 0 {
		t.Errorf("asked %v", b.order())
	}
	b.fails(t, "glob", input{"pattern": "*", "path": "none"}, "Unable to find files matching *: no such file or directory")
	b.fails(t, "grep", input{"pattern": "a", "path": "none"}, "Unable to grep for a: no such file or directory")
}

func TestUnreadableIsTold(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("everything is readable for root")
	}
	b := newBench(t)
	b.put(t, "closed/a", "needle")
	b.put(t, "b", "needle")
	if err := errors.Join(os.Chmod(filepath.Join(b.dir, "closed"), 0), os.Chmod(filepath.Join(b.dir, "b"), 0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(b.dir, "closed"), 0o755) })
	if got := b.found(t, "grep", input{"pattern": "needle"}); !strings.Contains(got, "(2 files or directories could not be read, such as closed)") {
		t.Errorf("grep = %q", got)
	}
}
