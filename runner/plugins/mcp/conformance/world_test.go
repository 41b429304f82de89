package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/plugins/mcp"
)

// installed is the environment variable that names the folder with the packages.
const installed = "LEDGER_MCP_SERVERS"

// program is the path of the ledger command, which verifies the logs.
var program string

// TestMain runs the test binary as the client of the conformance suite if the suite
// started it.
func TestMain(m *testing.M) {
	if os.Getenv(scenarioVariable) != "" {
		os.Exit(runClient(os.Args[len(os.Args)-1]))
	}
	os.Exit(runTests(m))
}

// runTests builds the ledger command and runs the tests.
func runTests(m *testing.M) int {
	if os.Getenv(installed) == "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "ledger-mcp-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "ledger")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/settlement-ledger/ledger/cmd/ledger").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build ledger: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// packages returns the folder with the packages, and skips the test if there is none.
func packages(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(installed)
	if dir == "" {
		t.Skipf("%s is not set: the MCP servers from npm are not tested; .ci/mcp tests them", installed)
	}
	return dir
}

// An entry is the configuration of a server.
type entry map[string]any

// reference returns the entry of a reference server over standard input and output.
func reference(t *testing.T, name string, env map[string]string, args ...string) entry {
	t.Helper()
	return node(t, filepath.Join("node_modules", "@modelcontextprotocol", name, "dist", "index.js"), env, args...)
}

// node returns the entry of a server in a file of the packages.
func node(t *testing.T, file string, env map[string]string, args ...string) entry {
	t.Helper()
	dir := packages(t)
	all := append([]string{"--import", filepath.Join(dir, "preload.mjs"), filepath.Join(dir, file)}, args...)
	e := entry{"command": "node", "args": all, "startup_timeout": "1m", "timeout": "1m"}
	if env != nil {
		e["env"] = env
	}
	return e
}

// command returns the command of the entry of a server.
func command(t *testing.T, e entry) *exec.Cmd {
	t.Helper()
	return exec.Command(e["command"].(string), e["args"].([]string)...)
}

// A world is a process of the ledger with a store in a folder, and MCP servers.
type world struct {
	*engine.FolderWorkspace
	folder, project string
	provider        *providers
	person          *person
}

// openWorld opens a world in the folder base. The caller closes it.
func openWorld(ctx context.Context, base string, servers map[string]entry) (*world, error) {
	w := &world{folder: filepath.Join(base, "store"), project: filepath.Join(base, "project"), provider: &providers{}, person: &person{}}
	data, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(w.project, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(base, "mcp.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	list, refused := mcp.Load(mcp.LoadConfig{Workspace: w.project, UserFile: file, Environment: os.Environ()})
	if len(refused) > 0 {
		return nil, fmt.Errorf("load the servers: %w", refused[0])
	}
	w.FolderWorkspace, err = engine.OpenFolder(ctx, w.folder, "conformance", engine.WorkspaceConfig{
		Location: w.project, Plugins: list, Environment: os.Environ(), Questioner: w.person,
		Rules:  domain.Rules{{Action: "*", Resource: "*", Effect: domain.Allow, Source: "test"}},
		Runner: runner.Config{Provider: w.provider},
	})
	return w, err
}

// newWorld opens a world until the test ends, and then verifies its log.
func newWorld(t *testing.T, servers map[string]entry) *world {
	t.Helper()
	w, err := openWorld(t.Context(), t.TempDir(), servers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			t.Errorf("Close() = %v", err)
		}
		if out, err := exec.Command(program, "--store", w.folder, "verify").CombinedOutput(); err != nil {
			t.Errorf("ledger verify: %v\n%s", err, out)
		}
	})
	return w
}

// session runs a new session with a provider until it has no more calls, and returns its
// conversation and the error of the run.
func (w *world) session(ctx context.Context, p runner.Provider) (*sessionEnd, error) {
	id, err := w.Runner.Open(ctx, events.SessionOpened{Agent: "build", Location: w.project})
	if err != nil {
		return nil, err
	}
	w.provider.set(id, p)
	return w.prompt(ctx, id)
}

// A sessionEnd is the conversation of a session after a run.
type sessionEnd struct {
	*conversation.State
	id domain.SessionID
}

// settlement returns the end of the call with an ID, which is unique in the session.
func (s *sessionEnd) settlement(id string) *domain.Settlement {
	for _, m := range s.Messages {
		if m.Reply == nil {
			continue
		}
		if c, ok := s.Call(m.ID, domain.CallID(id)); ok {
			return c.Settlement
		}
	}
	return nil
}

// prompt admits a prompt to a session, runs it, and returns its conversation and the error
// of the run.
func (w *world) prompt(ctx context.Context, id domain.SessionID) (*sessionEnd, error) {
	if err := w.Runner.Admit(ctx, id, w.Ledger.Mint().Message(), "Go on."); err != nil {
		return nil, err
	}
	ran := w.Run(ctx, id)
	s, err := w.Conversation(context.WithoutCancel(ctx), id)
	if err != nil {
		return nil, err
	}
	return &sessionEnd{id: id, State: s}, ran
}

// await runs sessions without calls until a turn offers exactly the tools that ready
// accepts, and returns their names.
func (w *world) await(t *testing.T, ready func(names []string) bool) []string {
	t.Helper()
	var names []string
	for t.Context().Err() == nil {
		if _, err := w.session(t.Context(), replier(func(turn runner.Turn) []domain.Call { names = offered(turn); return nil })); err != nil {
			t.Fatal(err)
		}
		if ready(names) {
			return names
		}
	}
	t.Fatalf("the tools are %v at the end of the test", names)
	return nil
}

// has returns a condition for await: that all of these tools are offered.
func has(tools ...string) func([]string) bool {
	return func(names []string) bool {
		return !slices.ContainsFunc(tools, func(tool string) bool { return !slices.Contains(names, tool) })
	}
}

// contains returns a condition: that a text has all of these parts.
func contains(parts ...string) func(string) bool {
	return func(text string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
	}
}

// offered returns the names of the tools of a turn.
func offered(turn runner.Turn) []string {
	var names []string
	for _, d := range turn.Tools {
		names = append(names, string(d.Name))
	}
	return names
}

// refusals returns the reasons on record for tools and servers that are not offered.
func (w *world) refusals(ctx context.Context) ([]string, error) {
	var all []string
	for v, err := range w.Ledger.Read(ctx, events.LayerStream(w.Layer.ID()), 0) {
		if err != nil {
			return nil, err
		}
		if e, ok := v.Event.(events.ToolsRegistered); ok {
			for _, r := range e.Refused {
				all = append(all, r.Name+": "+r.Reason)
			}
		}
	}
	return all, nil
}

// providers are the providers of the sessions of a world.
type providers struct {
	mu sync.Mutex
	of map[domain.SessionID]runner.Provider
}

func (p *providers) set(id domain.SessionID, to runner.Provider) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[domain.SessionID]runner.Provider{}
	}
	p.of[id] = to
}

// Reply implements runner.Provider.
func (p *providers) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[turn.Session].Reply(ctx, turn)
}

// A replier is a provider that replies to a turn with calls. A reply without calls ends
// the run.
type replier func(runner.Turn) []domain.Call

// Reply implements runner.Provider.
func (r replier) Reply(_ context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		for _, c := range r(turn) {
			if !yield(runner.CallPart(c), nil) {
				return
			}
		}
	}
}

// once returns a provider that makes the calls in its first turn.
func once(calls ...domain.Call) replier {
	return func(runner.Turn) []domain.Call {
		now := calls
		calls = nil
		return now
	}
}

// call returns a call of a tool.
func call(id, name, input string) domain.Call {
	return domain.Call{ID: domain.CallID(id), Name: name, Input: json.RawMessage(input)}
}

// A person answers questions by their text. Questions without an answer stay unanswered.
type person struct {
	mu      sync.Mutex
	answers map[string][]string // by a part of the question
	asked   []string
}

// AskQuestions implements permission.Questioner.
func (p *person) AskQuestions(_ context.Context, r permission.QuestionRequest) (permission.QuestionReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reply := permission.QuestionReply{By: permission.ByUser}
	for _, q := range r.Questions {
		p.asked = append(p.asked, q.Question)
		var answer []string
		for part, a := range p.answers {
			if strings.Contains(q.Question, part) {
				answer = a
			}
		}
		reply.Answers = append(reply.Answers, answer)
	}
	return reply, nil
}

// reads returns the text that the model reads for a settlement.
func reads(s *domain.Settlement) string {
	r := s.ToolResult()
	var b strings.Builder
	b.WriteString(r.Error + r.Text + string(r.Structured))
	for _, c := range r.Content {
		switch c := c.(type) {
		case domain.Text:
			b.WriteString(string(c))
		case domain.Media:
			fmt.Fprintf(&b, "<%s %d>", c.MIME, len(c.Data))
		}
	}
	return b.String()
}

// want fails the test unless a settlement has an outcome, and the texts in what the model
// or the operator reads.
func want(t *testing.T, name string, s *domain.Settlement, outcome domain.Outcome, texts ...string) {
	t.Helper()
	if s == nil {
		t.Errorf("%s has no settlement", name)
		return
	}
	got := reads(s) + "\n" + s.Detail
	if s.Outcome != outcome || !contains(texts...)(got) {
		t.Errorf("%s ended as %v with %.2000q, want %v with %q", name, s.Outcome, got, outcome, texts)
	}
}

// wait waits until a file exists, and returns its text. It returns the cause of ctx if that
// ends first.
func wait(ctx context.Context, file string) (string, error) {
	for {
		data, err := os.ReadFile(file)
		if err == nil {
			return string(data), nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// awaitFile waits until a file exists and returns its text.
func awaitFile(t *testing.T, file string) string {
	t.Helper()
	text, err := wait(t.Context(), file)
	if err != nil {
		t.Fatalf("the file %s does not exist at the end of the test", file)
	}
	return text
}

// awaitNumber waits until a file exists and returns the number in it.
func awaitNumber(t *testing.T, file string) int {
	t.Helper()
	n, err := strconv.Atoi(awaitFile(t, file))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
