package layout

import "github.com/settlement-ledger/ledger/events"

// An Interner converts the names of streams and kinds to strings, and reuses the string
// of a name that it converted recently. A nil interner allocates each string.
type Interner struct {
	streams [256]string
	kinds   [64]string
}

func (n *Interner) stream(name []byte) events.Stream {
	if n == nil {
		return events.Stream(name)
	}
	return events.Stream(intern(&n.streams[hash(name)%256], name))
}

func (n *Interner) kind(name []byte) string {
	if n == nil {
		return string(name)
	}
	return intern(&n.kinds[hash(name)%64], name)
}

// intern returns the string in a slot if it equals name, and otherwise replaces it.
func intern(slot *string, name []byte) string {
	if *slot != string(name) {
		*slot = string(name)
	}
	return *slot
}

// hash hashes the last bytes of a name, in which names differ.
func hash(name []byte) uint64 {
	h := uint64(len(name))
	for _, b := range name[max(0, len(name)-8):] {
		h = h*31 + uint64(b)
	}
	return h * 0x9e3779b97f4a7c15 >> 32
}
