package calls

import "iter"

// A hashIndex finds calls by the hashes of their keys, by open addressing. It
// has no pointers for the garbage collector.
type hashIndex struct {
	slots []slot // each call at its hash or behind, up to the first that is free
	calls int
}

// A slot holds a hash and the number of its call. It is free if the number is
// zero.
type slot struct {
	sum    uint32
	number uint32 // from 1
}

// fewestSlots is the size of the smallest index. Sizes are powers of two.
const fewestSlots = 64

// add assigns the next number to a hash.
func (x *hashIndex) add(sum uint32) {
	if x.calls++; 4*x.calls > 3*len(x.slots) {
		x.grow()
	}
	x.enter(slot{sum, uint32(x.calls)})
}

// enter puts a call into the first free slot.
func (x *hashIndex) enter(call slot) {
	mask := uint32(len(x.slots) - 1)
	at := call.sum & mask
	for x.slots[at].number != 0 {
		at = (at + 1) & mask
	}
	x.slots[at] = call
}

// grow doubles the slots.
func (x *hashIndex) grow() {
	old := x.slots
	x.slots = make([]slot, max(2*len(old), fewestSlots))
	for _, call := range old {
		if call.number != 0 {
			x.enter(call)
		}
	}
}

// all yields the numbers of a hash.
func (x *hashIndex) all(sum uint32) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(x.slots) == 0 {
			return
		}
		mask := uint32(len(x.slots) - 1)
		for at := sum & mask; x.slots[at].number != 0; at = (at + 1) & mask {
			if x.slots[at].sum == sum && !yield(int(x.slots[at].number-1)) {
				return
			}
		}
	}
}
