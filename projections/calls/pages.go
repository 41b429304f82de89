package calls

import (
	"encoding/binary"

	"github.com/klauspost/compress/s2"
)

// pageSize is the number of bytes, before compression, above which a page gets no
// further call. A call larger than pageSize has a page of its own. Reading one call
// decompresses one page, so larger pages compress better but are slower to read.
const pageSize = 64 << 10

// A pages holds the encodings of calls by call number, each with its length before
// it. put appends an encoding to the last page. A full page is compressed and never
// changes. Calls that settle about the same time have the same session and tools, so
// a page of such calls compresses to about a third.
//
// A call that is packed again gets a new place. The bytes of its former encoding stay
// as garbage until the store is compacted.
type pages struct {
	// places has the place of each packed call by number, and an outdated or zero
	// place for other calls.
	places []pageOffset
	// full holds the compressed pages.
	full [][]byte
	// last is the page that is being filled, uncompressed.
	last []byte
	// garbage is the number of uncompressed bytes, without lengths, of encodings that
	// are no longer current.
	garbage int
	// room is the buffer for compression, reused by each page.
	room []byte
}

// A pageOffset locates an encoding. page is the index of its page in full; the index
// len(full) means the page last. from is the offset, in the uncompressed page, of the
// length before the encoding.
type pageOffset struct{ page, from uint32 }

// put appends packed, the encoding of the call with this number, and makes it the
// current one. It copies packed. If the last page has no room, put closes it and
// starts a new one.
func (h *pages) put(number int, packed []byte) {
	if len(h.last) > 0 && len(h.last)+len(packed)+binary.MaxVarintLen32 > pageSize {
		h.closePage()
	}
	h.places[number] = pageOffset{uint32(len(h.full)), uint32(len(h.last))}
	h.last = append(binary.AppendUvarint(h.last, uint64(len(packed))), packed...)
}

// closePage compresses the last page and starts an empty one.
func (h *pages) closePage() {
	if need := s2.MaxEncodedLen(len(h.last)); len(h.room) < need {
		h.room = make([]byte, need)
	}
	h.full = append(h.full, append([]byte(nil), s2.Encode(h.room, h.last)...))
	h.last = h.last[:0]
}

// needsCompaction reports whether at least half of the bytes in full pages are
// garbage. It ignores garbage below four pages. A compaction therefore costs at most
// about as much as the packing since the last one.
func (h *pages) needsCompaction() bool {
	return h.garbage > 4*pageSize && h.garbage > len(h.full)*pageSize/2
}

// A pageReader reads encodings and caches eight decompressed pages. It belongs to one
// goroutine. It must not be used while, or after, the pages are compacted.
type pageReader struct {
	pages *pages
	// held is a direct-mapped cache: page n has the entry n mod 8.
	held [8]cachedPage
}

// A cachedPage is a decompressed page. The zero cachedPage is empty.
type cachedPage struct {
	// number is the page number plus one.
	number int
	bytes  []byte
}

// packed returns the encoding of a packed call. The caller decodes the bytes at once
// and keeps no reference, because the reader overwrites them when it caches another
// page, and packing a call can overwrite them too.
func (r *pageReader) packed(number int) []byte {
	at := r.pages.places[number]
	page := r.page(int(at.page))[at.from:]
	n, size := binary.Uvarint(page)
	return page[size : size+int(n)]
}

// page returns the uncompressed bytes of the page with this index. It decompresses
// the page unless the page is cached or is the last one. It panics if a page cannot
// be decompressed: this process wrote all pages, so its memory is damaged.
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
