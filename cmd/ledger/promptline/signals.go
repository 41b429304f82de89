package promptline

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

// signals watches the signals of a terminal for a Console.
type signals struct {
	received chan os.Signal
	done     chan struct{}
	once     sync.Once
	waiting  sync.WaitGroup
}

// watchSignals starts a goroutine that redraws the line after a resize, takes the terminal
// again after a stop of the process, and restores the mode of the device before a SIGQUIT,
// which ends the process.
func watchSignals(c *Console) *signals {
	s := &signals{received: make(chan os.Signal, 4), done: make(chan struct{})}
	signal.Notify(s.received, unix.SIGWINCH, unix.SIGCONT, unix.SIGQUIT)
	s.waiting.Go(func() {
		for {
			select {
			case received := <-s.received:
				c.handle(received)
			case <-s.done:
				return
			}
		}
	})
	return s
}

// stop ends the watch and joins its goroutine.
func (s *signals) stop() {
	s.once.Do(func() {
		signal.Stop(s.received)
		close(s.done)
	})
	s.waiting.Wait()
}

// handle handles a signal of the terminal.
func (c *Console) handle(received os.Signal) {
	switch received {
	case unix.SIGWINCH:
		c.Redraw()
	case unix.SIGCONT:
		c.continued()
	case unix.SIGQUIT:
		c.RestoreMode()
		signal.Reset(unix.SIGQUIT)
		_ = unix.Kill(os.Getpid(), unix.SIGQUIT)
	}
}

// continued takes the terminal again after a stop of the process.
func (c *Console) continued() {
	c.mu.Lock()
	own := !c.mu.suspended && !c.mu.closed
	c.mu.Unlock()
	if own {
		_ = c.device.edit() // the terminal edits lines without it
		c.Redraw()
	}
}
