package calls

import (
	"encoding/binary"

	"github.com/klauspost/compress/s2"
)

// pageSize is how many bytes of packed calls are compressed together, as a
// rule. To read one call costs to uncompress so much.
const pageSize = 64 << 10

// pages hold packed calls by number, each with its length before it. Those
// that are full are compressed: neighbouring calls are much alike.
type pages struct {
	places  []pageOffset
	full    [][]byte // compressed
	last    []byte   // as it is
	garbage int      // bytes of calls that no place names any more, uncompressed
	room    []byte   // to compress into
}

// A pageOffset is that of a packed call: its page, and where it is in there.
type pageOffset struct{ page, from uint32 }

// put adds the bytes of a call, and holds its place.
func (h *pages) put(number int, packed []byte) {
	if len(h.last) > 0 && len(h.last)+len(packed)+binary.MaxVarintLen32 > pageSize {
		h.closePage()
	}
	h.places[number] = pageOffset{uint32(len(h.full)), uint32(len(h.last))}
	h.last = append(binary.AppendUvarint(h.last, uint64(len(packed))), packed...)
}

// closePage begins another page.
func (h *pages) closePage() {
	if need := s2.MaxEncodedLen(len(h.last)); len(h.room) < need {
		h.room = make([]byte, need)
	}
	h.full = append(h.full, append([]byte(nil), s2.Encode(h.room, h.last)...))
	h.last = h.last[:0]
}

// needsCompaction reports that half of what is held is named by no place.
func (h *pages) needsCompaction() bool {
	return h.garbage > 4*pageSize && h.garbage > len(h.full)*pageSize/2
}

// A pageReader reads packed calls, and is quick where they are near each other.
// It belongs to one goroutine, and is of use until a call is packed.
type pageReader struct {
	pages *pages
	held  [8]cachedPage // each page has one place, where the last that belongs there is
}

// A cachedPage is a page that was uncompressed.
type cachedPage struct {
	number int // from 1
	bytes  []byte
}

// packed returns the bytes of a call. They are good until calls of eight other
// pages were read.
func (r *pageReader) packed(number int) []byte {
	at := r.pages.places[number]
	page := r.page(int(at.page))[at.from:]
	n, size := binary.Uvarint(page)
	return page[size : size+int(n)]
}

// page returns a page, uncompressed.
func (r *pageReader) page(number int) []byte {
	if number == len(r.pages.full) {
		return r.pages.last
	}
	held := &r.held[number%len(r.held)]
	if held.number != number+1 {
		b, err := s2.Decode(held.bytes[:cap(held.bytes)], r.pages.full[number])
		if err != nil {
			panic("calls: a page of this process is torn: " + err.Error())
		}
		*held = cachedPage{number + 1, b}
	}
	return held.bytes
}
