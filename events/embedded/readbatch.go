package embedded

import "github.com/settlement-ledger/ledger/events/embedded/layout"

// A readBatch holds the records of one read of the database, and the buffer into
// which they were copied. The records outlive the iterator that read them. It belongs
// to one goroutine.
type readBatch struct {
	records []batchRecord
	bytes   int                        // size of records, in bytes
	keep    func(layout.RawRecord) int // returns how many bytes of a record are copied
	reused  bool                       // the next read overwrites the buffer
	slab    []byte                     // the buffer; its length is the used part
}

// A batchRecord is a record, or its beginning, with its sequence.
type batchRecord struct {
	seq uint64
	raw layout.RawRecord
}

// The sizes of buffers, in bytes.
const (
	minSlab    = 4 << 10  // of the first buffer of a loop, because many loops stop early
	ownedSlab  = 32 << 10 // a record of more than a quarter of that gets a buffer of its own
	reusedSlab = 1 << 20  // a larger buffer is not used again
)

// newOwnedBatch returns a batch of whole records. The batch never uses their bytes
// again, so they belong to the caller of the read.
func newOwnedBatch() *readBatch { return &readBatch{keep: layout.RawRecord.Len} }

// newReusedBatch returns a batch that holds only the beginning of each record. The
// function keep returns the number of bytes to hold of a record. The next read
// overwrites these bytes.
func newReusedBatch(keep func(layout.RawRecord) int) *readBatch {
	return &readBatch{keep: keep, reused: true}
}

// clear empties the batch for the next read.
func (h *readBatch) clear() {
	clear(h.records) // so that the records are not referenced while a loop body runs
	h.records, h.bytes = h.records[:0], 0
	if h.reused {
		h.slab = h.slab[:0]
		if cap(h.slab) > reusedSlab {
			h.slab = nil
		}
	}
}

// add copies a record into the batch, up to the length that h.keep returns for it.
func (h *readBatch) add(seq uint64, r layout.RawRecord) {
	r = r[:h.keep(r)]
	kept := h.alloc(len(r))
	copy(kept, r)
	h.records = append(h.records, batchRecord{seq: seq, raw: kept})
	h.bytes += len(r)
}

// alloc returns size unused bytes of the buffer. If the buffer has fewer, alloc makes a
// new buffer, with up to twice the capacity of the present one. It never grows a buffer
// in place, because earlier records refer to it. A large record of an owned batch gets a
// buffer of its own. The returned slice has no spare capacity, so an append to it
// copies.
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
