//go:build linux

package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/domain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sh(line string) process.Command {
	return process.Command{Program: "/bin/sh", Args: []string{"-c", line}, GracePeriod: 100 * time.Millisecond}
}

// written waits for a file that a command writes last.
func written(t *testing.T, path string) string {
	t.Helper()
	for t.Context().Err() == nil {
		if data, err := os.ReadFile(path); err == nil && bytes.HasSuffix(data, []byte("\n")) {
			return strings.TrimSpace(string(data))
		}
	}
	t.Fatalf("%s was not written", path)
	return ""
}

// gone waits until a process has ended. A zombie has ended.
func gone(t *testing.T, pid string) {
	t.Helper()
	if _, err := strconv.Atoi(pid); err != nil {
		t.Fatalf("%q is no process: %v", pid, err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z") {
			return
		}
	}
	t.Errorf("process %s outlives its command", pid)
	if n, err := strconv.Atoi(pid); err == nil {
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
}

func TestOutputIsOneStreamInOrder(t *testing.T) {
	t.Parallel()
	r, err := process.Run(t.Context(), sh("echo a; echo b >&2; echo c; cat; exit 3"))
	if err != nil || r.Exit != 3 || r.Signal != 0 || r.TimedOut || string(r.Output.Head) != "a\nb\nc\n" || r.Output.Lost != 0 {
		t.Errorf("Run = %+v, %v, want a, b, c and exit 3", r, err)
	}
}

// The path of the directory leads elsewhere by the time the command starts.
func TestCommandRunsInTheDirectoryThatWasOpened(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if err := errors.Join(os.Rename(dir, dir+".was"), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	c := sh("pwd")
	c.Dir, c.OpenDir = dir, opened
	if r, err := process.Run(t.Context(), c); err != nil || string(r.Output.Head) != dir+".was\n" {
		t.Errorf("Run = %+v, %v, want the command in %s", r, err, dir+".was")
	}
}

func TestSignalIsToldFromExit(t *testing.T) {
	t.Parallel()
	r, err := process.Run(t.Context(), sh("kill -KILL $$"))
	if err != nil || r.Signal != syscall.SIGKILL || r.Exit != 0 {
		t.Errorf("Run = %+v, %v, want SIGKILL", r, err)
	}
}

func TestLostBytesAreCountedExactly(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 99, 100, 101, 150, 1000, 300_000} {
		c := sh(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; printf END", size))
		c.CaptureLimit = 100
		r, err := process.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		o := r.Output
		if got := int64(len(o.Head)+len(o.Tail)) + o.Lost; got != int64(size+3) {
			t.Errorf("of %d bytes, %d are kept or counted", size+3, got)
		}
		if kept := append(bytes.Clone(o.Head), o.Tail...); !bytes.HasSuffix(kept, []byte("END")) || len(kept) != min(size+3, 100) {
			t.Errorf("of %d bytes, %q is kept, want at most 100 with the end", size+3, kept)
		}
	}
}

func TestTimeoutKeepsWhatWasWritten(t *testing.T) {
	t.Parallel()
	c := sh("echo begun; exec sleep 600")
	c.Timeout = 200 * time.Millisecond
	r, err := process.Run(t.Context(), c)
	if err != nil || !r.TimedOut || string(r.Output.Head) != "begun\n" || r.Signal != syscall.SIGTERM {
		t.Errorf("Run = %+v, %v, want a timeout that kept its output", r, err)
	}
}

func TestGroupMayTerminateByItself(t *testing.T) {
	t.Parallel()
	c := sh("trap 'echo cleaned; exit 7' TERM; echo begun; while :; do sleep 0.01; done")
	c.Timeout, c.GracePeriod = 200*time.Millisecond, 10*time.Second
	r, err := process.Run(t.Context(), c)
	if err != nil || !r.TimedOut || r.Exit != 7 || !strings.HasSuffix(string(r.Output.Head), "cleaned\n") {
		t.Errorf("Run = %+v, %v, want that it cleaned up", r, err)
	}
}

func TestInterruptionEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"a grandchild":                    "sh -c 'sleep 600 & echo $! > %s; echo begun; wait'",
		"one that ignores SIGTERM":        "trap '' TERM; echo $$ > %s; echo begun; while :; do sleep 0.05; done",
		"a grandchild that ignores both":  "(trap '' TERM INT; echo begun; sh -c 'echo $$ > %s; while :; do sleep 0.05; done')",
		"a grandchild in another session": "setsid sh -c 'echo begun; echo $$ > %s; sleep 600'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pid")
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			type ended struct {
				process.RunResult
				error
			}
			done := make(chan ended, 1)
			go func() {
				r, err := process.Run(ctx, sh(fmt.Sprintf(line, path)))
				done <- ended{r, err}
			}()
			pid := written(t, path)
			interrupt(domain.ByUser)
			e := <-done
			if !errors.Is(e.error, domain.ByUser) || string(e.Output.Head) != "begun\n" {
				t.Errorf("Run = %+v, want its cause and what it wrote", e)
			}
			gone(t, pid)
		})
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"a child in the background": "sleep 600 & echo $! > %s",
		"one that holds no output":  "sleep 600 > /dev/null 2>&1 & echo $! > %s",
		"one without environment":   "env -i sh -c 'echo $$ > %[1]s; exec sleep 600' & while ! [ -s %[1]s ]; do sleep 0.01; done",
		"a daemon":                  "setsid sh -c 'echo $$ > %[1]s; exec sleep 600' > /dev/null 2>&1 & while ! [ -s %[1]s ]; do sleep 0.01; done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "pid")
			r, err := process.Run(t.Context(), sh(fmt.Sprintf(line, path)))
			if err != nil || r.Exit != 0 {
				t.Errorf("Run = %+v, %v", r, err)
			}
			gone(t, written(t, path))
		})
	}
}

func TestAnotherCommandIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan process.RunResult, 1)
	go func() {
		r, _ := process.Run(ctx, sh("echo $$ > "+path+"; exec sleep 600"))
		done <- r
	}()
	pid := written(t, path)
	if _, err := process.Run(t.Context(), sh("setsid sleep 600 &")); err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(pid); err != nil || syscall.Kill(n, 0) != nil {
		t.Errorf("the end of one command ended another")
	}
	interrupt()
	if r := <-done; r.Signal != syscall.SIGTERM {
		t.Errorf("Run = %+v, want SIGTERM", r)
	}
}

func TestCommandThatCannotStartIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := process.Run(t.Context(), process.Command{Program: "/nowhere/at/all"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Run of no program = %v, want ErrNotExist", err)
	}
	c := sh("true")
	c.Dir = "/nowhere/at/all"
	if _, err := process.Run(t.Context(), c); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Run in no directory = %v, want ErrNotExist", err)
	}
	if _, err := process.Run(t.Context(), process.Command{}); !errors.Is(err, process.ErrBadCommand) {
		t.Errorf("Run of nothing = %v, want ErrBadCommand", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(domain.ByUser)
	if _, err := process.Run(ctx, sh("true")); !errors.Is(err, domain.ByUser) {
		t.Errorf("Run in a context that has ended = %v, want its cause", err)
	}
}

func TestEnvironmentIsTheOneGiven(t *testing.T) {
	t.Parallel()
	c := sh("echo $COLOUR-$HOME")
	c.Env = []string{"COLOUR=blue"}
	if r, err := process.Run(t.Context(), c); err != nil || string(r.Output.Head) != "blue-\n" {
		t.Errorf("Run = %+v, %v, want blue-", r, err)
	}
}

// A command with the terminal of this process could type into it, and answer a
// question.
func TestCommandHasNoTerminal(t *testing.T) {
	t.Parallel()
	result, err := process.Run(t.Context(), sh(`read -r pid comm state parent group session rest < /proc/$$/stat; echo $((pid - session))`))
	if err != nil || string(result.Output.Head) != "0\n" {
		t.Errorf("the command runs in the session of another process: %+v, %v", result, err)
	}
}
