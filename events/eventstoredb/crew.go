package eventstoredb

import (
	"context"
	"sync"
	"sync/atomic"
)

// mostIdle is how many goroutines of a crew wait for more to do.
const mostIdle = 64

// A crew are goroutines that do one thing after the other. One begun for each
// append would grow its stack through the layers of gRPC each time. They end
// with their life, when they have nothing to do.
type crew struct {
	life    context.Context
	running *sync.WaitGroup // has them
	work    chan func()
	idle    atomic.Int32
}

func newCrew(life context.Context, running *sync.WaitGroup) *crew {
	return &crew{life: life, running: running, work: make(chan func())}
}

// do has a goroutine do something, and does not wait for it. Its caller is
// counted in running itself.
func (c *crew) do(what func()) {
	select {
	case c.work <- what:
	default:
		c.running.Add(1)
		go c.serve(what)
	}
}

// serve does what it was begun for and what comes then.
func (c *crew) serve(what func()) {
	defer c.running.Done()
	for ; what != nil; what = c.next() {
		what()
	}
}

// next waits for something to do. It returns nil if there is nothing any more,
// or if enough others wait.
func (c *crew) next() func() {
	defer c.idle.Add(-1)
	if c.idle.Add(1) > mostIdle {
		return nil
	}
	select {
	case what := <-c.work:
		return what
	case <-c.life.Done():
		return nil
	}
}
