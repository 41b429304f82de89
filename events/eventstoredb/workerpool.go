package eventstoredb

import (
	"context"
	"sync"
	"sync/atomic"
)

// maxIdleWorkers bounds the goroutines of a workerPool that wait for a task. The
// number of busy workers has no bound.
const maxIdleWorkers = 64

// A workerPool runs tasks on goroutines that it reuses. A new goroutine for every
// append would grow its stack through the layers of gRPC each time. A worker ends after
// a task if maxIdleWorkers other workers are idle. All idle workers end when the store
// closes. A workerPool is safe for concurrent use.
type workerPool struct {
	// closed ends when the store closes.
	closed context.Context
	// tasks counts the workers, so that the store can join them.
	tasks *sync.WaitGroup
	// queue has no buffer: a send succeeds only if an idle worker receives.
	queue chan func()
	// idle is the number of workers that wait in next.
	idle atomic.Int32
}

// newWorkerPool returns a pool without workers. The workers end when the context closed
// ends. The WaitGroup tasks counts each worker.
func newWorkerPool(closed context.Context, tasks *sync.WaitGroup) *workerPool {
	return &workerPool{closed: closed, tasks: tasks, queue: make(chan func())}
}

// run starts a task on an idle worker or a new one, and returns without waiting for
// the task. The task must end when its own context does. The caller counts the task
// in the store's tasks itself.
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

// next waits for a task. It returns nil if the store closes or more than
// maxIdleWorkers workers are idle.
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
