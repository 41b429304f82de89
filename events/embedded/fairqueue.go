package embedded

import (
	"slices"

	"github.com/settlement-ledger/ledger/events"
)

// A fairQueue is a queue that serves streams round robin: after an item of a stream
// it serves an item of every other stream that has items. The items of one stream are
// served in their order. push, first and pop take amortized constant time. It is not
// safe for concurrent use. The zero fairQueue is empty.
type fairQueue[T comparable] struct {
	queues map[events.Stream]*streamQueue[T] // the queue of each stream with items
	turns  fifo[*streamQueue[T]]             // queues with items; the first is served next
	len    int                               // items of all streams
	spare  []*streamQueue[T]                 // empty queues for reuse
}

// A streamQueue holds the items of one stream in a fairQueue.
type streamQueue[T comparable] struct {
	stream events.Stream
	items  fifo[T]
}

// maxSpareQueues bounds the empty queues that are kept for reuse.
const maxSpareQueues = 1024

// push adds an item after the others of its stream.
func (r *fairQueue[T]) push(s events.Stream, item T) {
	l := r.queues[s]
	if l == nil {
		l = r.newQueue(s)
		r.turns.push(l)
	}
	l.items.push(item)
	r.len++
}

// newQueue adds an empty queue for a stream to queues. It reuses a spare queue if
// there is one.
func (r *fairQueue[T]) newQueue(s events.Stream) *streamQueue[T] {
	var l *streamQueue[T]
	if last := len(r.spare) - 1; last >= 0 {
		l, r.spare = r.spare[last], r.spare[:last]
	} else {
		l = &streamQueue[T]{}
	}
	if r.queues == nil {
		r.queues = map[events.Stream]*streamQueue[T]{}
	}
	l.stream = s
	r.queues[s] = l
	return l
}

// recycle removes an empty queue and keeps it for reuse.
func (r *fairQueue[T]) recycle(l *streamQueue[T]) {
	delete(r.queues, l.stream)
	l.stream = ""
	if len(r.spare) < maxSpareQueues {
		r.spare = append(r.spare, l)
	}
}

// first returns the item that is served next. It panics if the queue is empty.
func (r *fairQueue[T]) first() T { return r.turns.first().items.first() }

// pop removes the item that is served next and returns it. It panics if the queue is
// empty.
func (r *fairQueue[T]) pop() T {
	l := r.turns.pop()
	item := l.items.pop()
	if l.items.len() > 0 {
		r.turns.push(l)
	} else {
		r.recycle(l)
	}
	r.len--
	return item
}

// remove removes an item of a stream, and reports whether the queue had it. Its cost
// grows with the items of the stream.
func (r *fairQueue[T]) remove(s events.Stream, item T) bool {
	l := r.queues[s]
	if l == nil || !l.items.remove(item) {
		return false
	}
	if l.items.len() == 0 {
		r.turns.remove(l)
		r.recycle(l)
	}
	r.len--
	return true
}

// A fifo is a first-in, first-out queue. The zero fifo is empty.
type fifo[T comparable] struct {
	items []T
	gone  int // items at the front that were popped
}

// len returns the number of items.
func (f *fifo[T]) len() int { return len(f.items) - f.gone }

// first returns the oldest item. It panics if the fifo is empty.
func (f *fifo[T]) first() T { return f.items[f.gone] }

// push adds an item. If the slice is full, it first moves the items to the front,
// over the popped ones, so that the slice grows only with the number of items.
func (f *fifo[T]) push(item T) {
	if f.gone > 0 && len(f.items) == cap(f.items) {
		n := copy(f.items, f.items[f.gone:])
		clear(f.items[n:])
		f.items, f.gone = f.items[:n], 0
	}
	f.items = append(f.items, item)
}

// pop removes the oldest item and returns it. It clears the place, so that the fifo
// does not keep the item alive. It panics if the fifo is empty.
func (f *fifo[T]) pop() (item T) {
	var none T
	item, f.items[f.gone] = f.items[f.gone], none
	if f.gone++; f.gone == len(f.items) {
		f.items, f.gone = f.items[:0], 0
	}
	return item
}

// remove removes an item and reports whether the fifo had it. Its cost grows with the
// number of items.
func (f *fifo[T]) remove(item T) bool {
	at := slices.Index(f.items[f.gone:], item)
	if at < 0 {
		return false
	}
	f.items = slices.Delete(f.items, f.gone+at, f.gone+at+1)
	if f.gone == len(f.items) {
		f.items, f.gone = f.items[:0], 0
	}
	return true
}
