package builtins

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/domain"
)

// A fakePermission is a Permission that records its requests. decide answers them; if
// it is nil, every request is allowed.
type fakePermission struct {
	mu     sync.Mutex
	asked  []permission.Ask
	decide func(permission.Ask) error
	rules  domain.Rules // Check evaluates these
	shown  []domain.Preview
}

func (d *fakePermission) Assert(ctx context.Context, inv domain.Invocation, a permission.Ask) error {
	d.mu.Lock()
	d.asked = append(d.asked, a)
	d.mu.Unlock()
	if a.Preview != nil && d.Check(inv, a).Effect == domain.Ask {
		shown, err := a.Preview(ctx)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.shown = append(d.shown, shown)
		d.mu.Unlock()
	}
	if d.decide == nil {
		return nil
	}
	return d.decide(a)
}

// Check evaluates the rules. Without rules every request is for a person.
func (d *fakePermission) Check(_ domain.Invocation, a permission.Ask) permission.Evaluation {
	return permission.EvaluateRules(domain.RuleSets{d.rules}, a)
}

// order returns the recorded requests, each as "action resource,resource".
func (d *fakePermission) order() []string {
	var order []string
	for _, a := range d.asked {
		order = append(order, a.Action+" "+strings.Join(a.Resources, ","))
	}
	return order
}

// refuse is a decision against one action.
func refuse(action string) func(permission.Ask) error {
	return func(a permission.Ask) error {
		if a.Action == action {
			return &domain.Denied{Action: action, Resource: a.Resources[0]}
		}
		return nil
	}
}

// A bench is a workspace with the tools and a directory outside it.
type bench struct {
	*fakePermission
	dir, outside string
	config       Config
	tools        map[string]domain.Tool
}

// newBench returns a bench with a new workspace. change adapts the configuration.
func newBench(t testing.TB, change ...func(*Config)) *bench {
	t.Helper()
	parent, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{fakePermission: &fakePermission{}, dir: filepath.Join(parent, "work"), outside: filepath.Join(parent, "outside")}
	if err := errors.Join(os.Mkdir(b.dir, 0o755), os.Mkdir(b.outside, 0o755)); err != nil {
		t.Fatal(err)
	}
	root, err := workspace.Open(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	b.config = Config{Workspace: root, Permission: b.fakePermission, Grace: 100 * time.Millisecond}
	for _, f := range change {
		f(&b.config)
	}
	if b.tools, err = Tools(b.config); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) put(t testing.TB, name, content string) {
	t.Helper()
	path := name
	if !filepath.IsAbs(name) {
		path = filepath.Join(b.dir, name)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) content(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// An input is the JSON object that a tool receives, by key.
type input map[string]any

func call(ctx context.Context, t testing.TB, tool domain.Tool, in input, inv domain.Invocation) (domain.Output, error) {
	t.Helper()
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := tool.Bind(data)
	if err != nil {
		return domain.Output{}, err
	}
	return bound.Run(ctx, inv)
}

func (b *bench) run(t testing.TB, tool string, in input) (domain.Output, error) {
	t.Helper()
	return call(t.Context(), t, b.tools[tool], in, domain.Invocation{})
}

// must runs a tool, fails the test if the tool fails, and decodes the result.
func must[Out any](t testing.TB, b *bench, tool string, in input) (Out, string) {
	t.Helper()
	output, err := b.run(t, tool, in)
	if err != nil {
		t.Fatalf("%s(%v) = %v", tool, in, err)
	}
	var out Out
	if err := json.Unmarshal(output.Structured(), &out); err != nil {
		t.Fatal(err)
	}
	return out, output.Content().Text()
}

// fails runs a tool, fails the test unless the tool fails, and checks the text that
// the model reads.
func (b *bench) fails(t testing.TB, tool string, in input, want string) {
	t.Helper()
	_, err := b.run(t, tool, in)
	if failure, ok := errors.AsType[*domain.Failure](err); !ok || !strings.Contains(failure.Error(), want) {
		t.Errorf("%s(%v) = %v, want a failure with %q", tool, in, err, want)
	}
}

func TestToolsHaveTheirActions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	want := map[string]string{"read": "read", "write": "edit", "edit": "edit", "glob": "glob", "grep": "grep", "bash": "bash", "apply_patch": "edit"}
	if len(b.tools) != len(want) {
		t.Errorf("there are %d tools, want %d", len(b.tools), len(want))
	}
	for name, action := range want {
		tool := b.tools[name]
		if tool.IsZero() || tool.Action(domain.Name(name)) != action {
			t.Errorf("tool %s: zero %v, want action %s", name, tool.IsZero(), action)
		}
	}
	for _, name := range []string{"background", "description"} { // Scenario 140.
		if strings.Contains(string(b.tools["bash"].Describe("bash").Input), `"`+name+`":{`) {
			t.Errorf("bash takes %s", name)
		}
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := newBench(t).config
	for want, change := range map[string]func(*Config){
		"Workspace":     func(c *Config) { c.Workspace = nil },
		"Permission":    func(c *Config) { c.Permission = nil },
		"Shell":         func(c *Config) { c.Shell = "/no/such/shell" },
		"SearchProgram": func(c *Config) { c.SearchProgram = "/no/such/rg" },
		"Grace":         func(c *Config) { c.Grace = -1 },
		"Capture":       func(c *Config) { c.CaptureLimit = 1 },
	} {
		c := good
		change(&c)
		if _, err := Tools(c); !errors.Is(err, ErrBadConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("Tools without a good %s = %v, want an ErrBadConfig that names it", want, err)
		}
	}
}

func TestInputOutOfRangeRunsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		tool string
		in   input
	}{
		{"read", input{"path": ""}}, {"read", input{"path": "a", "offset": 0}}, {"read", input{"path": "a", "limit": 2001}}, {"read", input{"path": "a", "limit": 0}},
		{"bash", input{"command": " \n"}}, {"bash", input{"command": "ls", "timeout": 600001}}, {"bash", input{"command": "ls", "timeout": 0}},
		{"glob", input{"pattern": ""}}, {"glob", input{"pattern": "*", "limit": 0}}, {"grep", input{"pattern": "a", "limit": 0}},
		{"edit", input{"path": "a", "oldString": "b"}}, {"write", input{"path": "a"}}, {"write", input{"path": "a", "content": "b", "mode": 1}},
	} {
		if _, err := b.run(t, c.tool, c.in); !errors.Is(err, domain.ErrInvalidInput) {
			t.Errorf("%s(%v) = %v, want ErrInvalidInput", c.tool, c.in, err)
		}
	}
	if len(b.asked) != 0 {
		t.Errorf("asked %v", b.order())
	}
}

// Scenario 140.
func TestBashIgnoresADescription(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	must[bashResult](t, b, "bash", input{"command": "true", "timeout": "1000", "description": "Do nothing"})
	for _, key := range []string{"background", "Description", "run_in_background"} {
		if _, err := b.run(t, "bash", input{"command": "true", key: "x"}); !errors.Is(err, domain.ErrInvalidInput) {
			t.Errorf("bash with %s = %v, want ErrInvalidInput", key, err)
		}
	}
}

func TestNumbersMayBeWrittenAsStrings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "a", "one\ntwo\nthree\n")
	if out, _ := must[readResult](t, b, "read", input{"path": "a", "offset": "2", "limit": "1"}); out.Content != "two" || out.Next != 3 {
		t.Errorf("read = %+v, want line 2 and the next at 3", out)
	}
	for _, limit := range []string{"0", "2001", "x", "", "1.5"} {
		if _, err := b.run(t, "read", input{"path": "a", "limit": limit}); !errors.Is(err, domain.ErrInvalidInput) {
			t.Errorf("read with limit %q = %v, want ErrInvalidInput", limit, err)
		}
	}
}

// everyTool has the input of one successful call of each tool.
var everyTool = map[string]input{
	"read": {"path": "a.txt"}, "write": {"path": "a.txt", "content": "x"}, "edit": {"path": "a.txt", "oldString": "one", "newString": "two"},
	"glob": {"pattern": "*"}, "grep": {"pattern": "one"}, "bash": {"command": "pwd > made"},
}

func TestRefusalIsReturnedAsGiven(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk full")
	for name, in := range everyTool {
		for _, want := range []error{&domain.Denied{Action: "x", Resource: "y"}, &domain.Declined{Feedback: "no"}, broken} {
			b := newBench(t)
			b.put(t, "a.txt", "one\n")
			b.decide = func(permission.Ask) error { return want }
			if _, err := b.run(t, name, in); err != want {
				t.Errorf("%s = %v, want the very %v", name, err, want)
			}
			if _, err := os.Stat(filepath.Join(b.dir, "made")); err == nil || b.content(t, "a.txt") != "one\n" {
				t.Errorf("%s had an effect", name)
			}
		}
	}
}

// Scenario 145.
// Scenario 149.
func TestOutsideIsAskedForFirst(t *testing.T) {
	t.Parallel()
	for name, in := range everyTool {
		b := newBench(t)
		b.put(t, b.outside+"/a.txt", "one\n")
		moved := input{}
		for key, value := range in {
			moved[key] = value
		}
		key, path := "path", b.outside
		switch name {
		case "bash":
			key = "workdir"
		case "read", "write", "edit":
			path += "/a.txt"
		}
		moved[key] = path
		if _, err := b.run(t, name, moved); err != nil {
			t.Errorf("%s = %v", name, err)
		}
		order := b.order()
		if len(order) != 2 || order[0] != "external_directory "+b.outside+"/*" || !slices.Equal(b.asked[0].Save, []string{b.outside + "/*"}) {
			t.Errorf("%s asked %v, want external_directory first", name, order)
		}
		refused := newBench(t)
		refused.decide = refuse("external_directory")
		if _, err := refused.run(t, name, input(moved)); !errors.Is(err, domain.ErrDenied) || len(refused.asked) != 1 {
			t.Errorf("%s refused = %v, having asked %v", name, err, refused.order())
		}
	}
}

// A file right below the root of the file system would save every file outside.
func TestRootOfTheFileSystemIsNotSaved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.decide = refuse("external_directory")
	for _, in := range []input{{"path": "/ledger-absent"}, {"path": "/ledger-absent/x"}, {"path": "/"}} {
		b.asked = nil
		if _, err := b.run(t, "read", in); !errors.Is(err, domain.ErrDenied) || len(b.asked) != 1 || len(b.asked[0].Save) != 0 {
			t.Errorf("read %v = %v, having asked %+v, want nothing to save", in, err, b.asked)
		}
	}
}

func TestEscapeIsRefusedByEveryTool(t *testing.T) {
	t.Parallel()
	for name, in := range everyTool {
		b := newBench(t)
		if err := os.Symlink(b.outside, filepath.Join(b.dir, "out")); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{"../outside": "relative_escape", "out/x": "location_escape"} {
			moved := input{}
			for key, value := range in {
				moved[key] = value
			}
			if name == "bash" {
				moved["workdir"] = path
			} else {
				moved["path"] = path
			}
			b.fails(t, name, moved, want)
		}
		if len(b.asked) != 0 {
			t.Errorf("%s asked %v", name, b.order())
		}
	}
}

// A refused first request leaves the workspace as it is, which TestRefusalIsReturnedAsGiven
// shows.
func TestEveryToolAsksFirst(t *testing.T) {
	t.Parallel()
	for name, tool := range newBench(t).tools {
		if !tool.AsksFirst() {
			t.Errorf("%s does not ask first", name)
		}
	}
}

func TestCallsHaveTitles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		tool string
		in   input
		want string
	}{
		{"read", input{"path": "src/a.go", "offset": 2}, "src/a.go"},
		{"write", input{"path": "/tmp/a b", "content": "x"}, "/tmp/a b"},
		{"edit", input{"path": "a", "oldString": "x", "newString": "y"}, "a"},
		{"glob", input{"pattern": "**/*.go"}, "**/*.go"},
		{"glob", input{"pattern": "*", "path": "src"}, "* in src"},
		{"grep", input{"pattern": "func .*", "path": "a.go"}, "func .* in a.go"},
		{"bash", input{"command": "\n  go test ./... \n"}, "go test ./..."},
		{"bash", input{"command": "cd x\nmake\x1b[2J"}, "cd x ..."},
		{"bash", input{"command": strings.Repeat("é", 121)}, strings.Repeat("é", 120) + "..."},
	} {
		data, err := json.Marshal(c.in)
		if err != nil {
			t.Fatal(err)
		}
		bound, err := b.tools[c.tool].Bind(data)
		if err != nil || bound.Title() != c.want {
			t.Errorf("%s(%v) has the title %q, %v, want %q", c.tool, c.in, bound.Title(), err, c.want)
		}
	}
}

func TestEditAndWriteAreOfferedWhereApplyPatchIsNot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for model, want := range map[string]bool{
		"": true, "claude-opus-4": true, "gemini-3": true, "gpt-5": false, "openai/gpt-5-codex": false, "gpt-4o": true, "gpt-4.1": true, "gpt-oss-120b": true,
	} {
		for _, name := range []string{"edit", "write"} {
			for _, facts := range []domain.TurnFacts{{Model: model}, {Model: model, Flags: []string{"edit"}}} {
				unmet := b.tools[name].Available().Unmet(facts)
				if offered := len(unmet) == 0; offered != (want || facts.Flags != nil) {
					t.Errorf("%s is offered to %q with flags %v: %v, want %v (%v)", name, model, facts.Flags, offered, want, unmet)
				}
			}
		}
	}
	for _, name := range []string{"read", "glob", "grep", "bash"} {
		if len(b.tools[name].Available()) != 0 {
			t.Errorf("%s is not offered everywhere", name)
		}
	}
}
