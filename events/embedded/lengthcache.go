package embedded

import (
	"cmp"
	"strings"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of one generation of a lengthCache, which has two generations.
const (
	maxCachedStreams   = 16 << 10 // streams
	maxCachedNameBytes = 2 << 20  // bytes of their names
)

// A streamLength is the length of a stream, including appends that are in flight. The
// committer changes it in place.
type streamLength struct{ length events.Revision }

// A lengthCache caches the lengths of the streams used last, so that an append does not
// read the index. It keeps two generations. When the younger generation is full, the
// older one is dropped, the younger one becomes the older one, and a new one begins. A
// use moves a stream to the younger generation. So a stream is dropped only after a
// whole generation of other streams was used.
//
// While the committer builds a group, the cache drops no length that the group refers
// to, because a group has fewer streams than a generation. Only the committer uses a
// lengthCache. The zero lengthCache is empty.
type lengthCache struct {
	young, old map[events.Stream]*streamLength // a stream is in at most one of them
	bytes      int                             // of the names in young
	maxStreams int                             // streams in young; 0: maxCachedStreams
}

// get returns the length of a stream, or nil if it is not cached. It moves the stream
// to the younger generation.
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

// add caches the length of a stream that get did not find, and returns it. It copies
// the name, which may refer to a larger text of the caller.
func (h *lengthCache) add(s events.Stream, length events.Revision) *streamLength {
	added := &streamLength{length}
	h.keep(events.Stream(strings.Clone(string(s))), added)
	return added
}

// keep puts a length into the younger generation. If that generation is full, keep
// first starts a new one.
func (h *lengthCache) keep(s events.Stream, found *streamLength) {
	if h.young == nil || len(h.young) >= cmp.Or(h.maxStreams, maxCachedStreams) || h.bytes >= maxCachedNameBytes {
		h.young, h.old, h.bytes = map[events.Stream]*streamLength{}, h.young, 0
	}
	delete(h.old, s)
	h.young[s] = found
	h.bytes += len(s)
}
