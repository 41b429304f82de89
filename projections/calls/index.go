package calls

import "iter"

// An index finds calls by the hashes of their keys. Its memory is ten bytes or
// so for each, in two lists without a pointer.
type index struct {
	sums  []uint32 // by number
	slots []uint32 // numbers from 1, each at its hash or behind, up to the first that is free
}

// fewestSlots are those of an index that holds anything. Their number is a
// power of two.
const fewestSlots = 64

// add gives the next number to a hash.
func (x *index) add(sum uint32) {
	x.sums = append(x.sums, sum)
	if 3*len(x.slots) < 4*len(x.sums) {
		x.grow()
		return
	}
	x.enter(len(x.sums) - 1)
}

// enter puts a number into a slot.
func (x *index) enter(number int) {
	mask := uint32(len(x.slots) - 1)
	at := x.sums[number] & mask
	for x.slots[at] != 0 {
		at = (at + 1) & mask
	}
	x.slots[at] = uint32(number + 1)
}

// grow doubles the slots.
func (x *index) grow() {
	x.slots = make([]uint32, max(2*len(x.slots), fewestSlots))
	for number := range x.sums {
		x.enter(number)
	}
}

// all yields the numbers of a hash, in order.
func (x *index) all(sum uint32) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(x.slots) == 0 {
			return
		}
		mask := uint32(len(x.slots) - 1)
		for at := sum & mask; x.slots[at] != 0; at = (at + 1) & mask {
			number := int(x.slots[at] - 1)
			if x.sums[number] == sum && !yield(number) {
				return
			}
		}
	}
}
