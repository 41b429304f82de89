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
		env: os.LookupEnv, now: time.Now, entropy: rand.Reader, terminal: isTerminal(os.Stdout),
	}
	return a.run(ctx, os.Args[1:])
}

// interruptible returns a context that the first signal to end ends, with the
// reason as its cause. The second signal ends the process. The function that
// it returns gives the signals back.
func interruptible(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, done := make(chan os.Signal, 2), make(chan struct{})
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case s := <-signals:
			cancel(interruptionBy(s))
		case <-done:
			return
		}
		select {
		case <-signals:
			os.Exit(exitInterrupted)
		case <-done:
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		waiting.Wait()
		cancel(nil)
	}
}

func interruptionBy(s os.Signal) domain.Interruption {
	if s == os.Interrupt {
		return domain.ByUser
	}
	return domain.ByShutdown
}
