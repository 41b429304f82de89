package events

import (
	"bytes"
	"hash/maphash"

	"github.com/settlement-ledger/ledger/domain"
)

// An internTable interns strings that repeat, such as names, and caches
// decoded registrations that turns offer. Each hash has one slot, which holds
// its latest entry. It belongs to one goroutine; a nil table interns nothing.
type internTable struct {
	texts   [512]string
	offered [128]internedOffered
}

// An internedOffered is a registration with the JSON from which it was
// decoded.
type internedOffered struct {
	raw   string
	value domain.Offered
}

// maxInternedLength is the length limit of an interned string in bytes.
const maxInternedLength = 64

// internSeed is the seed of the hashes of all tables.
var internSeed = maphash.MakeSeed()

// intern returns b as a string, the interned one if there is one.
func (t *internTable) intern(b []byte) string {
	if t == nil || len(b) > maxInternedLength {
		return string(b)
	}
	slot := &t.texts[maphash.Bytes(internSeed, b)%uint64(len(t.texts))]
	if *slot != string(b) {
		*slot = string(b)
	}
	return *slot
}

// lookupOffered reads a registration from the table and moves past its JSON.
// On a miss it returns the slot to fill and the size of the JSON object.
// Identical bytes decode to the same value, so a hit needs no parsing.
func (c *jsonCodec) lookupOffered(v *domain.Offered) (slot *internedOffered, size int) {
	if c.interned == nil {
		return nil, 0
	}
	end := bytes.IndexByte(c.remaining(), '}') + 1
	if end == 0 {
		return nil, 0
	}
	raw := c.buf[c.pos : c.pos+end]
	slot = &c.interned.offered[maphash.Bytes(internSeed, raw)%uint64(len(c.interned.offered))]
	if slot.raw == string(raw) {
		*v = slot.value
		c.pos += end
		return nil, end
	}
	return slot, end
}

// offeredElement encodes or decodes a registration.
func offeredElement(c *jsonCodec, v *domain.Offered) {
	if !c.reading {
		c.literal("{")
		offeredFields(c, v)
		c.literal("}")
		return
	}
	from := c.pos
	slot, size := c.lookupOffered(v)
	if slot == nil && size > 0 {
		return
	}
	c.literal("{")
	if c.failed {
		return
	}
	offeredFields(c, v)
	c.literal("}")
	if slot != nil && !c.failed && c.pos == from+size {
		*slot = internedOffered{string(c.buf[from:c.pos]), *v}
	}
}
