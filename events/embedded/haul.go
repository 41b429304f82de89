package embedded

// A haul is what was read from the database at once, and the memory that it
// lies in.
type haul struct {
	found []found
	bytes int           // in what was found
	part  func(raw) int // how much of a record is kept
	lent  bool          // the memory is used again for what is read next
	slab  []byte
}

// found is a record, or its beginning, and where it stands.
type found struct {
	seq uint64
	raw raw
}

// The sizes of the pieces of memory that records lie in.
const (
	leastSlab = 4 << 10
	ownedSlab = 32 << 10 // a record of more than a quarter of that has a piece of its own
	lentSlab  = 1 << 20  // a larger piece is not kept for what is read next
)

// newOwned returns a haul whose bytes are given away.
func newOwned() *haul { return &haul{part: raw.all} }

// newLent returns a haul whose bytes are overwritten by those read next.
func newLent(part func(raw) int) *haul { return &haul{part: part, lent: true} }

// clear makes room for what is read next.
func (h *haul) clear() {
	clear(h.found) // or the last haul is held for as long as the loop waits
	h.found, h.bytes = h.found[:0], 0
	if h.lent {
		h.slab = h.slab[:0]
		if cap(h.slab) > lentSlab {
			h.slab = nil
		}
	}
}

// add copies a record, or as much of it as is kept.
func (h *haul) add(seq uint64, r raw) {
	r = r[:h.part(r)]
	kept := h.room(len(r))
	copy(kept, r)
	h.found = append(h.found, found{seq: seq, raw: kept})
	h.bytes += len(r)
}

// room returns memory that nothing else lies in.
func (h *haul) room(size int) []byte {
	if cap(h.slab)-len(h.slab) < size {
		if !h.lent && size > ownedSlab/4 {
			return make([]byte, size)
		}
		grown := max(leastSlab, 2*cap(h.slab), size)
		if h.lent {
			grown = max(min(grown, lentSlab), size)
		} else {
			grown = min(grown, ownedSlab)
		}
		h.slab = make([]byte, 0, grown)
	}
	at := len(h.slab)
	h.slab = h.slab[:at+size]
	return h.slab[at : at+size : at+size]
}
