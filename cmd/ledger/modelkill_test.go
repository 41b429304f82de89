package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// modelKills is the number of times that the test kills a run in each wire format.
var modelKills = repeats(3, 34)

// notesServer is an MCP server on the standard input and output, the command notes-server
// of the tests.
func notesServer() {
	type note struct {
		Text string `json:"text"`
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	for name, pause := range map[string]time.Duration{"add": 0, "slow": 50 * time.Millisecond} {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: "keeps a note"}, func(_ context.Context, _ *mcp.CallToolRequest, in note) (*mcp.CallToolResult, any, error) {
			time.Sleep(pause)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "noted: " + in.Text}}}, nil, nil
		})
	}
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// killedSteps are the replies of the model in the sessions that are killed: ten tools of
// the ledger and two of an MCP server, some in parallel, and calls that fail. The IDs of
// calls repeat.
var killedSteps = []modelStep{
	{"I plan.", [][3]string{{"c1", "todowrite", `{"todos":[{"content":"write","status":"pending","priority":"high"}]}`}, {"c2", "write", `{"path":"a.txt","content":"one\n"}`}}},
	{"", [][3]string{{"c1", "read", `{"path":"a.txt"}`}, {"c2", "notes_add", `{"text":"begun"}`}, {"c3", "bash", `{"command":"echo > mark; sleep 0.03"}`}}},
	{"", [][3]string{{"c1", "edit", `{"path":"a.txt","oldString":"one","newString":"two"}`}}},
	{"More.", [][3]string{{"c1", "grep", `{"pattern":"t"}`}, {"c2", "glob", `{"pattern":"*"}`}, {"c3", "notes_slow", `{"text":"slowly"}`}, {"c4", "bash", `{"command":"seq 1 30000"}`}}},
	{"", [][3]string{{"c1", "todoread", `{}`}, {"c2", "nosuch", `{}`}, {"c3", "read", `{"path":`}, {"c4", "batch", `{"tool_calls":[{"tool":"read","parameters":{"path":"a.txt"}},{"tool":"notes_add","parameters":{"text":"both"}}]}`}}},
	{"", [][3]string{{"c1", "apply_patch", `{"patchText":"*** Begin Patch\n*** Add File: b.txt\n+hello\n*** End Patch"}`}, {"c2", "skill", `{"name":"absent"}`}}},
	{text: "Done."},
}

// A killedModel is a model server for sessions that are killed, and the command that runs
// them.
type killedModel struct {
	*testing.T
	format       modelFormat
	server       *providerstest.ModelServer
	dir          string
	random       *rand.Rand
	environment  []string
	store, space string
}

// Sessions with a model, ten tools and an MCP server, each interrupted or killed at random
// moments and carried on, send only requests that are well formed for the provider: every
// call is answered once, in order. The log verifies after each kill, and at the end no call
// is open.
func TestKilledModelSessionsGoOn(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			k := newKilledModel(t, format, rand.New(rand.NewPCG(seed, 0)))
			begun := time.Now()
			if out, code := k.command("run", "begin"); code != 0 {
				t.Fatalf("the whole run exits with %d: %s", code, out)
			}
			whole := time.Since(begun)
			for n := range modelKills {
				k.kill(n, whole/4+time.Duration(k.random.Int64N(int64(whole)))) // a process needs about the first quarter to start
			}
			if out, code := k.command("resume", "@last"); code != 0 {
				t.Errorf("the last run exits with %d: %s", code, out)
			}
			if out, code := k.command("call", "ls", "--outcome", "open", "-o", "jsonl"); code != 0 || strings.TrimSpace(out) != "" {
				t.Errorf("calls are open: %s", out)
			}
			out, _ := k.command("call", "ls", "-o", "jsonl")
			t.Logf("%d requests; a whole run takes %v; the calls ended as %v", len(k.server.Requests()), whole, countedOutcomes(out))
		})
	}
}

// newKilledModel starts the server and writes the configuration.
func newKilledModel(t *testing.T, format modelFormat, random *rand.Rand) *killedModel {
	t.Helper()
	dir := t.TempDir()
	k := &killedModel{T: t, format: format, dir: dir, random: random, store: filepath.Join(dir, "store"), space: filepath.Join(dir, "space")}
	var sent atomic.Int64
	k.server = startModel(t, format, func(providerstest.ModelRequest) providerstest.ModelAnswer {
		n := int(sent.Add(1) - 1)
		return providerstest.ModelAnswer{Chunks: format.stream(killedSteps[n%len(killedSteps)])}
	})
	for path, text := range map[string]string{
		"config/ledger/mcp.json": `{"mcpServers":{"notes":{"command":"notes-server"}}}`,
		"rules":                  "allow * *\n",
		"space/README":           "text\n",
	} {
		path = filepath.Join(dir, path)
		noError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		noError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	k.environment = append(os.Environ(), "ANTHROPIC_API_KEY="+modelKey, "OPENAI_API_KEY="+modelKey,
		"XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "XDG_STATE_HOME="+filepath.Join(dir, "state"))
	return k
}

// process returns a command, with the flags of the model for run and resume.
func (k *killedModel) process(args ...string) *exec.Cmd {
	if args[0] == "run" || args[0] == "resume" {
		args = append(append(args, k.format.flags...), "--base-url", k.server.URL(), "--workspace", k.space, "--flag", "apply_patch", "--rules", filepath.Join(k.dir, "rules"))
	}
	cmd := exec.CommandContext(k.Context(), commandPath(), append([]string{"--store", k.store}, args...)...)
	cmd.Env = k.environment
	return cmd
}

// command runs a command to its end.
func (k *killedModel) command(args ...string) (out string, code int) {
	cmd := k.process(args...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	_ = cmd.Run() // the exit code tells
	return text.String(), cmd.ProcessState.ExitCode()
}

// kill runs or continues a session and kills it after a time, sometimes with an
// interruption before. It then recovers and verifies the store.
func (k *killedModel) kill(n int, after time.Duration) {
	args := [][]string{{"run", "begin"}, {"resume", "@last"}, {"resume", "@last", "go on"}}[k.random.IntN(3)]
	cmd := k.process(args...)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	noError(k.T, cmd.Start())
	if k.random.IntN(4) == 0 {
		pause := time.Duration(k.random.Int64N(int64(after) + 1))
		time.Sleep(pause)
		_ = cmd.Process.Signal(syscall.SIGINT) // the process may have ended
		after -= pause
	}
	time.Sleep(after)
	_ = cmd.Process.Kill() // the process may have ended
	_ = cmd.Wait()
	for _, args := range [][]string{{"recover"}, {"verify"}} {
		if out, code := k.command(args...); code != 0 {
			k.Fatalf("after kill %d, %v, %s exits with %d: %s", n, cmd.Args, args[0], code, out)
		}
	}
	if code := cmd.ProcessState.ExitCode(); code > 0 && code != 130 {
		k.Errorf("kill %d: %v exits with %d: %s", n, cmd.Args, code, &text)
	}
}

// countedOutcomes returns the number of calls of each outcome, of JSON lines of calls.
func countedOutcomes(lines string) []string {
	count := map[string]int{}
	for line := range strings.Lines(lines) {
		var call struct {
			Outcome string `json:"outcome"`
			Tool    string `json:"tool"`
		}
		if json.Unmarshal([]byte(line), &call) == nil {
			count[call.Tool+" "+call.Outcome]++
		}
	}
	var all []string
	for outcome, n := range count {
		all = append(all, fmt.Sprintf("%s %d", outcome, n))
	}
	slices.Sort(all)
	return all
}
