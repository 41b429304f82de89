package calls

import "iter"

// A hashIndex maps the hashes of keys to call numbers. It is a hash table with open
// addressing and linear probing: a hash is stored in the slot that its low bits
// select, or in the next free slot after it. A search walks from the selected slot to
// the first free one. At most three quarters of the slots are taken, and no call is
// ever removed, so a search always ends.
//
// A slot takes eight bytes and has no pointer, so the garbage collector never scans
// the index. A Go map from Key to number would take several times the memory.
type hashIndex struct {
	// The number of slots is zero or a power of two.
	slots []slot
	// calls is the number of calls in the index. It is also the call number that add
	// gives to the next hash.
	calls int
}

// A slot holds a hash and the number of its call. The zero slot is free.
type slot struct {
	sum uint32
	// number is the call number plus one.
	number uint32
}

// fewestSlots is the size of the smallest index that is not empty.
const fewestSlots = 64

// add stores sum, the hash of a key, with the next call number. Amortized over all
// calls it takes constant time.
func (x *hashIndex) add(sum uint32) {
	if x.calls++; 4*x.calls > 3*len(x.slots) {
		x.grow()
	}
	x.enter(slot{sum, uint32(x.calls)})
}

// enter stores an entry in the slot that its hash selects, or in the next free slot
// after it. The caller ensures that a slot is free.
func (x *hashIndex) enter(call slot) {
	mask := uint32(len(x.slots) - 1)
	at := call.sum & mask
	for x.slots[at].number != 0 {
		at = (at + 1) & mask
	}
	x.slots[at] = call
}

// grow doubles the number of slots and moves all entries.
func (x *hashIndex) grow() {
	old := x.slots
	x.slots = make([]slot, max(2*len(old), fewestSlots))
	for _, call := range old {
		if call.number != 0 {
			x.enter(call)
		}
	}
}

// all yields the numbers of the calls whose keys have the hash sum. Different keys
// can have the same hash, so the caller compares the keys.
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
