package embedded

import (
	"slices"

	"github.com/settlement-ledger/ledger/events"
)

// A rota is a line in which streams take turns: each gives the first of what
// it has, and then stands behind all other streams. The zero rota is empty.
type rota[T comparable] struct {
	lanes map[events.Stream]*lane[T]
	turns fifo[*lane[T]] // lanes that are not empty; the first has its turn
	len   int
	spare []*lane[T] // lanes to use again
}

// A lane is what one stream has in a rota.
type lane[T comparable] struct {
	stream events.Stream
	items  fifo[T]
}

// maxSpare is how many lanes are kept to be used again.
const maxSpare = 1024

// push puts an item behind all that its stream has.
func (r *rota[T]) push(s events.Stream, item T) {
	l := r.lanes[s]
	if l == nil {
		l = r.open(s)
		r.turns.push(l)
	}
	l.items.push(item)
	r.len++
}

func (r *rota[T]) open(s events.Stream) *lane[T] {
	var l *lane[T]
	if last := len(r.spare) - 1; last >= 0 {
		l, r.spare = r.spare[last], r.spare[:last]
	} else {
		l = &lane[T]{}
	}
	if r.lanes == nil {
		r.lanes = map[events.Stream]*lane[T]{}
	}
	l.stream = s
	r.lanes[s] = l
	return l
}

func (r *rota[T]) shut(l *lane[T]) {
	delete(r.lanes, l.stream)
	l.stream = ""
	if len(r.spare) < maxSpare {
		r.spare = append(r.spare, l)
	}
}

// first returns the item whose turn it is. The rota is not empty.
func (r *rota[T]) first() T { return r.turns.first().items.first() }

// pop removes and returns the item whose turn it is. The rota is not empty.
func (r *rota[T]) pop() T {
	l := r.turns.pop()
	item := l.items.pop()
	if l.items.len() > 0 {
		r.turns.push(l)
	} else {
		r.shut(l)
	}
	r.len--
	return item
}

// remove takes an item out, and reports whether it was there.
func (r *rota[T]) remove(s events.Stream, item T) bool {
	l := r.lanes[s]
	if l == nil || !l.items.remove(item) {
		return false
	}
	if l.items.len() == 0 {
		r.turns.remove(l)
		r.shut(l)
	}
	r.len--
	return true
}

// A fifo gives what was pushed in the same order. The zero fifo is empty.
type fifo[T comparable] struct {
	items []T
	gone  int // of items, from the front
}

func (f *fifo[T]) len() int { return len(f.items) - f.gone }

func (f *fifo[T]) first() T { return f.items[f.gone] }

func (f *fifo[T]) push(item T) {
	if f.gone > 0 && len(f.items) == cap(f.items) {
		n := copy(f.items, f.items[f.gone:])
		clear(f.items[n:])
		f.items, f.gone = f.items[:n], 0
	}
	f.items = append(f.items, item)
}

func (f *fifo[T]) pop() (item T) {
	var none T
	item, f.items[f.gone] = f.items[f.gone], none
	if f.gone++; f.gone == len(f.items) {
		f.items, f.gone = f.items[:0], 0
	}
	return item
}

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
