package builtins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// Scenario 140.
func TestCommandIsAskedAboutRunAndShown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	output, err := b.run(t, "bash", input{"command": "pwd"})
	if err != nil {
		t.Fatal(err)
	}
	want := domain.Contents{domain.Text(b.dir + "\n"), domain.Text("Command exited with code 0.")}
	if diff := cmp.Diff(want, output.Content()); diff != "" {
		t.Errorf("the model reads (-want +got):\n%s", diff)
	}
	if got := string(output.Structured()); got != `{"exit":0,"truncated":false,"output":"`+b.dir+`\n"}` {
		t.Errorf("structured %s", got)
	}
	if len(b.asked) != 1 || b.asked[0].Action != "bash" || !slices.Equal(b.asked[0].Resources, []string{"pwd"}) || !slices.Equal(b.asked[0].Save, []string{"pwd"}) {
		t.Errorf("asked %+v", b.asked)
	}
}

func TestExitStatusIsNoFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	out, text := must[bashResult](t, b, "bash", input{"command": "echo out; echo err >&2; exit 3"})
	if *out.Exit != 3 || text != "out\nerr\nCommand exited with code 3." {
		t.Errorf("bash = %+v, %q", out, text)
	}
	out, text = must[bashResult](t, b, "bash", input{"command": "exit 0"})
	if *out.Exit != 0 || text != "(no output)Command exited with code 0." {
		t.Errorf("bash = %+v, %q", out, text)
	}
	out, text = must[bashResult](t, b, "bash", input{"command": "kill -KILL $$"})
	if out.Exit != nil || out.Signal != "killed" || !strings.HasSuffix(text, "Command was ended by a signal: killed.") {
		t.Errorf("bash = %+v, %q", out, text)
	}
}

func TestTimeoutKeepsTheOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	output, err := b.run(t, "bash", input{"command": "echo begun; exec sleep 600", "timeout": 200})
	if err != nil {
		t.Fatal(err)
	}
	want := domain.Contents{domain.Text("begun\n\n\nCommand exceeded timeout of 200 ms. Retry with a larger timeout if it needs more time."), domain.Text("Command timed out before completion.")}
	if diff := cmp.Diff(want, output.Content()); diff != "" {
		t.Errorf("the model reads (-want +got):\n%s", diff)
	}
	if got := string(output.Structured()); got != `{"truncated":false,"timeout":true,"output":"begun\n"}` {
		t.Errorf("structured %s", got)
	}
}

// Scenario 140.
func TestLostOutputIsCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.CaptureLimit = 100 })
	out, text := must[bashResult](t, b, "bash", input{"command": "head -c 1000 /dev/zero | tr '\\0' x; printf END"})
	want := strings.Repeat("x", 50) + "\n\n[903 bytes lost here]\n\n" + strings.Repeat("x", 47) + "END"
	if !out.Truncated || out.Lost != 903 || out.Output != want {
		t.Errorf("bash = %+v", out)
	}
	output, err := b.run(t, "bash", input{"command": "head -c 1000 /dev/zero"})
	if err != nil || output.Lost() != 900 {
		t.Errorf("the output lost %d, %v, want 900", output.Lost(), err)
	}
	if !strings.Contains(text, "\n\n[output capture truncated at the in-memory safety limit] (903 bytes lost)") {
		t.Errorf("the model reads %q", text)
	}
}

func TestInterruptedCommandReportsWhatItWrote(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := filepath.Join(b.dir, "begun")
	ctx, interrupt := context.WithCancelCause(t.Context())
	defer interrupt(nil)
	var last domain.Progress
	inv := domain.Invocation{}.Reporting(func(p domain.Progress) { last = p })
	done := make(chan error, 1)
	go func() {
		_, err := call(ctx, t, b.tools["bash"], input{"command": "echo half; echo x > begun; exec sleep 600"}, inv)
		done <- err
	}()
	for t.Context().Err() == nil {
		if data, err := os.ReadFile(path); err == nil && len(data) > 0 {
			break
		}
	}
	interrupt(domain.ByUser)
	if err := <-done; !errors.Is(err, domain.ErrInterrupted) || !errors.Is(err, domain.ByUser) {
		t.Errorf("bash = %v, want that it was interrupted by the user", err)
	}
	if got := last.Content.Text(); got != "half\n" {
		t.Errorf("reported %q, want half", got)
	}
}

// Scenario 142.
func TestWorkdirReplacedDuringApprovalRunsNothing(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(dir, outside string) error{
		"by a file":         func(dir, _ string) error { return os.WriteFile(dir, nil, 0o644) },
		"by a link outside": func(dir, outside string) error { return os.Symlink(outside, dir) },
		"by a link inside":  func(dir, _ string) error { return os.Symlink(filepath.Dir(dir), dir) },
		"by nothing":        func(string, string) error { return nil },
		"by an empty directory": func(dir, _ string) error {
			return errors.Join(os.Mkdir(dir+".new", 0o755), os.Rename(dir+".new", dir))
		},
		"by a moved directory": func(dir, outside string) error { return os.Rename(outside, dir) },
	} {
		b := newBench(t)
		b.put(t, "sub/x", "")
		dir := filepath.Join(b.dir, "sub")
		b.decide = func(permission.Ask) error { return errors.Join(os.Rename(dir, dir+".was"), replace(dir, b.outside)) }
		b.fails(t, "bash", input{"command": "touch ../ran", "workdir": "sub"}, "Unable to execute command: touch ../ran")
		for _, parent := range []string{b.dir, filepath.Dir(b.dir)} {
			if _, err := os.Stat(filepath.Join(parent, "ran")); err == nil {
				t.Errorf("replaced %s, the command ran", name)
			}
		}
	}
}

func TestWorkspaceReplacedDuringApprovalRunsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.decide = func(permission.Ask) error {
		return errors.Join(os.Rename(b.dir, b.dir+".was"), os.Rename(b.outside, b.dir))
	}
	b.fails(t, "bash", input{"command": "touch ran"}, "Unable to execute command: touch ran")
	if _, err := os.Stat(filepath.Join(b.dir, "ran")); err == nil {
		t.Error("the command ran in another directory than the person decided about")
	}
}

// Scenario 143.
func TestPathOutsideIsAWarning(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, b.outside+"/a", "secret\n")
	b.put(t, "b", "")
	out, text := must[bashResult](t, b, "bash", input{"command": "cat " + b.outside + "/a " + b.dir + "/b 2>/dev/null"})
	warning := "the command names a path outside the workspace: " + b.outside + "/a"
	if !slices.Equal(out.Warnings, []string{warning}) || text != "secret\nWarnings:\n- "+warning+"\n\nCommand exited with code 0." {
		t.Errorf("bash = %+v, %q", out, text)
	}
	for _, a := range b.asked {
		if a.Action != "bash" {
			t.Errorf("asked for %s", a.Action)
		}
	}
}

func TestMetadataSaysWhatAndWhere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.put(t, "sub/x", "")
	must[bashResult](t, b, "bash", input{"command": "ls", "workdir": "sub"})
	var got map[string]string
	if err := json.Unmarshal(b.asked[0].Metadata, &got); err != nil || fmt.Sprint(got) != fmt.Sprintf("map[command:ls workdir:%s/sub]", b.dir) {
		t.Errorf("metadata %v, %v", got, err)
	}
}

func TestCommandGetsTheDocumentedEnvironmentOnly(t *testing.T) {
	for name, value := range map[string]string{
		"LEDGER_STORE": "esdb://admin:secret1@db", "AWS_SECRET_ACCESS_KEY": "secret2", "BASH_ENV": "/secret3", "ENV": "/secret4", "GIT_PAGER": "secret5", "LD_AUDIT": "", "BASH_FUNC_ls%%": "() { echo secret6; }",
		"GOPROXY": "https://u:secret7@proxy", "LC_SECRET": "kept1", "GOFLAGS": "-kept2", "WANTED": "kept3", "npm_config_shell": "secret8", "http_proxy": "secret9",
	} {
		t.Setenv(name, value)
	}
	b := newBench(t)
	_, text := must[bashResult](t, b, "bash", input{"command": "env"})
	if strings.Contains(text, "secret") || !strings.Contains(text, "kept1") || !strings.Contains(text, "kept2") || strings.Contains(text, "kept3") || !strings.Contains(text, "PATH=") {
		t.Errorf("a command gets %s", text)
	}
	b = newBench(t, func(c *Config) { c.Environment = FilterEnvironment(os.Environ(), "WANTED", "ABSENT") })
	if _, text := must[bashResult](t, b, "bash", input{"command": "env"}); !strings.Contains(text, "WANTED=kept3") || strings.Contains(text, "secret") || strings.Contains(text, "ABSENT") {
		t.Errorf("with WANTED, a command gets %s", text)
	}
	b = newBench(t, func(c *Config) { c.Environment = []string{} })
	if _, text := must[bashResult](t, b, "bash", input{"command": "echo ${PATH+x}$HOME"}); strings.Contains(text, os.Getenv("HOME")) {
		t.Errorf("with an empty environment, a command gets %s", text)
	}
}

// docs/operation.md lists every inherited variable.
func TestInheritedVariablesAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/operation.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range InheritedVariables {
		if !strings.Contains(string(doc), "`"+name+"`") {
			t.Errorf("docs/operation.md does not name %s", name)
		}
	}
}

func TestCommandIsShownWithItsSpellingsAndIsNoOption(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	must[bashResult](t, b, "bash", input{"command": "/bin/ls -a"})
	if shown, err := b.asked[0].Preview(t.Context()); err != nil || shown.Text != "/bin/ls -a" || shown.Kind != domain.PreviewCommand {
		t.Errorf("the question shows %+v, %v, want the command", shown, err)
	}
	if got := b.asked[0].Spellings["/bin/ls -a"]; !slices.Equal(got, []string{"ls -a"}) {
		t.Errorf("spelled %q, want ls -a", got)
	}
	out, _ := must[bashResult](t, b, "bash", input{"command": "-x"})
	if out.Exit == nil || *out.Exit != 127 {
		t.Errorf("the line -x ended as %+v, want that no such command was found", out)
	}
}
