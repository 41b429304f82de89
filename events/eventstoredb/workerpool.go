package eventstoredb

import (
	"context"
	"sync"
	"sync/atomic"
)

// maxIdleWorkers is the most goroutines of a workerPool that wait for a task.
const maxIdleWorkers = 64

// A workerPool runs tasks on goroutines that it reuses. A goroutine of its own would
// grow its stack through the layers of gRPC for every append. The idle goroutines end
// when the store closes.
type workerPool struct {
	closed context.Context
	tasks  *sync.WaitGroup // counts the workers
	queue  chan func()
	idle   atomic.Int32
}

// newWorkerPool returns a pool whose workers end with closed and are counted in tasks.
func newWorkerPool(closed context.Context, tasks *sync.WaitGroup) *workerPool {
	return &workerPool{closed: closed, tasks: tasks, queue: make(chan func())}
}

// run starts a task on an idle worker or a new one and returns at once. The caller
// counts the task itself.
func (c *workerPool) run(task func()) {
	select {
	case c.queue <- task:
	default:
		c.tasks.Add(1)
		go c.work(task)
	}
}

// work runs a first task and then tasks of the queue.
func (c *workerPool) work(task func()) {
	defer c.tasks.Done()
	for ; task != nil; task = c.next() {
		task()
	}
}

// next waits for a task. It returns nil if the store closes or enough workers are
// idle.
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
