package main

import (
	"bufio"
	"context"
	"crypto/rand"
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
	ctx, stop := interruptible(context.Background())
	defer stop()
	a := &app{
		in: os.Stdin, out: bufio.NewWriter(os.Stdout), err: os.Stderr,
		env: os.LookupEnv, now: time.Now, entropy: rand.Reader, terminal: isTerminal(os.Stdout), watched: isTerminal(os.Stderr),
	}
	return a.run(ctx, os.Args[1:])
}

// interruptible returns a context that the first signal to end ends, with the
// reason as its cause. A second request to end ends the process. A terminal
// that is gone and a reader that left (SIGHUP, SIGPIPE) end the context too,
// however often they come. A peer at the network that left, of which SIGPIPE tells
// as well, ends nothing. The function that it returns gives the signals back.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, endings()...)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for asked := false; ; {
			select {
			case s := <-signals:
				if s == syscall.SIGPIPE && !readerLeft(syscall.Stdout, syscall.Stderr) {
					continue
				}
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

// readerLeft reports whether one of these files is a pipe, or the like, that nobody
// reads any more.
func readerLeft(files ...int) bool {
	for _, fd := range files {
		state := []unix.PollFd{{Fd: int32(fd)}}
		if n, err := unix.Poll(state, 0); err == nil && n > 0 && state[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			return true
		}
	}
	return false
}

// endings are the signals to end. Under nohup SIGHUP is none.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE}
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
