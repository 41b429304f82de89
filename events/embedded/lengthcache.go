package embedded

import (
	"cmp"
	"strings"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of the lengthCache that are remembered, twice over.
const (
	maxCachedStreams   = 16 << 10 // streams
	maxCachedNameBytes = 2 << 20  // bytes of their names
)

// A head is how long a stream is, with what is becoming durable.
type streamLength struct{ length events.Revision }

// lengthCache remembers the lengthCache of the streams used last: between one and two
// times the bounds of them. What a group has touched is remembered until the
// group is formed.
type lengthCache struct {
	young, old map[events.Stream]*streamLength
	bytes      int // of the names in young
	maxStreams int // streams in young; 0: maxCachedStreams
}

// get returns the head of a stream, and nil if it is not remembered.
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

// add remembers the head of a stream that is not remembered.
func (h *lengthCache) add(s events.Stream, length events.Revision) *streamLength {
	added := &streamLength{length}
	h.keep(events.Stream(strings.Clone(string(s))), added)
	return added
}

func (h *lengthCache) keep(s events.Stream, found *streamLength) {
	if h.young == nil || len(h.young) >= cmp.Or(h.maxStreams, maxCachedStreams) || h.bytes >= maxCachedNameBytes {
		h.young, h.old, h.bytes = map[events.Stream]*streamLength{}, h.young, 0
	}
	delete(h.old, s)
	h.young[s] = found
	h.bytes += len(s)
}
