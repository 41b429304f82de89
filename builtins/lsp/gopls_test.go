package lsp_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/lsp"
)

// goplsVersion is the version of gopls that the test installs.
const goplsVersion = "v0.23.0"

// goplsFolder returns the folder of gopls. If it is not in PATH, the test installs it from
// the module proxy, which takes time and so needs LEDGER_TEST_LONG.
func goplsFolder(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("gopls"); err == nil {
		return filepath.Dir(path)
	}
	if os.Getenv("LEDGER_TEST_LONG") == "" {
		t.Skip("gopls is not in PATH; LEDGER_TEST_LONG=1 installs it")
	}
	folder := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install", "golang.org/x/tools/gopls@"+goplsVersion)
	install.Dir, install.Env = folder, append(os.Environ(), "GOBIN="+folder, "GOFLAGS=-mod=mod")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install gopls: %v\n%s", err, out)
	}
	return folder
}

const goplsMain = `package main

import "fmt"

// Greeter greets.
type Greeter interface{ Greet(name string) string }

type polite struct{ prefix string }

// Greet returns "é𝄞" and a name.
func (p polite) Greet(name string) string { return p.prefix + name }

func main() {
	var g Greeter = polite{"é𝄞"}; fmt.Println("é𝄞", g.Greet("x"), helper())
}
`

const goplsHelper = "package main\r\n\r\nfunc helper() string { return /* 𝄞 */ second() }\r\n"

// Each operation of a real language server. gopls counts in UTF-16, the tool in characters.
func TestGoplsAnswersEveryOperation(t *testing.T) {
	t.Parallel()
	folder := goplsFolder(t)
	p := newProject(t, "behaves")
	p.put(t, "go.mod", "module example.org/hello\n\ngo 1.22\n")
	if err := os.Remove(filepath.Join(p.dir, "a.go")); err != nil {
		t.Fatal(err)
	}
	p.put(t, "main.go", goplsMain)
	p.put(t, "helper.go", goplsHelper)
	p.put(t, "second.go", "package main\n\nfunc second() string { return \"\" }\n")
	p.open(t, "allow * *\nask external_directory *", func(c *lsp.Config) {
		c.Environment = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "GOFLAGS=-mod=mod", "GOPROXY=off")
		c.StartTimeout, c.RequestTimeout = 5*time.Minute, 5*time.Minute
	})
	for _, c := range []struct {
		in   input
		want string
	}{
		{at("goToDefinition", "main.go", 14, 64), "helper.go:3:6  func helper() string { return /* 𝄞 */ second() }"},
		{at("goToDefinition", "helper.go", 3, 39), "second.go:3:6  func second() string { return \"\" }"},
		{at("findReferences", "second.go", 3, 6), "second.go:3:6  func second() string { return \"\" }\nhelper.go:3:39  func helper() string { return /* 𝄞 */ second() }"},
		{at("goToImplementation", "main.go", 6, 6), "main.go:8:6  type polite struct{ prefix string }"},
		{input{"operation": "documentSymbol", "path": "second.go"}, "second.go:3:6  function second func() string"},
		{at("prepareCallHierarchy", "second.go", 3, 6), "second.go:3:6  function second example.org/hello • second.go"},
		{at("incomingCalls", "second.go", 3, 6), "helper.go:3:6  function helper example.org/hello • helper.go (calls at 3:39)"},
		{at("outgoingCalls", "helper.go", 3, 6), "second.go:3:6  function second example.org/hello • second.go (calls at 3:39)"},
		{input{"operation": "diagnostics", "path": "main.go"}, "No results found for diagnostics"},
		{at("hover", "main.go", 1, 1), "No results found for hover"},
	} {
		p.says(t, c.in, c.want)
	}
	if got, err := p.call(t.Context(), input{"operation": "workspaceSymbol", "path": "main.go", "query": "Greeter"}); err != nil || !strings.HasPrefix(got, "main.go:6:6  interface Greeter in example.org/hello\n") {
		t.Errorf("workspaceSymbol = %q, %v", got, err)
	}
	if got, err := p.call(t.Context(), at("hover", "main.go", 14, 52)); err != nil || !strings.HasPrefix(got, "main.go:14:52\n```go\nfunc (Greeter) Greet(name string) string") {
		t.Errorf("hover = %q, %v", got, err)
	}
	// A definition outside the workspace: its place is shown, and its text is not.
	if got, err := p.call(t.Context(), at("goToDefinition", "main.go", 14, 36)); err != nil || !strings.Contains(got, "fmt/print.go:") || strings.Contains(got, "func") {
		t.Errorf("goToDefinition of fmt.Println = %q, %v", got, err)
	}
	p.says(t, at("goToDefinition", "main.go", 2, 1), "No results found for goToDefinition")
	p.fails(t, at("incomingCalls", "main.go", 99, 1), "main.go has 16 lines: line 99 does not exist")

	// The files change on disk, as other tools change them.
	p.put(t, "second.go", "package main\n\nvar unused, x = 1, 2\n\nfunc second() int { var s string = 1; return 2 }\n")
	if got, err := p.call(t.Context(), input{"operation": "diagnostics", "path": "helper.go"}); err != nil || !strings.HasPrefix(got, "helper.go:3:39  error: cannot use second()") {
		t.Errorf("diagnostics after another file changed = %q, %v", got, err)
	}
	p.put(t, "helper.go", "package main\n\nfunc helper() (n int) { return third(second()) }\n")
	p.put(t, "third.go", "package main\n\nfunc third(n int) int { return n }\n")
	p.says(t, at("goToDefinition", "helper.go", 3, 32), "third.go:3:6  func third(n int) int { return n }")
	p.close(t)
}

// The load of a real project is interrupted, and the server is still usable.
func TestGoplsOutlivesACancelledCall(t *testing.T) {
	t.Parallel()
	folder := goplsFolder(t)
	p := newProject(t, "behaves")
	p.put(t, "go.mod", "module example.org/hello\n\ngo 1.22\n")
	p.open(t, "allow * *", func(c *lsp.Config) {
		c.Environment = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "GOPROXY=off")
		c.StartTimeout, c.RequestTimeout = 5*time.Minute, 5*time.Minute
	})
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*5*time.Millisecond)
		if _, err := p.call(ctx, definition); err != nil && ctx.Err() == nil {
			t.Errorf("call %d = %v", i, err)
		}
		cancel()
	}
	p.put(t, "a.go", fmt.Sprintf("package a\n\nvar é = 1 // %s\n\nvar b = é\n", strings.Repeat("𝄞", 10)))
	p.says(t, at("goToDefinition", "a.go", 5, 9), "a.go:3:5  var é = 1 // "+strings.Repeat("𝄞", 10))
	p.close(t)
}
