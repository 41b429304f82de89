package embedded

import (
	"context"
	"runtime"
	"sync"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of what waits for the committer and of what it writes at once.
const (
	maxQueueBytes   = 64 << 20 // bytes that wait and that are in flight; an append alone may have more
	maxGroupAppends = 1024     // appends in a group
	maxGroupBytes   = 4 << 20  // bytes in a group of more than one append
	maxInFlight     = 2        // groups in flight
	minSecondGroup  = 64       // appends at least that take off beside a group in flight
)

// A queue is where appends wait for the committer. Streams take turns in it,
// so that a stream with much to append delays no other. What waits in it and
// what is in flight is bounded by its bytes; whoever has more waits admissions,
// where streams take turns as well.
type queue struct {
	mu struct {
		sync.Mutex
		due        sync.Cond // a group can be formed, or the queue is closed
		idle       bool      // the committer waits for due
		closed     bool
		used       int                       // bytes of all that was admitted and is not released
		admissions fairQueue[*admission]     // who waits to be admitted
		ready      fairQueue[*appendRequest] // who waits for the committer
		inFlight   int                       // groups in flight
		last       int                       // appends in the group that took off last
	}
}

// An admission waits to be admitted.
type admission struct {
	size     int
	admitted chan error
}

func newQueue() *queue {
	q := &queue{}
	q.mu.due.L = &q.mu.Mutex
	return q
}

// admit waits until there is room for so many bytes, which the caller releases,
// alone or with what it puts into the queue.
func (q *queue) admit(ctx context.Context, s events.Stream, size int) error {
	q.mu.Lock()
	switch {
	case q.mu.closed:
		q.mu.Unlock()
		return events.ErrClosed
	case q.mu.admissions.len == 0 && q.roomLocked(size):
		q.mu.used += size
		q.mu.Unlock()
		return nil
	}
	e := &admission{size: size, admitted: make(chan error, 1)}
	q.mu.admissions.push(s, e)
	q.mu.Unlock()
	select {
	case err := <-e.admitted:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.admissions.remove(s, e) {
		q.admitLocked() // it may have stood before smaller ones
	} else if <-e.admitted == nil {
		q.releaseLocked(size)
	}
	return context.Cause(ctx)
}

// roomLocked reports whether there is room. There is for anything that is
// alone.
func (q *queue) roomLocked(size int) bool { return q.mu.used == 0 || q.mu.used+size <= maxQueueBytes }

// admitLocked admits those for whom there is room, in their order.
func (q *queue) admitLocked() {
	for q.mu.admissions.len > 0 && q.roomLocked(q.mu.admissions.first().size) {
		e := q.mu.admissions.pop()
		q.mu.used += e.size
		e.admitted <- nil
	}
}

func (q *queue) releaseLocked(size int) {
	q.mu.used -= size
	q.admitLocked()
}

// release gives back what was admitted and not put.
func (q *queue) release(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseLocked(size)
}

// put gives p to the committer, which answers it, unless the queue is closed.
func (q *queue) put(p *appendRequest) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed {
		q.releaseLocked(p.size)
		return events.ErrClosed
	}
	q.mu.ready.push(p.stream, p)
	q.signalLocked()
	return nil
}

// withdraw takes p back, and reports whether the committer had not taken it.
func (q *queue) withdraw(p *appendRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.ready.remove(p.stream, p) {
		return false
	}
	q.releaseLocked(p.size)
	return true
}

// dueLocked reports whether a group can be formed.
func (q *queue) dueLocked() bool {
	switch q.mu.inFlight {
	case 0:
		return q.mu.ready.len > 0
	case maxInFlight:
		return false
	}
	// A small group would take the disk from a larger one, which forms while
	// the last is in flight.
	return q.mu.ready.len >= max(minSecondGroup, q.mu.last)
}

// signalLocked wakes the committer if a group can be formed.
func (q *queue) signalLocked() {
	if q.mu.idle && q.dueLocked() {
		q.mu.idle = false
		q.mu.due.Signal()
	}
}

// take waits until a group can be formed and returns its appends, one of each
// stream in turn, which are then in flight. It returns none when the queue is
// closed.
func (q *queue) take(group []*appendRequest) []*appendRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waitDueLocked()
	for size := 0; !q.mu.closed && q.mu.ready.len > 0 && len(group) < maxGroupAppends && size < maxGroupBytes; {
		p := q.mu.ready.pop()
		group = append(group, p)
		size += p.size
	}
	q.mu.last = len(group)
	if len(group) > 0 {
		q.mu.inFlight++
	}
	return group
}

// waitDueLocked waits until a group can be formed or the queue is closed. The lock
// is given up meanwhile.
func (q *queue) waitDueLocked() {
	for !q.mu.closed {
		for !q.mu.closed && !q.dueLocked() {
			q.mu.idle = true
			q.mu.due.Wait()
		}
		q.mu.idle = false
		// Appenders that the last group woke come now and not one group later.
		for n := 0; q.mu.inFlight == 0 && n < q.mu.ready.len && !q.mu.closed; {
			n = q.mu.ready.len
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
		}
		if q.dueLocked() {
			return // and not if all that waited was withdrawn meanwhile
		}
	}
}

// finished says that a group of so many bytes is no longer in flight.
func (q *queue) finished(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.inFlight--
	q.releaseLocked(size)
	q.signalLocked()
}

// close turns away all that waits and all that comes.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	for q.mu.ready.len > 0 {
		q.mu.ready.pop().done <- events.ErrClosed
	}
	for q.mu.admissions.len > 0 {
		q.mu.admissions.pop().admitted <- events.ErrClosed
	}
	q.mu.due.Signal()
}

// size returns how many appends wait for the committer, and how many bytes were
// admitted and are not released.
func (q *queue) size() (appends, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.ready.len, q.mu.used
}
