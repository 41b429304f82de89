package embedded

// A readBatch is what was read from the database at once, and the memory that it
// lies in.
type readBatch struct {
	records []batchRecord
	bytes   int           // in what was found
	keep    func(raw) int // how much of a record is kept
	reused  bool          // the memory is used again for what is read next
	slab    []byte
}

// found is a record, or its beginning, and where it stands.
type batchRecord struct {
	seq uint64
	raw raw
}

// The sizes of the pieces of memory that records lie in.
const (
	minSlab    = 4 << 10
	ownedSlab  = 32 << 10 // a record of more than a quarter of that has a piece of its own
	reusedSlab = 1 << 20  // a larger piece is not kept for what is read next
)

// newOwnedBatch returns a readBatch whose bytes are given away.
func newOwnedBatch() *readBatch { return &readBatch{keep: raw.all} }

// newReusedBatch returns a readBatch whose bytes are overwritten by those read next.
func newReusedBatch(keep func(raw) int) *readBatch { return &readBatch{keep: keep, reused: true} }

// clear makes room for what is read next.
func (h *readBatch) clear() {
	clear(h.records) // or the last readBatch is held for as long as the loop waits
	h.records, h.bytes = h.records[:0], 0
	if h.reused {
		h.slab = h.slab[:0]
		if cap(h.slab) > reusedSlab {
			h.slab = nil
		}
	}
}

// add copies a record, or as much of it as is kept.
func (h *readBatch) add(seq uint64, r raw) {
	r = r[:h.keep(r)]
	kept := h.alloc(len(r))
	copy(kept, r)
	h.records = append(h.records, batchRecord{seq: seq, raw: kept})
	h.bytes += len(r)
}

// room returns memory that nothing else lies in.
func (h *readBatch) alloc(size int) []byte {
	if cap(h.slab)-len(h.slab) < size {
		if !h.reused && size > ownedSlab/4 {
			return make([]byte, size)
		}
		grown := max(minSlab, 2*cap(h.slab), size)
		if h.reused {
			grown = max(min(grown, reusedSlab), size)
		} else {
			grown = min(grown, ownedSlab)
		}
		h.slab = make([]byte, 0, grown)
	}
	at := len(h.slab)
	h.slab = h.slab[:at+size]
	return h.slab[at : at+size : at+size]
}
