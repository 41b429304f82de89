package embedded

import "github.com/settlement-ledger/ledger/events/embedded/layout"

// A readBatch holds the records of one read of the database, and the buffer into which
// they were copied. It is used by one goroutine.
type readBatch struct {
	records []batchRecord
	bytes   int                        // in records
	keep    func(layout.RawRecord) int // returns how many bytes of a record are copied
	reused  bool                       // the next read overwrites the buffer
	slab    []byte
}

// A batchRecord is a record, or its beginning, with its sequence.
type batchRecord struct {
	seq uint64
	raw layout.RawRecord
}

// The sizes of buffers.
const (
	minSlab    = 4 << 10
	ownedSlab  = 32 << 10 // a record of more than a quarter of that gets a buffer of its own
	reusedSlab = 1 << 20  // a larger buffer is not used again
)

// newOwnedBatch returns a batch whose bytes belong to the receiver of the records.
func newOwnedBatch() *readBatch { return &readBatch{keep: layout.RawRecord.Len} }

// newReusedBatch returns a batch that copies the beginning of each record, as much as
// keep returns, and whose bytes the next read overwrites.
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

// add copies a record, or its beginning, into the batch.
func (h *readBatch) add(seq uint64, r layout.RawRecord) {
	r = r[:h.keep(r)]
	kept := h.alloc(len(r))
	copy(kept, r)
	h.records = append(h.records, batchRecord{seq: seq, raw: kept})
	h.bytes += len(r)
}

// alloc returns unused bytes of the buffer, and a new buffer if it is full.
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
