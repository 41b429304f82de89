package layout

import "github.com/settlement-ledger/ledger/events"

// An Interner converts the names of streams and kinds to strings. It reuses the string
// of a name that it converted recently, so a scan allocates few strings. Names with the
// same hash share one slot, which holds the latest of them. A nil Interner allocates
// each string. An Interner belongs to one goroutine.
type Interner struct {
	streams [256]string
	kinds   [64]string
}

// stream returns a stream name as a string that does not share the bytes of name.
func (n *Interner) stream(name []byte) events.Stream {
	if n == nil {
		return events.Stream(name)
	}
	return events.Stream(intern(&n.streams[hash(name)%256], name))
}

// kind returns a kind as a string that does not share the bytes of name.
func (n *Interner) kind(name []byte) string {
	if n == nil {
		return string(name)
	}
	return intern(&n.kinds[hash(name)%64], name)
}

// intern returns the string in a slot if it is equal to name. Otherwise it replaces
// the string by a copy of name.
func intern(slot *string, name []byte) string {
	if *slot != string(name) {
		*slot = string(name)
	}
	return *slot
}

// hash returns a hash of the length and the last 8 bytes of a name. Names of streams
// differ in their last bytes.
func hash(name []byte) uint64 {
	h := uint64(len(name))
	for _, b := range name[max(0, len(name)-8):] {
		h = h*31 + uint64(b)
	}
	return h * 0x9e3779b97f4a7c15 >> 32
}
