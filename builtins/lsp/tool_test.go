package lsp_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/lsp"
	"github.com/settlement-ledger/ledger/domain"
)

func TestPermissionIsAskedBeforeAServerStarts(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "x.go")
	if err := os.WriteFile(outside, []byte("package x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	outside, err := filepath.EvalSymlinks(outside)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(outside)
	for _, c := range []struct {
		rules, path, denied string
		asked               []string
	}{
		{"allow * *\ndeny lsp *", "a.go", "lsp a.go", []string{"lsp a.go saves *"}},
		{"allow * *\ndeny read a.go", "a.go", "read a.go", []string{"lsp a.go saves *", "read a.go saves a.go"}},
		{"allow * *\nask read a.go", "a.go", "read a.go", []string{"lsp a.go saves *", "read a.go saves a.go"}},
		{"allow * *\ndeny external_directory *", outside, "external_directory " + dir + "/*", []string{"external_directory " + dir + "/* saves " + dir + "/*"}},
		{"allow external_directory *\ndeny lsp *", outside, "lsp " + outside, []string{"external_directory " + dir + "/* saves " + dir + "/*", "lsp " + outside + " saves *"}},
	} {
		p := newProject(t, "behaves")
		p.open(t, c.rules, func(config *lsp.Config) { config.Environment = []string{} })
		_, err := p.call(t.Context(), at("goToDefinition", c.path, 1, 1))
		denied, ok := errors.AsType[*domain.Denied](err)
		if !ok || denied.Action+" "+denied.Resource != c.denied || !slices.Equal(p.asked, c.asked) {
			t.Errorf("by %q %s = %v after %v, want a denial of %s after %v", c.rules, c.path, err, p.asked, c.denied, c.asked)
		}
	}
}

func TestResultsInFilesThatMayNotBeReadAreLeftOut(t *testing.T) {
	t.Parallel()
	const noFile = "\n\n(3 results were left out: they are in no file)"
	for _, c := range []struct{ rules, want string }{
		{"allow * *", "secret.go:3:5  var key = 1\nb é.go:3:5\nOUT:3:5  var c = 1\nmissing.go:3:5\n\n(1 results were left out: reading their file needs a permission, which was not given)" + noFile},
		{"allow * *\ndeny read secret.go", "b é.go:3:5\nOUT:3:5  var c = 1\nmissing.go:3:5\n\n(1 results were left out: a rule denies reading their file)\n\n(1 results were left out: reading their file needs a permission, which was not given)" + noFile},
		{"allow * *\ndeny lsp secret.go\nask external_directory *", "b é.go:3:5\nOUT:3:5\nmissing.go:3:5\n\n(1 results were left out: a rule denies reading their file)\n\n(1 results were left out: reading their file needs a permission, which was not given)" + noFile},
		{"allow * *\nask read secret.go\ndeny external_directory *", "b é.go:3:5\nmissing.go:3:5\n\n(1 results were left out: a rule denies reading their file)\n\n(2 results were left out: reading their file needs a permission, which was not given)" + noFile},
	} {
		p := newProject(t, "leads elsewhere")
		p.reopen(t, "leads elsewhere", c.rules)
		p.put(t, "secret.go", "package a\n\nvar key = 1\n")
		p.put(t, "b é.go", "package a\n")
		p.put(t, "../outside/c.go", "package c\n\nvar c = 1\n")
		if err := os.Symlink("../outside/c.go", filepath.Join(p.dir, "link.go")); err != nil {
			t.Fatal(err)
		}
		p.says(t, definition, strings.ReplaceAll(c.want, "OUT", filepath.Join(filepath.Dir(p.dir), "outside/c.go")))
		p.close(t)
	}
}

// The description of a symbol quotes its declaration.
func TestHoverTextFromAFileThatMayNotBeReadIsLeftOut(t *testing.T) {
	t.Parallel()
	p := newProject(t, "behaves")
	p.says(t, at("hover", "a.go", 3, 5), "a.go:3:5\nabout it")
	p.close(t)
	p = newProject(t, "hovers over a secret")
	p.reopen(t, "hovers over a secret", "allow * *\ndeny read secret.go")
	p.put(t, "secret.go", "package a\n")
	p.says(t, at("hover", "a.go", 3, 5), "No results found for hover\n\n(1 results were left out: a rule denies reading their file)")
	p.close(t)
}

func TestInputThatNamesNoPositionIsAFailure(t *testing.T) {
	t.Parallel()
	p := newProject(t, "behaves")
	p.fails(t, input{"operation": "hover", "path": "a.go"}, "hover needs line and character")
	p.fails(t, at("hover", "a.txt", 1, 1), "There is no language server for a.txt: the tool knows the extensions .c .cc")
	p.fails(t, at("hover", "missing.go", 1, 1), "Unable to use the language server for missing.go: no such file or directory")
	p.fails(t, at("hover", "../x.go", 1, 1), "relative_escape")
	p.put(t, "a.rs", "fn main() {}\n")
	p.open(t, "allow * *", func(c *lsp.Config) { c.Environment = []string{"PATH=" + p.dir} })
	p.fails(t, at("hover", "a.rs", 1, 4), "No language server for Rust is installed: install rust-analyzer and put it into PATH")
	p.fails(t, definition, "install gopls")
	for _, in := range []input{{"operation": "rename", "path": "a.go"}, {"operation": "hover"}, at("hover", "a.go", 0, 1)} {
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.tool.Bind(raw); !errors.Is(err, domain.ErrInvalidInput) {
			t.Errorf("Bind(%s) = %v, want ErrInvalidInput", raw, err)
		}
	}
}

func TestConfigThatLacksAFieldIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := lsp.New(lsp.Config{}); !errors.Is(err, lsp.ErrIncomplete) || !strings.Contains(err.Error(), "Workspace") {
		t.Errorf("New of nothing = %v, want ErrIncomplete", err)
	}
}
