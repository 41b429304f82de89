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

// NewPrinter returns a Printer of the process: its standard output and standard error,
// its environment and its clock. A write to a pipe that has no reader any more calls
// leave with fault.ErrUnread.
func NewPrinter(leave context.CancelCauseFunc) *Printer {
	return &Printer{
		Out: bufio.NewWriter(pipe{os.Stdout, leave}), Err: pipe{os.Stderr, leave}, Env: os.LookupEnv, Now: time.Now,
		Terminal: IsTerminal(os.Stdout), ErrTerminal: IsTerminal(os.Stderr), OutFile: os.Stdout, ErrFile: os.Stderr,
	}
}

// A pipe is a standard stream of the process. A write to a pipe that has no reader
// any more calls leave with fault.ErrUnread.
type pipe struct {
	file  *os.File
	leave context.CancelCauseFunc
}

// Write writes to the file.
func (p pipe) Write(data []byte) (int, error) {
	n, err := p.file.Write(data)
	if errors.Is(err, syscall.EPIPE) {
		p.leave(fault.ErrUnread)
	}
	return n, err
}

// WhileRead returns a context that ends, as a write would end it, once the standard
// output is a pipe without a reader: a command that follows may have nothing to
// write for hours. The function that it returns gives it up.
func (p *Printer) WhileRead(ctx context.Context) (context.Context, func()) {
	if p.OutFile == nil {
		return ctx, func() {}
	}
	wake, woken, err := os.Pipe()
	if err != nil {
		return ctx, func() {} // the next write finds it out
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
