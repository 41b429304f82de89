//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// DefaultLimit is the number of captured bytes of output where Command.Limit is zero.
const DefaultLimit = 1 << 20

// DefaultGrace is the time between termination and kill of a process group where Command.Grace
// is zero.
const DefaultGrace = 3 * time.Second

// MarkVariable is the environment variable that identifies the descendants of a command. Its value is
// a list with one element for each Run that a process descends from.
const MarkVariable = "LEDGER_COMMAND"

// ErrBadCommand says that a Command is invalid.
var ErrBadCommand = errors.New("not a command")

// A Command is a program to run.
type Command struct {
	Program      string        // a path, or a name to look up in PATH
	Args         []string      // without the program's own name
	Dir          string        // where it runs; empty: where this process does
	OpenDir      *os.File      // the directory Dir, open; on Linux the command runs in it wherever Dir leads by now; nil: none
	Env          []string      // KEY=VALUE; nil: as this process has
	CaptureLimit int           // how many bytes to capture, at least 2; zero: DefaultLimit
	Timeout      time.Duration // how long it may run; zero: for ever
	GracePeriod  time.Duration // between the request to terminate and the kill; zero: DefaultGrace
}

// A RunResult describes the end of a command and its captured output.
type RunResult struct {
	Exit     int            // the status, where Signal is zero
	Signal   syscall.Signal // that ended it; zero: it exited
	TimedOut bool           // its time ran out before it ended
	Output   Capture
	Duration time.Duration
}

// Run runs a command to its end. If ctx ends first, Run ends the command and returns the cause
// of ctx, with the output captured so far.
func Run(ctx context.Context, c Command) (RunResult, error) {
	if c.Program == "" || c.CaptureLimit < 0 || c.CaptureLimit == 1 || c.Timeout < 0 || c.GracePeriod < 0 {
		return RunResult{}, fmt.Errorf("run command: %w: program %q, limit %d, timeout %v, grace %v", ErrBadCommand, c.Program, c.CaptureLimit, c.Timeout, c.GracePeriod)
	}
	if ctx.Err() != nil {
		return RunResult{}, context.Cause(ctx)
	}
	if c.CaptureLimit == 0 {
		c.CaptureLimit = DefaultLimit
	}
	if c.GracePeriod == 0 {
		c.GracePeriod = DefaultGrace
	}
	r, w, err := os.Pipe()
	if err != nil {
		return RunResult{}, fmt.Errorf("run command %s: %w", c.Program, err)
	}
	defer r.Close()
	mark, err := newMark(w)
	if err != nil {
		w.Close()
		return RunResult{}, fmt.Errorf("run command %s: %w", c.Program, err)
	}
	return commandRun{command: c, mark: mark, read: r, write: w}.run(ctx)
}

// newMark returns a text that is unique among commands while the pipe is open.
func newMark(pipe *os.File) (string, error) {
	info, err := pipe.Stat()
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", errors.New("a pipe has no inode")
	}
	return fmt.Sprintf("%d.%d", os.Getpid(), stat.Ino), nil
}

// A commandRun is a command in progress.
type commandRun struct {
	command     Command
	mark        string
	read, write *os.File
}

// A leaderExit is the exit status of the leader of a process group.
type leaderExit struct {
	state *os.ProcessState
	err   error // that kept it from starting
}

func (r commandRun) run(ctx context.Context) (RunResult, error) {
	started := time.Now()
	var joined sync.WaitGroup
	defer joined.Wait()

	begun, exited, release, ended := make(chan *os.Process, 1), make(chan struct{}), make(chan struct{}), make(chan leaderExit, 1)
	joined.Go(func() { ended <- r.startAndWait(begun, exited, release) })
	process := <-begun
	r.write.Close()
	if process == nil {
		return RunResult{}, fmt.Errorf("run command %s: %w", r.command.Program, (<-ended).err)
	}
	output := &captureBuffer{halfLimit: r.command.CaptureLimit / 2}
	drained := make(chan struct{})
	joined.Go(func() {
		defer close(drained)
		_, _ = io.Copy(output, r.read) // it ends with the last writer, or with the deadline that is set below
	})

	// The group can be signalled for as long as its leader is not released:
	// until then no other group can have its number.
	timedOut, cause := r.waitOrTerminate(ctx, process.Pid, exited, drained)
	_ = syscall.Kill(-process.Pid, syscall.SIGKILL) // that there is nobody left is no error
	close(release)
	e := <-ended
	killDescendants(r.mark)
	r.drain(drained)

	result := RunResult{TimedOut: timedOut, Output: output.capture(), Duration: time.Since(started)}
	if e.err != nil {
		return result, fmt.Errorf("wait for command %s: %w", r.command.Program, e.err)
	}
	if status, ok := e.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		result.Signal = status.Signal()
	} else {
		result.Exit = e.state.ExitCode()
	}
	return result, cause
}

// startAndWait starts the command and waits for it. The process is on begun, or nil
// if it was not started. When it has ended it closes exited; its number stays
// its own until release is closed.
func (r commandRun) startAndWait(begun chan<- *os.Process, exited chan<- struct{}, release <-chan struct{}) leaderExit {
	cmd := exec.Command(r.command.Program, r.command.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.command.Dir, r.write, r.write
	if r.command.OpenDir != nil {
		cmd.Dir = openDirPath(r.command.OpenDir, r.command.Dir)
	}
	cmd.Env = r.environment()
	unlock := configureSession(cmd)
	defer unlock()
	if err := cmd.Start(); err != nil {
		begun <- nil
		return leaderExit{err: err}
	}
	begun <- cmd.Process
	err := waitLeader(cmd, exited, release)
	if _, failed := errors.AsType[*exec.ExitError](err); failed {
		err = nil
	}
	return leaderExit{cmd.ProcessState, err}
}

// environment adds the mark to the environment of the command.
func (r commandRun) environment() []string {
	env := r.command.Env
	if env == nil {
		env = os.Environ()
	}
	marks := r.mark
	if outer := os.Getenv(MarkVariable); outer != "" {
		marks = outer + " " + r.mark
	}
	return append(append([]string(nil), env...), MarkVariable+"="+marks)
}

// waitOrTerminate waits until the command has ended. If its time runs out or ctx ends,
// it has the group terminate, and leaves it the grace period for that.
func (r commandRun) waitOrTerminate(ctx context.Context, group int, exited, drained <-chan struct{}) (timedOut bool, cause error) {
	var timeout <-chan time.Time
	if r.command.Timeout > 0 {
		timer := time.NewTimer(r.command.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-exited:
		return false, nil
	case <-timeout:
		timedOut = true
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	_ = syscall.Kill(-group, syscall.SIGTERM) // a group that has ended meanwhile needs no signal
	grace := time.NewTimer(r.command.GracePeriod)
	defer grace.Stop()
	for range 2 { // the leader has ended, and whoever else could write
		select {
		case <-exited:
			exited = nil
		case <-drained:
			drained = nil
		case <-grace.C:
			return timedOut, cause
		}
	}
	return timedOut, cause
}

// drain waits for the rest of the output. What still holds the pipe then is
// no process of the command, or one that could not be found, and is not waited
// for.
func (r commandRun) drain(drained <-chan struct{}) {
	if err := r.read.SetReadDeadline(time.Now().Add(drainTimeout)); err != nil {
		r.read.Close()
	}
	<-drained
}

// drainTimeout is the time limit for the output of killed processes to arrive.
const drainTimeout = 500 * time.Millisecond
