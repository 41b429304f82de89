package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
)

// main exits with the exit code of start.
func main() { os.Exit(start()) }

// start runs the command on the streams and the environment of this process and
// returns the exit code. A write to the standard output after its reader closed the
// pipe cancels the context of the command.
func start() int {
	ctx, leave := context.WithCancelCause(context.Background())
	defer leave(nil)
	var diverted interruptDiversion
	ctx, stop := interruptible(ctx, &diverted)
	defer stop()
	a := newApp(render.NewPrinter(leave), os.Stdin, rand.Reader)
	a.interrupts = &diverted
	return a.run(ctx, os.Args[1:])
}

// interruptible returns a context that the first terminating signal cancels, with a
// domain.Interruption as its cause. The returned function unregisters the signals and
// joins the goroutine that receives them.
//
// A second SIGINT or SIGTERM kills the running commands of tools and exits the process. A
// SIGHUP, which reports a closed terminal, only cancels the context, however often it
// arrives. A SIGINT that diverted takes does not count. SIGPIPE is ignored, because a network peer can cause it; render.NewPrinter
// reports a write to an output without a reader as an error.
func interruptible(parent context.Context, diverted *interruptDiversion) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	pipes := make(chan os.Signal, 1) // is never read: a caught signal does not end the process
	signal.Notify(pipes, syscall.SIGPIPE)
	signal.Notify(signals, endings()...)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for asked := false; ; {
			select {
			case s := <-signals:
				if s == os.Interrupt && diverted.take() {
					continue
				}
				cancel(interruptionBy(s))
				request := s == os.Interrupt || s == syscall.SIGTERM
				if request && asked {
					process.KillAll()
					diverted.restoreTerminal()
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

// An interruptDiversion passes SIGINT to a prompt line. The zero interruptDiversion passes
// none. It is safe for concurrent use.
type interruptDiversion struct {
	mu      sync.Mutex
	handle  func() bool // returns false for a SIGINT that ends the program; nil: no diversion
	restore func()      // restores the mode of the terminal; nil: it was never changed
}

// divert passes each SIGINT to handle, until the returned function is called.
func (d *interruptDiversion) divert(handle func() bool) (end func()) {
	set := func(handle func() bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.handle = handle
	}
	set(handle)
	return func() { set(nil) }
}

// take passes a SIGINT on and reports whether it was taken.
func (d *interruptDiversion) take() bool {
	d.mu.Lock()
	handle := d.handle
	d.mu.Unlock()
	return handle != nil && handle()
}

// atExit sets the function that restores the mode of the terminal before the process exits
// at once.
func (d *interruptDiversion) atExit(restore func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.restore = restore
}

// restoreTerminal restores the mode of the terminal, if a prompt line changed it.
func (d *interruptDiversion) restoreTerminal() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.restore != nil {
		d.restore()
	}
}

// endings returns the signals that cancel the context of a command. It leaves out SIGHUP
// if the parent process ignores SIGHUP, as nohup does.
func endings() []os.Signal {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// interruptionBy returns the interruption that a signal causes: an interruption by the
// user for SIGINT, and a shutdown for any other signal.
func interruptionBy(s os.Signal) domain.Interruption {
	if s == os.Interrupt {
		return domain.ByUser
	}
	return domain.ByShutdown
}
