package embedded

import (
	"context"
	"runtime"
	"sync"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of the queue and of commit groups.
const (
	maxQueueBytes   = 64 << 20 // bytes waiting and in flight; a single append may exceed it
	maxGroupAppends = 1024     // appends in a group
	maxGroupBytes   = 4 << 20  // bytes in a group of more than one append
	maxInFlight     = 2        // groups in flight
	minSecondGroup  = 64       // least appends of a group that starts while another is in flight
)

// A queue holds appends until the committer takes them. It is safe for concurrent
// use.
//
// It has two stages, and each serves the streams round robin, so that a stream with
// many appends does not delay the others. In the first stage an append waits until
// the bytes of the queue allow it (admit). In the second stage it waits for the
// committer (put, take). The admitted bytes count until the append is answered or
// withdrawn, so the queue bounds the memory of all appends of the store.
type queue struct {
	mu struct {
		sync.Mutex
		due        sync.Cond // signals that a group can be built, or that the queue is closed
		idle       bool      // the committer waits on due
		closed     bool
		used       int                       // bytes admitted and not released
		admissions fairQueue[*admission]     // appends that wait for room
		ready      fairQueue[*appendRequest] // appends that wait for the committer
		inFlight   int                       // groups in flight
		last       int                       // appends in the group taken last
	}
}

// An admission is an append that waits for room in the queue.
type admission struct {
	size     int        // bytes to reserve
	admitted chan error // of capacity 1: nil once the bytes are reserved, or ErrClosed
}

// newQueue returns an open, empty queue.
func newQueue() *queue {
	q := &queue{}
	q.mu.due.L = &q.mu.Mutex
	return q
}

// admit waits until the queue has room for size bytes and reserves them. The caller
// then calls put with the request of these bytes, or release. It returns the cause of
// ctx if that ends first, and ErrClosed if the queue is closed. After an error no
// bytes are reserved.
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
		q.admitLocked() // smaller appends behind it may fit now
	} else if <-e.admitted == nil {
		q.releaseLocked(size)
	}
	return context.Cause(ctx)
}

// roomLocked reports whether size bytes fit. An append of any size fits into an empty
// queue.
func (q *queue) roomLocked(size int) bool { return q.mu.used == 0 || q.mu.used+size <= maxQueueBytes }

// admitLocked admits the waiting appends in fair order, until one does not fit. It then
// does not admit smaller appends that wait behind it, because these could delay a large
// append for ever. The caller holds mu.
func (q *queue) admitLocked() {
	for q.mu.admissions.len > 0 && q.roomLocked(q.mu.admissions.first().size) {
		e := q.mu.admissions.pop()
		q.mu.used += e.size
		e.admitted <- nil
	}
}

// releaseLocked gives back reserved bytes and admits waiting appends. The caller
// holds mu.
func (q *queue) releaseLocked(size int) {
	q.mu.used -= size
	q.admitLocked()
}

// release gives back the bytes of an append that was admitted and not put.
func (q *queue) release(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseLocked(size)
}

// put queues an admitted append; the committer sends its result to p.done. If the queue
// is closed, put releases the bytes and returns ErrClosed.
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

// withdraw removes a request from the queue and releases its bytes, when its caller
// no longer waits. It returns false if the committer has already taken the request.
// The outcome is then unknown, and the committer still uses the request.
func (q *queue) withdraw(p *appendRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mu.ready.remove(p.stream, p) {
		return false
	}
	q.releaseLocked(p.size)
	return true
}

// dueLocked reports whether the committer can build a group now. If no group is in
// flight, one waiting append is enough. If one group is in flight, as many appends must
// wait as the last group had, and at least minSecondGroup. If maxInFlight groups are in
// flight, no group can be built. The caller holds mu.
func (q *queue) dueLocked() bool {
	switch q.mu.inFlight {
	case 0:
		return q.mu.ready.len > 0
	case maxInFlight:
		return false
	}
	// A small group now would delay a larger one that collects while the other
	// group is in flight.
	return q.mu.ready.len >= max(minSecondGroup, q.mu.last)
}

// signalLocked wakes the committer if it waits and can build a group. The caller
// holds mu.
func (q *queue) signalLocked() {
	if q.mu.idle && q.dueLocked() {
		q.mu.idle = false
		q.mu.due.Signal()
	}
}

// take waits until a group can be built and appends its requests to group, one of
// each stream in turn. It counts the group as in flight until the committer calls
// finished. It returns an empty group when the queue is closed. Only the committer
// calls it.
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

// waitDueLocked waits until a group can be built or the queue is closed. The caller
// holds mu; waitDueLocked unlocks it while it waits. Before a first group it yields
// the processor as long as the number of waiting appends grows, which makes groups
// larger at almost no delay.
func (q *queue) waitDueLocked() {
	for !q.mu.closed {
		for !q.mu.closed && !q.dueLocked() {
			q.mu.idle = true
			q.mu.due.Wait()
		}
		q.mu.idle = false
		// Callers that the last group has answered append again now, and join this
		// group instead of the next.
		for n := 0; q.mu.inFlight == 0 && n < q.mu.ready.len && !q.mu.closed; {
			n = q.mu.ready.len
			q.mu.Unlock()
			runtime.Gosched()
			q.mu.Lock()
		}
		if q.dueLocked() {
			return // false if every waiting append was withdrawn meanwhile
		}
	}
}

// finished records that a group is no longer in flight, because all its requests have
// a result. It releases the size bytes of the group.
func (q *queue) finished(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.inFlight--
	q.releaseLocked(size)
	q.signalLocked()
}

// close closes the queue: every append that waits for room, and every later one,
// returns ErrClosed.
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

// size returns the number of appends that wait for the committer, and the bytes
// reserved by waiting and running appends.
func (q *queue) size() (appends, bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.ready.len, q.mu.used
}
