package render

import (
	"bufio"
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"golang.org/x/sys/unix"
)

// NewPrinter returns a Printer over the process's standard output, standard error,
// environment and clock. After the reader of a stream has closed the pipe, a write to
// that stream calls the function leave with fault.ErrUnread.
func NewPrinter(leave context.CancelCauseFunc) *Printer {
	return &Printer{
		Out: bufio.NewWriter(pipe{os.Stdout, leave}), Err: pipe{os.Stderr, leave}, Env: os.LookupEnv, Now: time.Now,
		Terminal: IsTerminal(os.Stdout), ErrTerminal: IsTerminal(os.Stderr), OutFile: os.Stdout, ErrFile: os.Stderr,
	}
}

// A pipe is a standard stream of the process, which may be a pipe.
type pipe struct {
	file *os.File
	// leave ends the context of the command.
	leave context.CancelCauseFunc
}

// Write writes to the file. If the write fails with EPIPE it calls leave with
// fault.ErrUnread, and still returns the error.
func (p pipe) Write(data []byte) (int, error) {
	n, err := p.file.Write(data)
	if errors.Is(err, syscall.EPIPE) {
		p.leave(fault.ErrUnread)
	}
	return n, err
}

// WhileRead returns a context that ends with fault.ErrUnread when the reader of the
// standard output closes the pipe. A command that follows a log needs it: it may have
// no record to write for hours, and so does not notice by EPIPE that its reader has
// left.
//
// WhileRead starts a goroutine that waits in poll(2) for the pipe and for a second
// pipe, by which the returned function wakes it. The caller must call that function,
// which ends the context and joins the goroutine. If no pipe can be made, or Out is
// no file, the context is not watched.
func (p *Printer) WhileRead(ctx context.Context) (context.Context, func()) {
	if p.OutFile == nil {
		return ctx, func() {}
	}
	wake, woken, err := os.Pipe()
	if err != nil {
		return ctx, func() {} // the next write meets EPIPE
	}
	ctx, leave := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer wake.Close()
		both := []unix.PollFd{{Fd: int32(p.OutFile.Fd())}, {Fd: int32(wake.Fd())}}
		for both[1].Revents == 0 && both[0].Revents == 0 {
			if _, err := unix.Poll(both, -1); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
		if both[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			leave(fault.ErrUnread)
		}
	})
	return ctx, func() {
		woken.Close()
		watching.Wait()
		leave(nil)
	}
}
