package eventstoredb

import (
	"context"
	"sync"
	"sync/atomic"
)

// maxIdleWorkers is how many goroutines of a crew wait for more to do.
const maxIdleWorkers = 64

// A workerPool are goroutines that do one thing after the other. One begun for each
// append would grow its stack through the layers of gRPC each time. They end
// with their life, when they have nothing to do.
type workerPool struct {
	closed context.Context
	tasks  *sync.WaitGroup // has them
	queue  chan func()
	idle   atomic.Int32
}

func newWorkerPool(closed context.Context, tasks *sync.WaitGroup) *workerPool {
	return &workerPool{closed: closed, tasks: tasks, queue: make(chan func())}
}

// run has a goroutine do something, and does not wait for it. Its caller is
// counted in running itself.
func (c *workerPool) run(task func()) {
	select {
	case c.queue <- task:
	default:
		c.tasks.Add(1)
		go c.work(task)
	}
}

// work does what it was begun for and what comes then.
func (c *workerPool) work(task func()) {
	defer c.tasks.Done()
	for ; task != nil; task = c.next() {
		task()
	}
}

// next waits for something to do. It returns nil if there is nothing any more,
// or if enough others wait.
func (c *workerPool) next() func() {
	defer c.idle.Add(-1)
	if c.idle.Add(1) > maxIdleWorkers {
		return nil
	}
	select {
	case task := <-c.queue:
		return task
	case <-c.closed.Done():
		return nil
	}
}
