package versioncontrol

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// Timeout is the time limit of Read. A working copy whose comparison takes longer has a commit
// and a branch, and no state.
const Timeout = 2 * time.Second

// Read returns the state of the git working copy that contains a folder, or the zero
// VersionControl if it contains none or git cannot tell. The folder is an absolute path.
func Read(ctx context.Context, folder string) events.VersionControl {
	if !insideWorkingCopy(folder) {
		return events.VersionControl{}
	}
	program, err := exec.LookPath("git")
	if err != nil {
		return events.VersionControl{}
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	g := gitCommand{program: program, folder: folder}
	v := events.VersionControl{System: "git"}
	if out, err := g.output(ctx, maxName, "rev-parse", "--is-inside-work-tree"); err != nil || string(out) != "true\n" {
		return events.VersionControl{}
	}
	if out, err := g.output(ctx, maxName, "symbolic-ref", "--quiet", "--short", "HEAD"); err == nil {
		v.Branch = strings.ToValidUTF8(strings.TrimSuffix(string(out), "\n"), "\uFFFD")
	}
	if out, err := g.output(ctx, maxName, "rev-parse", "--verify", "--quiet", "HEAD"); err == nil {
		if commit := strings.TrimSuffix(string(out), "\n"); commitID.MatchString(commit) {
			v.Commit = commit
		}
	}
	v.State = g.state(ctx)
	return v
}

// maxName is the maximum number of bytes of a commit ID or the name of a branch.
const maxName = 4 << 10

// commitID matches the ID of a commit, a SHA-1 or SHA-256.
var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// insideWorkingCopy reports whether a folder or one above it has an entry .git. It saves starting
// git where there is no working copy.
func insideWorkingCopy(folder string) bool {
	for {
		if _, err := os.Lstat(filepath.Join(folder, ".git")); err == nil {
			return true
		}
		above := filepath.Dir(folder)
		if above == folder {
			return false
		}
		folder = above
	}
}

// A gitCommand runs git in a folder. Settings of overrides precede each subcommand.
type gitCommand struct {
	program, folder string
	overrides       []string
}

// overrides are the settings that keep a working copy from running programs. They precede the
// configuration of the working copy.
var overrides = []string{
	"core.fsmonitor=", "core.hooksPath=/dev/null", "core.untrackedCache=false", "core.pager=cat", "core.askPass=", "core.sshCommand=false",
	"core.alternateRefsCommand=", "core.gitProxy=", "credential.helper=", "protocol.allow=never", "submodule.recurse=false",
	"gc.auto=0", "maintenance.auto=false", "safe.bareRepository=explicit",
}

// environment returns the environment of git: nothing that changes its repository or traces it, and
// no permission for locks, prompts, transports and the fetching of missing objects.
func environment() []string {
	env := []string{
		"LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_PROTOCOL_FROM_USER=0",
		"GIT_PAGER=cat", "GIT_ASKPASS=", "SSH_ASKPASS=",
	}
	for _, name := range []string{"PATH", "HOME", "XDG_CONFIG_HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// output runs a subcommand and returns the first bytes of its standard output, up to limit. The
// error is nil if git succeeded and wrote no more.
func (g gitCommand) output(ctx context.Context, limit int, args ...string) ([]byte, error) {
	var all []string
	for _, setting := range slices.Concat(overrides, g.overrides) {
		all = append(all, "-c", setting)
	}
	out := &prefix{limit: limit}
	cmd := exec.CommandContext(ctx, g.program, append(all, args...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.WaitDelay = g.folder, environment(), out, 200*time.Millisecond
	err := cmd.Run()
	return out.Bytes(), err
}

// state compares the files of the working copy with the commit. It returns the empty state if
// git does not tell in time, or if a filter cannot be switched off.
func (g gitCommand) state(ctx context.Context) events.CopyState {
	filters, ok := g.filters(ctx)
	if !ok {
		return ""
	}
	g.overrides = filters
	out, err := g.output(ctx, 1, "status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty", "--no-renames")
	switch {
	case len(out) > 0:
		return events.DirtyCopy
	case err == nil:
		return events.CleanCopy
	}
	return ""
}

// maxFilters is the maximum size of the list of configured filters in bytes.
const maxFilters = 64 << 10

// filters returns the settings that switch every configured content filter off, and whether they
// do. git would run the filter of a file whose size or time changed.
func (g gitCommand) filters(ctx context.Context) (settings []string, ok bool) {
	out, err := g.output(ctx, maxFilters, "config", "--null", "--name-only", "--get-regexp", `^filter\.`)
	if exit, failed := errors.AsType[*exec.ExitError](err); failed && exit.ExitCode() == 1 {
		return nil, true // there is none
	}
	if err != nil {
		return nil, false
	}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		driver := string(name)
		if i := strings.LastIndexByte(driver, '.'); i >= 0 {
			driver = driver[:i]
		}
		if strings.Contains(driver, "=") {
			return nil, false // git takes the name of a setting to end at the first =
		}
		for _, setting := range []string{driver + ".clean=", driver + ".process=", driver + ".required=false"} {
			if !slices.Contains(settings, setting) {
				settings = append(settings, setting)
			}
		}
	}
	return settings, true
}

// A prefix keeps the first bytes that are written to it, and fails the write that exceeds limit.
type prefix struct {
	bytes.Buffer
	limit int
}

var errTooLong = errors.New("the output is too long")

// Write implements io.Writer.
func (p *prefix) Write(b []byte) (int, error) {
	n := min(len(b), p.limit-p.Len())
	p.Buffer.Write(b[:n])
	if n < len(b) {
		return n, errTooLong
	}
	return n, nil
}
