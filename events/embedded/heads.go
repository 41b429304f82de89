package embedded

import (
	"cmp"
	"strings"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of the heads that are remembered, twice over.
const (
	maxHeads     = 16 << 10 // streams
	maxHeadBytes = 2 << 20  // bytes of their names
)

// A head is how long a stream is, with what is becoming durable.
type head struct{ length events.Revision }

// heads remembers the heads of the streams used last: between one and two
// times the bounds of them. What a group has touched is remembered until the
// group is formed.
type heads struct {
	young, old map[events.Stream]*head
	bytes      int // of the names in young
	most       int // streams in young; 0: maxHeads
}

// get returns the head of a stream, and nil if it is not remembered.
func (h *heads) get(s events.Stream) *head {
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
func (h *heads) add(s events.Stream, length events.Revision) *head {
	added := &head{length}
	h.keep(events.Stream(strings.Clone(string(s))), added)
	return added
}

func (h *heads) keep(s events.Stream, found *head) {
	if h.young == nil || len(h.young) >= cmp.Or(h.most, maxHeads) || h.bytes >= maxHeadBytes {
		h.young, h.old, h.bytes = map[events.Stream]*head{}, h.young, 0
	}
	delete(h.old, s)
	h.young[s] = found
	h.bytes += len(s)
}
