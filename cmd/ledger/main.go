package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
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
	a := newApp(render.NewPrinter(leave), os.Stdin, rand.Reader)
	return a.run(ctx, os.Args[1:])
}

// interruptible returns a context that the first signal to end ends, with the
// reason as its cause. A second request to end ends the process. A terminal that is
// gone (SIGHUP) ends the context too, however often the signal comes. SIGPIPE ends
// nothing: it can be about a peer at the network, and a write to an output that has
// no reader is an error, for which see render.NewPrinter. The function that it returns gives
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
					os.Exit(fault.ExitInterrupted)
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
