package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/settlement-ledger/ledger/domain"
)

func main() { os.Exit(start()) }

// start runs the command in the process's surroundings and returns its exit
// code.
func start() int {
	ctx, leave := context.WithCancelCause(context.Background())
	defer leave(nil)
	ctx, stop := interruptible(ctx)
	defer stop()
	a := &app{
		in: os.Stdin, out: bufio.NewWriter(piped{os.Stdout, leave}), err: piped{os.Stderr, leave},
		env: os.LookupEnv, now: time.Now, entropy: rand.Reader, terminal: isTerminal(os.Stdout), watched: isTerminal(os.Stderr), results: os.Stdout, faults: os.Stderr,
	}
	return a.run(ctx, os.Args[1:])
}

// A piped is an output of the process. A write to a pipe that has no reader any
// more ends the context that leave ends, with errUnread as the cause: what is
// under way is interrupted, and the process ends with 141.
type piped struct {
	file  *os.File
	leave context.CancelCauseFunc
}

// Write writes to the file.
func (p piped) Write(data []byte) (int, error) {
	n, err := p.file.Write(data)
	if errors.Is(err, syscall.EPIPE) {
		p.leave(errUnread)
	}
	return n, err
}

// unread is the cause of a context that ended because an output has no reader. The
// log has it as an interruption by the shutdown of the process.
type unread struct{ domain.Interruption }

// Unwrap returns the interruption.
func (u unread) Unwrap() error { return u.Interruption }

// errUnread is the one value of its type.
var errUnread = unread{domain.ByShutdown}

// isUnread reports whether a context ended because an output has no reader.
func isUnread(ctx context.Context) bool {
	_, ok := errors.AsType[unread](context.Cause(ctx))
	return ok
}

// whileRead returns a context that ends, as a write would end it, once the standard
// output is a pipe without a reader: a command that follows may have nothing to
// write for hours. The function that it returns gives it up.
func (a *app) whileRead(ctx context.Context) (context.Context, func()) {
	if a.results == nil {
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
		both := []unix.PollFd{{Fd: int32(a.results.Fd())}, {Fd: int32(wake.Fd())}}
		for both[1].Revents == 0 && both[0].Revents == 0 {
			if _, err := unix.Poll(both, -1); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
		}
		if both[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			leave(errUnread)
		}
	})
	return ctx, func() {
		woken.Close()
		watching.Wait()
		leave(nil)
	}
}

// interruptible returns a context that the first signal to end ends, with the
// reason as its cause. A second request to end ends the process. A terminal that is
// gone (SIGHUP) ends the context too, however often the signal comes. SIGPIPE ends
// nothing: it can be about a peer at the network, and a write to an output that has
// no reader is an error, for which see piped. The function that it returns gives
// the signals back.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	pipes := make(chan os.Signal, 1) // which is never read: a signal that is caught does not end the process
	signal.Notify(pipes, syscall.SIGPIPE)
	signal.Notify(signals, endings()...)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for asked := false; ; {
			select {
			case s := <-signals:
				cancel(interruptionBy(s))
				request := s == os.Interrupt || s == syscall.SIGTERM
				if request && asked {
					os.Exit(exitInterrupted)
				}
				asked = asked || request
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		waiting.Wait()
		cancel(nil)
	}
}

// endings are the signals to end. Under nohup SIGHUP is none.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

func interruptionBy(s os.Signal) domain.Interruption {
	if s == os.Interrupt {
		return domain.ByUser
	}
	return domain.ByShutdown
}
