package embedded

import (
	"cmp"
	"strings"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of one generation of a lengthCache, which has two.
const (
	maxCachedStreams   = 16 << 10
	maxCachedNameBytes = 2 << 20
)

// A streamLength is the length of a stream, including appends that are in flight. The
// committer changes it in place.
type streamLength struct{ length events.Revision }

// A lengthCache caches the lengths of the streams used last, so that an append does
// not read the index. It keeps two generations and drops the older one when the
// younger is full. A length that is in use by the group being built is therefore
// never dropped. Only the committer uses it. The zero lengthCache is empty.
type lengthCache struct {
	young, old map[events.Stream]*streamLength
	bytes      int // of the names in young
	maxStreams int // streams in young; 0: maxCachedStreams
}

// get returns the length of a stream, or nil if it is not cached.
func (h *lengthCache) get(s events.Stream) *streamLength {
	if found := h.young[s]; found != nil {
		return found
	}
	found := h.old[s]
	if found != nil {
		h.keep(s, found)
	}
	return found
}

// add caches the length of a stream that is not cached, and returns it.
func (h *lengthCache) add(s events.Stream, length events.Revision) *streamLength {
	added := &streamLength{length}
	h.keep(events.Stream(strings.Clone(string(s))), added)
	return added
}

// keep puts a length into the younger generation.
func (h *lengthCache) keep(s events.Stream, found *streamLength) {
	if h.young == nil || len(h.young) >= cmp.Or(h.maxStreams, maxCachedStreams) || h.bytes >= maxCachedNameBytes {
		h.young, h.old, h.bytes = map[events.Stream]*streamLength{}, h.young, 0
	}
	delete(h.old, s)
	h.young[s] = found
	h.bytes += len(s)
}
