package versioncontrol_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner/versioncontrol"
)

// A copyDir is a folder with a git working copy.
type copyDir struct {
	t      *testing.T
	folder string
}

// git runs git in the working copy and returns its output.
func (c copyDir) git(args ...string) string {
	c.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = c.folder
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_ALLOW_PROTOCOL=file")
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// write writes a file of the working copy.
func (c copyDir) write(name, text string) {
	c.t.Helper()
	path := filepath.Join(c.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o777); err != nil {
		c.t.Fatal(err)
	}
}

// newCopy returns a working copy on the branch main with one commit, of the file a.txt.
func newCopy(t *testing.T) copyDir {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	c := copyDir{t, t.TempDir()}
	c.git("init", "-q", "-b", "main")
	c.write("a.txt", "a\n")
	c.write(".gitignore", "ignored\n")
	c.git("add", ".")
	c.git("commit", "-q", "-m", "first")
	return c
}

func TestReadReturnsCommitBranchAndState(t *testing.T) {
	t.Parallel()
	c := newCopy(t)
	commit := c.git("rev-parse", "HEAD")
	below := filepath.Join(c.folder, "below")
	clean := events.VersionControl{System: "git", Commit: commit, Branch: "main", State: events.CleanCopy}
	dirty := clean
	dirty.State = events.DirtyCopy
	for _, row := range []struct {
		name   string
		change func()
		want   events.VersionControl
	}{
		{"as committed", func() {}, clean},
		{"with an ignored file", func() { c.write("ignored", "x") }, clean},
		{"with the same content written again", func() { c.write("a.txt", "a\n") }, clean},
		{"with an untracked file", func() { c.write("b.txt", "b\n") }, dirty},
		{"with a staged file", func() { c.git("add", "b.txt") }, dirty},
		{"with a changed file", func() { c.git("reset", "-q", "--hard"); c.write("a.txt", "b\n") }, dirty},
		{"with a deleted file", func() {
			if err := os.Remove(filepath.Join(c.folder, "a.txt")); err != nil {
				t.Fatal(err)
			}
		}, dirty},
		{"restored, on another branch", func() { c.git("reset", "-q", "--hard"); c.git("checkout", "-q", "-b", "fix/it") },
			events.VersionControl{System: "git", Commit: commit, Branch: "fix/it", State: events.CleanCopy}},
		{"without a branch", func() { c.git("checkout", "-q", "--detach") }, events.VersionControl{System: "git", Commit: commit, State: events.CleanCopy}},
		{"without a commit", func() { c.git("checkout", "-q", "--orphan", "new") },
			events.VersionControl{System: "git", Branch: "new", State: events.DirtyCopy}},
	} {
		row.change()
		for _, folder := range []string{c.folder, below} {
			if err := os.MkdirAll(below, 0o777); err != nil {
				t.Fatal(err)
			}
			if got := versioncontrol.Read(t.Context(), folder); got != row.want {
				t.Errorf("%s: Read(%s) = %+v, want %+v", row.name, filepath.Base(folder), got, row.want)
			}
		}
	}
}

func TestReadOfAFolderWithoutAWorkingCopyIsZero(t *testing.T) {
	t.Parallel()
	plain, broken := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, ".git"), []byte("gitdir: /nowhere\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{plain, broken, filepath.Join(newCopy(t).folder, ".git"), filepath.Join(plain, "missing")} {
		if got := versioncontrol.Read(t.Context(), folder); !got.IsZero() {
			t.Errorf("Read(%s) = %+v, want zero", folder, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := versioncontrol.Read(ctx, newCopy(t).folder); !got.IsZero() {
		t.Errorf("Read with an ended context = %+v, want zero", got)
	}
}

// hostile makes a working copy whose configuration names programs wherever git would run one
// for a comparison. Each program creates a file of its name in the folder ran.
func hostile(t *testing.T) (c copyDir, ran string) {
	t.Helper()
	c, ran = newCopy(t), t.TempDir()
	programs := t.TempDir()
	program := func(name string) string {
		path := filepath.Join(programs, name)
		if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\n: > %s/%s\ncat\n", ran, name), 0o777); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sub := newCopy(t)
	c.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", sub.folder, "sub")
	c.write(".gitattributes", "*.txt filter=evil\n*.bin filter=long diff=evil\n")
	c.write("b.bin", "b\n")
	c.git("add", ".")
	c.git("commit", "-q", "-m", "hostile")
	for _, setting := range [][2]string{
		{"core.fsmonitor", "fsmonitor"}, {"core.pager", "pager"}, {"core.sshCommand", "ssh"}, {"core.askPass", "askpass"}, {"core.editor", "editor"},
		{"core.gitProxy", "proxy"}, {"core.alternateRefsCommand", "refs"}, {"credential.helper", "credential"}, {"diff.external", "diff"}, {"gpg.program", "gpg"},
		{"filter.evil.clean", "clean"}, {"filter.evil.smudge", "smudge"}, {"filter.long.process", "process"}, {"diff.evil.textconv", "textconv"},
		{"remote.origin.uploadpack", "uploadpack"}, {"alias.status", "!alias"}, {"alias.rev-parse", "!alias"},
	} {
		value := program(strings.TrimPrefix(setting[1], "!"))
		if strings.HasPrefix(setting[1], "!") {
			value = "!" + value
		}
		c.git("config", setting[0], value)
	}
	c.git("config", "filter.evil.required", "true")
	c.git("config", "remote.origin.url", sub.folder)
	c.git("config", "remote.origin.promisor", "true")
	c.git("config", "extensions.partialClone", "origin")
	c.git("config", "core.repositoryFormatVersion", "1")
	copyDir{t, filepath.Join(c.folder, "sub")}.git("config", "core.fsmonitor", program("submodule"))
	hooks := filepath.Join(programs, "hooks")
	if err := os.Mkdir(hooks, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"post-index-change", "post-checkout", "pre-commit", "reference-transaction", "fsmonitor-watchman"} {
		if err := os.Rename(program(hook), filepath.Join(hooks, hook)); err != nil {
			t.Fatal(err)
		}
	}
	c.git("config", "core.hooksPath", hooks)
	return c, ran
}

// touch changes the time of a file and not its content, so that git compares the content.
func (c copyDir) touch(names ...string) {
	c.t.Helper()
	for _, name := range names {
		if err := os.Chtimes(filepath.Join(c.folder, name), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// ranIn returns the names of the programs that ran.
func ranIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestAHostileWorkingCopyRunsNoProgram(t *testing.T) {
	t.Parallel()
	c, ran := hostile(t)
	c.touch("a.txt", "b.bin", "sub/a.txt")
	index := filepath.Join(c.folder, ".git", "index")
	before, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	if got := versioncontrol.Read(t.Context(), c.folder); got.Commit == "" || got.Branch != "main" || got.State != events.CleanCopy {
		t.Errorf("Read = %+v, want a clean copy of a commit on main", got)
	}
	if names := ranIn(t, ran); len(names) > 0 {
		t.Errorf("Read ran %v", names)
	}
	if after, err := os.ReadFile(index); err != nil || string(after) != string(before) {
		t.Errorf("Read wrote the index (%v)", err)
	}
	// The same comparison without the overrides runs programs: the working copy is hostile.
	c.touch("a.txt", "b.bin", "sub/a.txt")
	cmd := exec.Command("git", "status", "--porcelain")
	cmd.Dir = c.folder
	_ = cmd.Run()
	if names := ranIn(t, ran); len(names) < 3 {
		t.Errorf("plain git status ran only %v", names)
	}
}

// A partial clone that lacks an object fetches nothing: the state is not known.
func TestAMissingObjectIsNotFetched(t *testing.T) {
	t.Parallel()
	c, ran := hostile(t)
	tree := c.git("rev-parse", "HEAD^{tree}")
	if err := os.Remove(filepath.Join(c.folder, ".git", "objects", tree[:2], tree[2:])); err != nil {
		t.Fatal(err)
	}
	if got := versioncontrol.Read(t.Context(), c.folder); got.Commit == "" || got.State != "" {
		t.Errorf("Read = %+v, want a commit and no state", got)
	}
	if names := ranIn(t, ran); len(names) > 0 {
		t.Errorf("Read ran %v", names)
	}
}

// A filter whose name cannot be overridden is not run: the state is not known.
func TestAFilterThatCannotBeSwitchedOffLeavesTheStateUnknown(t *testing.T) {
	t.Parallel()
	c, ran := hostile(t)
	c.git("config", "filter.a=b.clean", "touch "+ran+"/named")
	c.write(".gitattributes", "*.txt filter=a=b\n")
	c.touch("a.txt")
	if got := versioncontrol.Read(t.Context(), c.folder); got.Commit == "" || got.State != "" {
		t.Errorf("Read = %+v, want a commit and no state", got)
	}
	if names := ranIn(t, ran); len(names) > 0 {
		t.Errorf("Read ran %v", names)
	}
}

// A git that does not answer costs the time limit of the context.
func TestReadReturnsWhenItsContextEnds(t *testing.T) {
	c := newCopy(t)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "git"), []byte("#!/bin/sh\nexec sleep 600\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if got := versioncontrol.Read(ctx, c.folder); !got.IsZero() {
		t.Errorf("Read with a git that does not answer = %+v, want zero", got)
	}
	t.Setenv("PATH", t.TempDir())
	if got := versioncontrol.Read(t.Context(), c.folder); !got.IsZero() {
		t.Errorf("Read without git = %+v, want zero", got)
	}
}
