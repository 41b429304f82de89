package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/events"
)

// everyToolFolder has a small project and a trajectory that calls every tool in it.
var everyToolFolder = filepath.Join("testdata", "everytool")

// An everyToolRun is a run of that trajectory in a copy of the project, in a new store.
type everyToolRun struct {
	*testing.T
	project, store string
	env            []string
}

// An everyToolCall is a row of ledger call ls -o json.
type everyToolCall struct {
	Call, Tool, Agent, Outcome string
	Parent, Title, Text        *string
}

// A shownTurn is the part of ledger turn show -o json that the tests read.
type shownTurn struct {
	Agent, Model string
	Tools        []struct{ Tool, Description string }
	Hidden       []struct{ Tool, Why string }
}

// newEveryToolRun copies the project and starts a server for webfetch, websearch and
// codesearch.
func newEveryToolRun(t *testing.T) everyToolRun {
	t.Helper()
	work := t.TempDir()
	r := everyToolRun{T: t, project: filepath.Join(work, "project"), store: filepath.Join(work, "store")}
	if err := os.CopyFS(r.project, os.DirFS(filepath.Join(everyToolFolder, "project"))); err != nil {
		t.Fatal(err)
	}
	pages := httptest.NewServer(http.HandlerFunc(servePages))
	t.Cleanup(pages.Close)
	script, err := os.ReadFile(filepath.Join(everyToolFolder, "session.json"))
	if err != nil {
		t.Fatal(err)
	}
	script = bytes.ReplaceAll(script, []byte("http://127.0.0.1:1"), []byte(pages.URL))
	if err := os.WriteFile(filepath.Join(work, "session.json"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	r.env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(work, "config"), "EXA_API_KEY=a-key", "EXA_BASE_URL="+pages.URL, "GOFLAGS=-mod=mod", "GOWORK=off")
	return r
}

// servePages answers as a web page and as the API of Exa.
func servePages(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/search":
		fmt.Fprint(w, `{"results":[{"title":"How to greet","url":"https://greet.example/","text":"Say hello."}]}`)
	case "/context":
		fmt.Fprint(w, `{"response":"fmt.Println(\"hello\")"}`)
	default:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<h1>Style</h1><p>Greet <b>politely</b>.</p>")
	}
}

// ledger runs the command, which must exit with status 0, and returns its standard output.
func (r everyToolRun) ledger(args ...string) []byte {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), commandPath(), append([]string{"--store", r.store}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, r.env
	if err := cmd.Run(); err != nil {
		r.Fatalf("ledger %s: %v\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}

// run runs the trajectory as an agent and verifies the log. It returns the calls by ID,
// after it has logged them as a table.
func (r everyToolRun) run(agent string) map[string]everyToolCall {
	r.Helper()
	r.ledger("run", "--agent", agent, "--script", filepath.Join(filepath.Dir(r.project), "session.json"), "--workspace", r.project,
		"--rules", filepath.Join(everyToolFolder, "every.rules"), "--tools", filepath.Join(everyToolFolder, "tools"))
	if out := r.ledger("verify"); !bytes.Contains(out, []byte("every law holds")) {
		r.Errorf("ledger verify = %s", out)
	}
	called := map[string]everyToolCall{}
	var table strings.Builder
	for _, c := range decodeJSON[[]everyToolCall](r.T, r.ledger("call", "ls", "-o", "json")) {
		called[c.Call] = c
		fmt.Fprintf(&table, "%-13s %-12s %-8s %-13s %-44.44s %.60s\n", c.Call, c.Tool, c.Agent, c.Outcome, orEmpty(c.Title), firstLine(orEmpty(c.Text)))
	}
	r.Logf("ledger run --agent %s:\n%s", agent, table.String())
	return called
}

// orEmpty returns the text that p points to, or "" for nil.
func orEmpty(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// firstLine returns a text up to its first line end.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// turns returns the turns of the store in the order of the log.
func (r everyToolRun) turns() []shownTurn {
	r.Helper()
	var turns []shownTurn
	for line := range bytes.Lines(r.ledger("event", "ls", "--kind", "TurnMaterialized", "-o", "jsonl")) {
		id := decodeJSON[struct{ Data struct{ Turn string } }](r.T, line).Data.Turn
		turns = append(turns, decodeJSON[shownTurn](r.T, r.ledger("turn", "show", id, "-o", "json")))
	}
	return turns
}

// hidden returns why the turn hid each of its hidden tools.
func (s shownTurn) hidden() map[string]string {
	why := map[string]string{}
	for _, h := range s.Hidden {
		why[h.Tool] = h.Why
	}
	return why
}

// files returns the mode and the content of each file of the project by its path.
func (r everyToolRun) files() map[string]string {
	r.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(r.project, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(r.project, path)
		found[filepath.ToSlash(name)] = info.Mode().String() + " " + string(data)
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return found
}

// registeredTools returns the tools of a ToolsRegistered event, a row of ledger event ls -o
// jsonl.
func registeredTools(t *testing.T, row []byte) []events.RegisteredTool {
	t.Helper()
	return decodeJSON[struct{ Data events.ToolsRegistered }](t, row).Data.Tools
}

// builtInTools returns the names of the built-in tools, which the command registers in the
// layer of the location before the tools from files.
func (r everyToolRun) builtInTools() []string {
	r.Helper()
	first, _, _ := bytes.Cut(r.ledger("event", "ls", "--kind", "ToolsRegistered", "-o", "jsonl"), []byte("\n"))
	var names []string
	for _, t := range registeredTools(r.T, first) {
		names = append(names, string(t.Name))
	}
	return names
}

// lspOutcome returns the outcome of the call of lsp. It is failed if the machine has a
// language server and none for Go. Without any server the turn hides the tool.
func (r everyToolRun) lspOutcome(first shownTurn) string {
	r.Helper()
	why, hides := first.hidden()["lsp"]
	_, err := exec.LookPath("gopls")
	switch {
	case err == nil:
		return "succeeded"
	case !hides:
		return "failed"
	}
	if !strings.HasPrefix(why, "this machine lacks program:gopls|") {
		r.Errorf("lsp is hidden because %s", why)
	}
	return "unknown_tool"
}

// checkOutcomes compares the outcomes of calls. A call that want does not name succeeds.
func (r everyToolRun) checkOutcomes(called map[string]everyToolCall, want map[string]string) {
	r.Helper()
	for id, c := range called {
		expected, named := want[id]
		if !named {
			expected = "succeeded"
		}
		if c.Outcome != expected {
			r.Errorf("call %s of %s = %s: %s, want %s", id, c.Tool, c.Outcome, orEmpty(c.Text), expected)
		}
	}
	for id := range want {
		if _, ok := called[id]; !ok {
			r.Errorf("call %s is not in the log", id)
		}
	}
}

// Each built-in tool, a skill, a tool of the project and one of the session are called in
// a real project, with the expected outcome, and every law holds. Without a person the
// questions are denied, and say so.
func TestTheBuildAgentUsesEveryTool(t *testing.T) {
	t.Parallel()
	r := newEveryToolRun(t)
	called := r.run("build")
	turns := r.turns()
	r.checkOutcomes(called, map[string]string{
		"lsp": r.lspOutcome(turns[0]), "edit-hidden": "unknown_tool", "batch/4": "unknown_tool", "review-task": "unknown_tool",
		"question": "denied", "plan_enter": "denied", "plan_exit": "unknown_tool",
	})
	var used []string
	for _, c := range called {
		used = append(used, c.Tool)
	}
	for _, name := range append(r.builtInTools(), "wordcount", "shout") {
		if !slices.Contains(used, name) {
			t.Errorf("no call of %s", name)
		}
	}
	for id, text := range map[string]string{
		"bash": "checked", "wordcount": `{"words":30}`, "shout": "HELLO", "webfetch": "# Style", "websearch": "Say hello.", "codesearch": "fmt.Println",
		"skill": "Add one line for each change", "task": "The package greets", "todoread": "add a farewell", "question": "no one to ask",
		"plan_enter": "no one to ask", "batch": "3 of 4 calls succeeded", "invalid": "a text is required",
	} {
		if got := orEmpty(called[id].Text); !strings.Contains(got, text) {
			t.Errorf("call %s reads %q, want %q in it", id, got, text)
		}
	}
	if parent := orEmpty(called["batch/2"].Parent); parent != "batch" {
		t.Errorf("parent of batch/2 = %q, want batch", parent)
	}
	want := []string{"BATCH.md", "CHANGELOG.md", "REVIEW.md", "docs/NOTES.md", "greet/bye.go", "greet/greet.go"}
	for _, name := range append(want, ".ledger/plans/greetings.md") {
		if _, ok := r.files()[name]; !ok {
			t.Errorf("no file %s in the project", name)
		}
	}
	if _, ok := r.files()["OBSOLETE.md"]; ok {
		t.Error("OBSOLETE.md was not deleted")
	}
	byModel := turns[slices.IndexFunc(turns, func(s shownTurn) bool { return strings.HasPrefix(s.Model, "gpt-5") })].hidden()
	for _, name := range []string{"edit", "write"} {
		if !strings.HasPrefix(byModel[name], "model gpt-5-recorded is not among ") {
			t.Errorf("%s is hidden from gpt-5 because %q", name, byModel[name])
		}
	}
}

// The agent plan changes no file but its plan, also not by a batch, by a task or by a tool
// from a file. Each tool that it cannot use is hidden with the reason.
func TestThePlanAgentChangesOnlyItsPlan(t *testing.T) {
	t.Parallel()
	r := newEveryToolRun(t)
	before := r.files()
	called := r.run("plan")
	turns := r.turns()
	r.checkOutcomes(called, map[string]string{
		"lsp": r.lspOutcome(turns[0]), "edit-hidden": "unknown_tool", "batch/4": "unknown_tool", "review-task": "unknown_tool",
		"question": "denied", "plan_enter": "unknown_tool", "plan_exit": "denied",
		"edit": "denied", "write": "denied", "apply_patch": "denied", "batch/3": "denied", "review-write": "denied", "webfetch": "denied",
		"bash": "unknown_tool", "wordcount": "unknown_tool", "shout": "unknown_tool",
	})
	const rule = "by deny * *  built-in agent plan:5"
	want := map[string]string{
		"apply_patch": "model recorded-1 is not among *gpt-*, !*gpt-4*, !*oss*; the flag apply_patch is not set",
		"bash":        rule, "plan_enter": rule, "wordcount": rule, "shout": rule,
	}
	got := turns[0].hidden()
	delete(got, "lsp") // see lspOutcome
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hidden from plan (-want +got):\n%s", diff)
	}
	task := turns[slices.IndexFunc(turns, func(s shownTurn) bool { return s.Agent == "general" })].hidden()
	if task["bash"] != rule || !strings.HasPrefix(task["task"], "by deny task *") {
		t.Errorf("hidden from the task of plan = %v", task)
	}
	after := r.files()
	maps.DeleteFunc(after, func(name, _ string) bool { return strings.HasPrefix(name, ".ledger/plans/") })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("files of the project (-before +after):\n%s", diff)
	}
	if plan := r.files()[".ledger/plans/greetings.md"]; !strings.Contains(plan, "Correct the greeting") {
		t.Errorf("the plan has %q", plan)
	}
}
