package calls

import (
	"encoding/binary"

	"github.com/klauspost/compress/s2"
)

// pageSize is the number of bytes that a page holds before compression.
// Reading one call decompresses one page.
const pageSize = 64 << 10

// A pages holds encoded calls by number, each with its length before it, in
// compressed pages. Neighbouring calls are similar and compress well.
type pages struct {
	places  []pageOffset
	full    [][]byte // compressed
	last    []byte   // as it is
	garbage int      // bytes of calls that no place names any more, uncompressed
	room    []byte   // to compress into
}

// A pageOffset locates an encoded call: its page, and the offset there.
type pageOffset struct{ page, from uint32 }

// put appends the bytes of a call.
func (h *pages) put(number int, packed []byte) {
	if len(h.last) > 0 && len(h.last)+len(packed)+binary.MaxVarintLen32 > pageSize {
		h.closePage()
	}
	h.places[number] = pageOffset{uint32(len(h.full)), uint32(len(h.last))}
	h.last = append(binary.AppendUvarint(h.last, uint64(len(packed))), packed...)
}

// closePage compresses the last page and begins another.
func (h *pages) closePage() {
	if need := s2.MaxEncodedLen(len(h.last)); len(h.room) < need {
		h.room = make([]byte, need)
	}
	h.full = append(h.full, append([]byte(nil), s2.Encode(h.room, h.last)...))
	h.last = h.last[:0]
}

// needsCompaction reports whether half of the pages is garbage.
func (h *pages) needsCompaction() bool {
	return h.garbage > 4*pageSize && h.garbage > len(h.full)*pageSize/2
}

// A pageReader reads encoded calls and caches eight decompressed pages. It
// belongs to one goroutine, and is invalid after the pages change.
type pageReader struct {
	pages *pages
	held  [8]cachedPage // each page has one place, where the last that belongs there is
}

// A cachedPage is a decompressed page.
type cachedPage struct {
	number int // from 1
	bytes  []byte
}

// packed returns the bytes of a call. They are valid until calls of eight
// other pages are read.
func (r *pageReader) packed(number int) []byte {
	at := r.pages.places[number]
	page := r.page(int(at.page))[at.from:]
	n, size := binary.Uvarint(page)
	return page[size : size+int(n)]
}

// page returns a decompressed page.
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
