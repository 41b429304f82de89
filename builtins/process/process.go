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

// DefaultLimit is the number of captured bytes if Command.CaptureLimit is zero.
const DefaultLimit = 1 << 20

// DefaultGrace is the time between SIGTERM and SIGKILL if Command.GracePeriod is zero.
const DefaultGrace = 3 * time.Second

// MarkVariable is the environment variable that identifies the descendants of a command.
// Its value is a list of marks separated by spaces, one for each Run that a process
// descends from.
const MarkVariable = "LEDGER_COMMAND"

// ErrBadCommand says that a Command has no program, or a negative or too small limit.
var ErrBadCommand = errors.New("invalid command")

// A Command is a program to run.
type Command struct {
	Program      string        // a path, or a name to look up in PATH
	Args         []string      // without the program's own name
	Dir          string        // working directory; empty: that of this process
	OpenDir      *os.File      // the open directory Dir; on Linux the command runs in it even if Dir was renamed; nil: use Dir
	Env          []string      // KEY=VALUE; nil: the environment of this process
	CaptureLimit int           // bytes of output to keep, at least 2; zero: DefaultLimit
	Timeout      time.Duration // from start to SIGTERM; zero: none
	GracePeriod  time.Duration // from SIGTERM to SIGKILL; zero: DefaultGrace
}

// A RunResult describes the end of a command and its captured output.
type RunResult struct {
	Exit     int            // exit status, if Signal is zero
	Signal   syscall.Signal // the signal that ended the command; zero: it exited
	TimedOut bool           // the timeout ended the command
	Output   Capture        // standard output and standard error together
	Duration time.Duration  // from start to the end of the output
}

// Run runs a command to its end and returns its exit status and output. It blocks until
// the process group is dead and the output is read. If ctx ends first, Run terminates
// the command and returns the cause of ctx with the output captured so far. It returns
// an ErrBadCommand for an invalid Command, and an error of the system if the command
// does not start.
func Run(ctx context.Context, c Command) (RunResult, error) {
	c, err := c.withDefaults()
	if err != nil {
		return RunResult{}, err
	}
	if ctx.Err() != nil {
		return RunResult{}, context.Cause(ctx)
	}
	run, err := newRun(c)
	if err != nil {
		return RunResult{}, err
	}
	defer run.read.Close()
	return run.run(ctx)
}

// withDefaults returns the Command with zero limits replaced by their defaults, or an
// ErrBadCommand.
func (c Command) withDefaults() (Command, error) {
	if c.Program == "" || c.CaptureLimit < 0 || c.CaptureLimit == 1 || c.Timeout < 0 || c.GracePeriod < 0 {
		return c, fmt.Errorf("run command: %w: program %q, limit %d, timeout %v, grace %v", ErrBadCommand, c.Program, c.CaptureLimit, c.Timeout, c.GracePeriod)
	}
	if c.CaptureLimit == 0 {
		c.CaptureLimit = DefaultLimit
	}
	if c.GracePeriod == 0 {
		c.GracePeriod = DefaultGrace
	}
	return c, nil
}

// newRun returns a commandRun with a new pipe and mark. The caller closes its read end,
// and launch closes its write end.
func newRun(c Command) (commandRun, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return commandRun{}, fmt.Errorf("run command %s: %w", c.Program, err)
	}
	mark, err := newMark(w)
	if err != nil {
		r.Close()
		w.Close()
		return commandRun{}, fmt.Errorf("run command %s: %w", c.Program, err)
	}
	return commandRun{command: c, mark: mark, read: r, write: w}, nil
}

// newMark returns a text that identifies this run: the process ID and the inode of the
// output pipe. It is unique while the pipe is open.
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

// A commandRun is one command in progress. The pipe carries its output.
type commandRun struct {
	command     Command
	mark        string // value of MarkVariable for this run
	read, write *os.File
}

// A leaderExit is the end of the leader of a process group.
type leaderExit struct {
	state *os.ProcessState // nil if the leader did not start
	err   error            // of starting or waiting
}

// run starts the command, waits for its end, kills the process group and every marked
// descendant, and reads the rest of the output.
func (r commandRun) run(ctx context.Context) (RunResult, error) {
	cmd := r.execCommand()
	cmd.Stdout, cmd.Stderr = r.write, r.write
	live, err := r.launch(cmd)
	if err != nil {
		return RunResult{}, err
	}
	return live.end(ctx)
}

// execCommand returns the exec.Cmd of the command, without its standard streams.
func (r commandRun) execCommand() *exec.Cmd {
	cmd := exec.Command(r.command.Program, r.command.Args...)
	cmd.Dir, cmd.Env = r.command.Dir, r.environment()
	if r.command.OpenDir != nil {
		cmd.Dir = openDirPath(r.command.OpenDir, r.command.Dir)
	}
	return cmd
}

// A liveCommand is a started command. Its two goroutines read the output and wait for the
// leader of the process group; end joins them.
type liveCommand struct {
	commandRun
	started time.Time
	pid     int             // of the leader
	exited  chan struct{}   // closed when the leader has ended
	release chan struct{}   // closed to let the leader be reaped
	ended   chan leaderExit // gets the end of the leader after release
	drained chan struct{}   // closed at the end of the output
	output  *captureBuffer  // belongs to the reader until drained is closed
	joined  sync.WaitGroup
}

// launch starts cmd, which writes to the pipe of r. It closes the write end. The caller
// calls end exactly once after a success.
func (r commandRun) launch(cmd *exec.Cmd) (*liveCommand, error) {
	l := &liveCommand{commandRun: r, started: time.Now(), output: &captureBuffer{halfLimit: r.command.CaptureLimit / 2}}
	l.exited, l.release, l.ended, l.drained = make(chan struct{}), make(chan struct{}), make(chan leaderExit, 1), make(chan struct{})
	begun := make(chan *os.Process, 1)
	l.joined.Go(func() { l.ended <- startAndWait(cmd, begun, l.exited, l.release) })
	process := <-begun
	r.write.Close()
	if process == nil {
		l.joined.Wait()
		return nil, fmt.Errorf("run command %s: %w", r.command.Program, (<-l.ended).err)
	}
	l.pid = process.Pid
	liveCommands.add(l)
	l.joined.Go(func() {
		defer close(l.drained)
		_, _ = io.Copy(l.output, r.read) // ends with the last writer, or at the deadline that drain sets
	})
	return l, nil
}

// end waits until the command has ended or terminates it, as waitOrTerminate does. It
// then kills the process group and every marked descendant, reads the rest of the output
// and joins both goroutines.
func (l *liveCommand) end(ctx context.Context) (RunResult, error) {
	defer l.joined.Wait()
	// The leader is not reaped before release is closed, so no other process group can
	// have its ID when the group is killed.
	timedOut, cause := l.waitOrTerminate(ctx, l.pid, l.exited, l.drained)
	_ = syscall.Kill(-l.pid, syscall.SIGKILL) // an empty group is no error
	liveCommands.remove(l)
	close(l.release)
	e := <-l.ended
	killDescendants(l.mark)
	l.drain(l.drained)

	result := RunResult{TimedOut: timedOut, Output: l.output.capture(), Duration: time.Since(l.started)}
	if e.err != nil {
		return result, fmt.Errorf("wait for command %s: %w", l.command.Program, e.err)
	}
	if status, ok := e.state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		result.Signal = status.Signal()
	} else {
		result.Exit = e.state.ExitCode()
	}
	return result, cause
}

// startAndWait starts the command and waits for its end. It sends the process on begun,
// or nil if the command did not start. It closes exited at the end of the command, and
// reaps the process only after release is closed. Until then no other process can get
// its ID, so its group can be killed safely.
func startAndWait(cmd *exec.Cmd, begun chan<- *os.Process, exited chan<- struct{}, release <-chan struct{}) leaderExit {
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

// environment returns the environment of the command with the mark of this run. Marks of
// outer runs are kept.
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

// waitOrTerminate waits until the command has ended. If the timeout expires or ctx ends
// first, it sends SIGTERM to the process group and waits up to the grace period for the
// leader and for the end of the output. cause is the cause of ctx, or nil.
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
	_ = syscall.Kill(-group, syscall.SIGTERM) // an error means that the group has ended
	grace := time.NewTimer(r.command.GracePeriod)
	defer grace.Stop()
	for range 2 { // the leader has ended, and the output has no writer left
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

// drain waits up to drainTimeout for the rest of the output. If a process still holds
// the pipe then, its mark was not found, and the run does not wait for it.
func (r commandRun) drain(drained <-chan struct{}) {
	if err := r.read.SetReadDeadline(time.Now().Add(drainTimeout)); err != nil {
		r.read.Close()
	}
	<-drained
}

// drainTimeout is how long the run waits for the output of killed processes.
const drainTimeout = 500 * time.Millisecond
