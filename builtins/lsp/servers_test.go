package lsp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/lsp"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// rules decide by rules. A request that they leave open is denied.
type rules struct {
	domain.Rules
	mu    *sync.Mutex
	asked *[]string
}

func (r rules) Check(_ domain.Invocation, ask permission.Ask) permission.Evaluation {
	return permission.EvaluateRules(domain.RuleSets{r.Rules}, ask)
}

func (r rules) Assert(_ context.Context, inv domain.Invocation, ask permission.Ask) error {
	r.mu.Lock()
	*r.asked = append(*r.asked, ask.Action+" "+strings.Join(ask.Resources, ",")+" saves "+strings.Join(ask.Save, ","))
	r.mu.Unlock()
	if v := r.Check(inv, ask); v.Effect != domain.Allow {
		return &domain.Denied{Action: ask.Action, Resource: ask.Resources[0], Rule: v.Rule}
	}
	return nil
}

// A project is a workspace with the tool lsp and a test server in the place of gopls.
type project struct {
	dir, state string
	asked      []string
	servers    *lsp.Servers
	tool       domain.Tool
}

// newProject returns a project whose server has a mode. change adapts the configuration.
func newProject(t *testing.T, mode string, change ...func(*lsp.Config)) *project {
	t.Helper()
	parent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &project{dir: filepath.Join(parent, "project"), state: filepath.Join(parent, "state")}
	if err := errors.Join(os.Mkdir(p.dir, 0o755), os.Mkdir(p.state, 0o755), os.Mkdir(filepath.Join(parent, "bin"), 0o755),
		os.Symlink(executable, filepath.Join(parent, "bin", "gopls"))); err != nil {
		t.Fatal(err)
	}
	p.reopen(t, mode, "allow * *", change...)
	p.put(t, "a.go", "package a\n\nvar é𝄞x = 1\n")
	return p
}

// reopen makes the servers and the tool of a project with a test server.
func (p *project) reopen(t *testing.T, mode, ruleText string, change ...func(*lsp.Config)) {
	t.Helper()
	p.open(t, ruleText, append([]func(*lsp.Config){func(c *lsp.Config) {
		c.Environment = []string{
			"PATH=" + filepath.Join(filepath.Dir(p.dir), "bin") + ":/usr/bin:/bin",
			modeVariable + "=" + mode, stateVariable + "=" + p.state, "GORACE=atexit_sleep_ms=0",
		}
	}}, change...)...)
}

// open makes the servers and the tool of a project.
func (p *project) open(t *testing.T, ruleText string, change ...func(*lsp.Config)) {
	t.Helper()
	parsed, err := permission.ParseRules("test", strings.NewReader(ruleText))
	if err != nil {
		t.Fatal(err)
	}
	root, err := workspace.Open(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	c := lsp.Config{Workspace: root, Permission: rules{parsed, new(sync.Mutex), &p.asked}, StartTimeout: time.Minute, RequestTimeout: time.Minute}
	for _, f := range change {
		f(&c)
	}
	if p.servers, err = lsp.New(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.servers.Close() })
	if p.tool, err = p.servers.Tool(); err != nil {
		t.Fatal(err)
	}
}

func (p *project) put(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// input is the input of one call.
type input map[string]any

func at(operation, path string, line, character int) input {
	return input{"operation": operation, "path": path, "line": line, "character": character}
}

// definition is a call that every mode of the test server knows.
var definition = at("goToDefinition", "a.go", 3, 5)

// call runs one call and returns the text that the model reads.
func (p *project) call(ctx context.Context, in input) (string, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return "", err
	}
	bound, err := p.tool.Bind(raw)
	if err != nil {
		return "", err
	}
	out, err := bound.Run(ctx, domain.Invocation{})
	if err != nil {
		return "", err
	}
	return string(out.Content()[0].(domain.Text)), nil
}

// says runs one call that succeeds with a text.
func (p *project) says(t *testing.T, in input, want string) {
	t.Helper()
	if got, err := p.call(t.Context(), in); err != nil || got != want {
		t.Errorf("%v = %q, %v, want %q", in, got, err, want)
	}
}

// fails runs one call that is a failure whose text contains each of the parts.
func (p *project) fails(t *testing.T, in input, parts ...string) {
	t.Helper()
	got, err := p.call(t.Context(), in)
	_, failed := errors.AsType[*domain.Failure](err)
	if !failed {
		t.Errorf("%v = %q, %v, want a failure", in, got, err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v fails with %q, want %q in it", in, err, part)
		}
	}
}

// lines returns the lines of a file that the test server wrote.
func (p *project) lines(file string) []string {
	data, _ := os.ReadFile(filepath.Join(p.state, file))
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}

// received waits until the test server has read a message that begins with a text.
func (p *project) received(t *testing.T, beginning string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		for _, line := range p.lines("messages") {
			if strings.HasPrefix(line, beginning) {
				return
			}
		}
	}
	t.Fatalf("the server did not receive %s", beginning)
}

// gone waits until a process has ended. A zombie has ended.
func gone(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("%q is no process: %v", pid, err)
	}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z") {
			return
		}
	}
	t.Errorf("process %s outlives its pool", pid)
	_ = syscall.Kill(n, syscall.SIGKILL)
}

// close closes the pool and checks that no process is left.
func (p *project) close(t *testing.T) {
	t.Helper()
	if err := p.servers.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	for _, file := range []string{"starts", "child"} {
		for _, pid := range p.lines(file) {
			if pid != "" {
				gone(t, pid)
			}
		}
	}
}

func TestServerThatMisbehavesIsAFailure(t *testing.T) {
	t.Parallel()
	quick := func(c *lsp.Config) { c.RequestTimeout = 300 * time.Millisecond }
	quickStart := func(c *lsp.Config) { c.StartTimeout = 300 * time.Millisecond }
	for _, c := range []struct {
		mode   string
		want   string
		change func(*lsp.Config)
	}{
		{"dies at start", "gopls ended with exit status 3; its last error output: no toolchain", nil},
		{"dies at initialize", "exit status 3; its last error output: fatal: initialize", nil},
		{"dies at initialized", "fatal: initialized", nil},
		{"dies at textDocument/didOpen", "fatal: textDocument/didOpen", nil},
		{"dies at textDocument/definition", "gopls ended with exit status 3; its last error output: fatal: textDocument/definition", nil},
		{"ends in a message", "cut off", nil},
		{"closes its output", "gopls closed its output", nil},
		{"writes garbage", `gopls broke the protocol: invalid message of the language server: header line 1 is "Welcome to the server!"`, nil},
		{"writes an endless header", "a header line is longer than 4096 bytes", nil},
		{"writes headers without end", `header line 33 is "X-32: y"`, nil},
		{"announces a huge message", `Content-Length is "99999999999" and not 1 to 16777216`, nil},
		{"announces a negative message", `Content-Length is "-1"`, nil},
		{"writes invalid JSON", "broke the protocol: invalid message", nil},
		{"writes null", "broke the protocol: invalid message", nil},
		{"writes an empty batch", "broke the protocol: invalid message", nil},
		{"sends a large message", `Content-Length is "17825792"`, nil},
		{"replies with a number", "gopls returned an invalid result of textDocument/definition", nil},
		{"refuses", "gopls refused textDocument/definition: not now", nil},
		{"leaves a process", "left a process", nil},
		{"has no capabilities", "gopls does not support goToDefinition", nil},
		{"hangs at initialize", "gopls did not reply to initialize within 300ms, nor to its cancellation", quickStart},
		{"reads nothing", "did not reply to initialize within 300ms", quickStart},
		{"hangs at textDocument/definition", "gopls did not reply to textDocument/definition within 300ms, nor to its cancellation", quick},
		{"replies after the cancellation", "gopls did not reply to textDocument/definition within 300ms", quick},
		{"replies with another id", "gopls did not reply to textDocument/definition within 300ms, nor to its cancellation", quick},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			var change []func(*lsp.Config)
			if c.change != nil {
				change = append(change, c.change)
			}
			p := newProject(t, c.mode, change...)
			p.fails(t, definition, c.want)
			p.close(t)
		})
	}
}

func TestServerThatIsLoudStillReplies(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"behaves", "replies twice", "floods messages", "floods its error output", "changes its state", "does not exit"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newProject(t, mode)
			for range 2 {
				p.says(t, definition, "a.go:3:5  var é𝄞x = 1")
			}
			if got := len(p.lines("starts")); got != 1 {
				t.Errorf("%d servers were started for two calls", got)
			}
			p.close(t)
		})
	}
}

// A server that does not read a document blocks no call for longer than the timeout.
func TestServerThatStopsReadingIsAFailure(t *testing.T) {
	t.Parallel()
	p := newProject(t, "hangs at initialized", func(c *lsp.Config) { c.RequestTimeout = 300 * time.Millisecond })
	p.put(t, "a.go", "package a\n\nvar xyz = 1\n"+strings.Repeat("// text\n", 100_000))
	p.fails(t, definition, "gopls does not read its input: i/o timeout")
	p.close(t)
}

func TestFileOverTheLimitIsAFailure(t *testing.T) {
	t.Parallel()
	p := newProject(t, "behaves")
	p.put(t, "a.go", strings.Repeat("x", 4<<20+1))
	p.fails(t, definition, "a.go", "the file is too large: over 4194304 bytes")
	p.put(t, "a.go", "\xff")
	p.fails(t, definition, "the file is not UTF-8 text")
	if err := errors.Join(os.Remove(filepath.Join(p.dir, "a.go")), syscall.Mkfifo(filepath.Join(p.dir, "a.go"), 0o644)); err != nil {
		t.Fatal(err)
	}
	p.fails(t, definition, "not a regular file")
	if got := p.lines("starts")[0]; got != "" {
		t.Errorf("a server was started for a file that cannot be read: %s", got)
	}
}

func TestServerIsStartedAgainAfterItsDeath(t *testing.T) {
	t.Parallel()
	p := newProject(t, "dies once at textDocument/definition")
	p.fails(t, definition, "fatal")
	p.says(t, definition, "a.go:3:5  var é𝄞x = 1")
	if got := len(p.lines("starts")); got != 2 {
		t.Errorf("%d servers were started, want 2", got)
	}
	p.close(t)
}

func TestServerThatKeepsDyingIsStartedAtMostThreeTimesInARow(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now := time.Unix(0, 0)
	p := newProject(t, "dies at textDocument/definition", func(c *lsp.Config) {
		c.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	pass := func(d time.Duration) { mu.Lock(); defer mu.Unlock(); now = now.Add(d) }
	started := func(want int) {
		t.Helper()
		if got := len(p.lines("starts")); got != want {
			t.Errorf("%d servers were started, want %d", got, want)
		}
	}
	for range 5 {
		p.fails(t, definition)
	}
	started(3)
	p.fails(t, definition, "failed 3 times in a row and is started again after 30s", "fatal: textDocument/definition")
	pass(31 * time.Second)
	p.fails(t, definition, "gopls ended with exit status 3")
	p.fails(t, definition, "failed 4 times in a row and is started again after 1m0s")
	started(4)
	p.close(t)
}

func TestCallsShareOneServer(t *testing.T) {
	t.Parallel()
	p := newProject(t, "behaves")
	var calls sync.WaitGroup
	for range 16 {
		calls.Go(func() { p.says(t, definition, "a.go:3:5  var é𝄞x = 1") })
	}
	calls.Wait()
	if got := len(p.lines("starts")); got != 1 {
		t.Errorf("%d servers were started for one folder", got)
	}
	p.close(t)
}

func TestIdleServerEndsAndIsStartedAgain(t *testing.T) {
	t.Parallel()
	p := newProject(t, "behaves", func(c *lsp.Config) { c.IdleTimeout = time.Millisecond })
	p.says(t, definition, "a.go:3:5  var é𝄞x = 1")
	gone(t, p.lines("starts")[0])
	p.received(t, "exit")
	p.says(t, definition, "a.go:3:5  var é𝄞x = 1")
	if got := len(p.lines("starts")); got < 2 {
		t.Errorf("%d servers were started, want a second one", got)
	}
	p.close(t)
}

func TestCancelledCallReturnsAtOnceAndCancelsItsRequest(t *testing.T) {
	t.Parallel()
	p := newProject(t, "replies after the cancellation")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.call(ctx, definition)
		ended <- err
	}()
	p.received(t, "textDocument/definition")
	cancel(domain.ByUser)
	if err := <-ended; !errors.Is(err, domain.ByUser) {
		t.Errorf("the cancelled call = %v, want its cause", err)
	}
	p.received(t, "$/cancelRequest")
	p.close(t)
	if got := len(p.lines("starts")); got != 1 {
		t.Errorf("the cancellation ended the server: %d starts", got)
	}
}

// A call that is cancelled while its server starts leaves the start to the other calls.
func TestCancelledStartIsBounded(t *testing.T) {
	t.Parallel()
	p := newProject(t, "hangs at initialize")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.call(ctx, definition)
		ended <- err
	}()
	p.received(t, "initialize")
	cancel(domain.ByUser)
	if err := <-ended; !errors.Is(err, domain.ByUser) {
		t.Errorf("the cancelled call = %v, want its cause", err)
	}
	p.close(t)
}

func TestCloseEndsCallsInProgress(t *testing.T) {
	t.Parallel()
	p := newProject(t, "hangs at textDocument/definition")
	ended := make(chan error, 1)
	go func() {
		_, err := p.call(t.Context(), definition)
		ended <- err
	}()
	p.received(t, "textDocument/definition")
	p.close(t)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "gopls was stopped") {
		t.Errorf("the call = %v, want that the server was stopped", err)
	}
	if _, err := p.call(t.Context(), definition); !errors.Is(err, lsp.ErrServersClosed) {
		t.Errorf("a call after Close = %v, want ErrServersClosed", err)
	}
	if err := p.servers.Close(); err != nil {
		t.Errorf("Close again = %v", err)
	}
}

func TestRequestsOfTheServerAreAnswered(t *testing.T) {
	t.Parallel()
	p := newProject(t, "sends requests")
	text, err := p.call(t.Context(), at("hover", "a.go", 3, 5))
	if err != nil {
		t.Fatal(err)
	}
	_, replies, _ := strings.Cut(text, "\n")
	var got map[string]json.RawMessage
	if err := json.Unmarshal([]byte(replies), &got); err != nil {
		t.Fatalf("%s: %v", replies, err)
	}
	for method, want := range map[string]string{
		"workspace/configuration":        `[{"pullDiagnostics":true},{"pullDiagnostics":true}]`,
		"workspace/workspaceFolders":     fmt.Sprintf(`[{"name":"project","uri":"file://%s"}]`, p.dir),
		"client/registerCapability":      "null",
		"window/workDoneProgress/create": "null",
		"window/showMessageRequest":      "null",
		"workspace/applyEdit":            `{"applied":false,"failureReason":"this client applies no edits"}`,
		"experimental/unknown":           `{"code":-32601,"message":"the client does not implement experimental/unknown"}`,
	} {
		if string(got[method]) != want {
			t.Errorf("the reply to %s is %s, want %s", method, got[method], want)
		}
	}
	p.close(t)
}

func TestPublishedDiagnosticsAreThoseOfTheContentOnDisk(t *testing.T) {
	t.Parallel()
	p := newProject(t, "behaves")
	for version := 1; version < 4; version++ {
		p.says(t, input{"operation": "diagnostics", "path": "a.go"}, fmt.Sprintf(
			"a.go:1:1  error: part 0 of version %[1]d (0)\na.go:1:1  warning: part 1 of version %[1]d (1)\na.go:1:1  information: part 2 of version %[1]d (2)", version))
		p.put(t, "a.go", "package a\n\nvar xyz = "+strconv.Itoa(version)+"\n")
	}
	p.close(t)
}

func TestPositionsAreConvertedToTheUnitsOfTheServer(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"counts in UTF-8": `{"line":2,"character":10}`, "behaves": `{"line":2,"character":7}`} {
		p := newProject(t, mode)
		p.says(t, at("goToDefinition", "a.go", 3, 7), "a.go:3:7  var é𝄞x = 1") // the x
		p.received(t, `textDocument/definition {"textDocument":{"uri":"file://`+p.dir+`/a.go"},"position":`+want)
		p.fails(t, at("goToDefinition", "a.go", 3, 13), "line 3 of a.go has 11 characters: character 13 does not exist")
		p.fails(t, at("goToDefinition", "a.go", 5, 1), "a.go has 4 lines: line 5 does not exist")
		p.close(t)
	}
}

// A server learns of files that change on disk between two calls.
func TestServerIsNotifiedOfChangedFiles(t *testing.T) {
	t.Parallel()
	p := newProject(t, "behaves")
	p.put(t, "old.go", "package a\n")
	p.put(t, "gone.go", "package a\n")
	p.put(t, ".git/x.go", "package a\n")
	p.says(t, definition, "a.go:3:5  var é𝄞x = 1")
	p.says(t, at("goToDefinition", "old.go", 1, 1), "old.go:1:1  package a")
	p.put(t, "old.go", "package abc\n")
	p.put(t, "sub/new.go", "package a\n")
	p.put(t, "notes.txt", "text")
	p.put(t, ".git/x.go", "package abc\n")
	if err := os.Remove(filepath.Join(p.dir, "gone.go")); err != nil {
		t.Fatal(err)
	}
	p.says(t, definition, "a.go:3:5  var é𝄞x = 1")
	var closed, changed string
	for _, line := range p.lines("messages") {
		if params, ok := strings.CutPrefix(line, "textDocument/didClose "); ok {
			closed += params
		}
		if params, ok := strings.CutPrefix(line, "workspace/didChangeWatchedFiles "); ok {
			changed += params
		}
	}
	if want := fmt.Sprintf(`{"textDocument":{"uri":"file://%s/old.go"}}`, p.dir); closed != want {
		t.Errorf("didClose of %s, want %s", closed, want)
	}
	for name, kind := range map[string]int{"sub/new.go": 1, "old.go": 2, "gone.go": 3} {
		if want := fmt.Sprintf(`{"type":%d,"uri":"file://%s/%s"}`, kind, p.dir, name); !strings.Contains(changed, want) {
			t.Errorf("didChangeWatchedFiles of %s, want %s", changed, want)
		}
	}
	if strings.Contains(changed, "notes") || strings.Contains(changed, ".git") {
		t.Errorf("didChangeWatchedFiles of %s, want sources only", changed)
	}
	p.close(t)
}

func TestOpenDocumentsAreBounded(t *testing.T) {
	t.Parallel()
	p := newProject(t, "behaves")
	for i := range 70 {
		name := fmt.Sprintf("f%02d.go", i)
		p.put(t, name, "package a\n")
	}
	for i := range 70 {
		p.says(t, at("goToDefinition", fmt.Sprintf("f%02d.go", i), 1, 1), fmt.Sprintf("f%02d.go:1:1  package a", i))
	}
	var closed []string
	for _, line := range p.lines("messages") {
		if strings.HasPrefix(line, "textDocument/didClose ") {
			closed = append(closed, strings.TrimSuffix(filepath.Base(line), `"}}`))
		}
	}
	if got, want := strings.Join(closed, " "), "f00.go f01.go f02.go f03.go f04.go f05.go"; got != want {
		t.Errorf("the closed documents are %s, want %s", got, want)
	}
	p.close(t)
}
