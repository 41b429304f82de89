//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// A PipedProcess is a running command whose standard input and standard output are pipes
// to this process, such as a language server. Its standard error is captured. Stop may be
// called by several goroutines; the files are safe for concurrent use.
type PipedProcess struct {
	// Stdin is the write end of the standard input. A deadline can be set. Closing it
	// ends the input.
	Stdin *os.File
	// Stdout is the read end of the standard output. A deadline can be set. Stop closes
	// it.
	Stdout *os.File
	live   *liveCommand
	stop   func() RunResult
}

// StartPiped starts a command and returns while it runs. The caller calls Stop, also
// after the command has ended by itself. StartPiped returns an ErrBadCommand for an invalid
// Command or one with a Timeout, and an error of the system if the command does not start.
func StartPiped(c Command) (*PipedProcess, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if c.Timeout != 0 {
		return nil, fmt.Errorf("start command %s: %w: a piped process has no timeout; call Stop", c.Program, ErrBadCommand)
	}
	run, err := newRun(c)
	if err != nil {
		return nil, err
	}
	p, err := run.launchPiped()
	if err != nil {
		run.read.Close()
		run.write.Close()
		return nil, err
	}
	p.stop = sync.OnceValue(p.end)
	return p, nil
}

// launchPiped starts the command with standard error on the pipe of r, and with two new
// pipes for standard input and output.
func (r commandRun) launchPiped() (*PipedProcess, error) {
	stdin, toStdin, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start command %s: %w", r.command.Program, err)
	}
	defer stdin.Close()
	fromStdout, stdout, err := os.Pipe()
	if err != nil {
		toStdin.Close()
		return nil, fmt.Errorf("start command %s: %w", r.command.Program, err)
	}
	defer stdout.Close()
	cmd := r.execCommand()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, r.write
	live, err := r.launch(cmd)
	if err != nil {
		toStdin.Close()
		fromStdout.Close()
		return nil, err
	}
	return &PipedProcess{Stdin: toStdin, Stdout: fromStdout, live: live}, nil
}

// Exited returns a channel that is closed when the command has ended. Its descendants may
// still run.
func (p *PipedProcess) Exited() <-chan struct{} { return p.live.exited }

// Stop closes the standard input, sends SIGTERM to the process group unless the command
// has ended, and SIGKILL after the grace period. It kills every descendant that [Run]
// would kill, closes the pipes, and returns the exit status with the captured standard
// error. Every call returns the same RunResult, after the processes have ended.
func (p *PipedProcess) Stop() RunResult { return p.stop() }

// end does the work of Stop, once.
func (p *PipedProcess) end() RunResult {
	p.Stdin.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errStopped)
	result, _ := p.live.end(ctx) // errStopped, or an error of waiting, with which the processes have ended too
	p.Stdout.Close()
	p.live.read.Close()
	return result
}

// errStopped is the cause with which Stop terminates a command.
var errStopped = errors.New("the piped process was stopped")
