package events

import (
	"bytes"
	"hash/maphash"

	"github.com/settlement-ledger/ledger/domain"
)

// An internTable interns strings that repeat, such as names, and caches decoded
// registrations that turns offer. Entries with the same hash share one slot, which holds
// the latest of them. An internTable belongs to one goroutine; a nil table interns
// nothing.
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

// intern returns b as a string. If the table has an equal string, intern
// returns that one and allocates nothing; otherwise it stores the new string in
// the table. It does not store a string longer than maxInternedLength.
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

// lookupOffered looks up the next JSON object of the document in the table, by its
// bytes: identical bytes decode to the same registration. It has three results:
//
//   - The table has the object: lookupOffered sets *v, moves past the object, and
//     returns a nil slot and the length of the object.
//   - The table does not have it: slot is where the caller stores the decoded
//     registration, and size is the length of the object.
//   - There is no table or no object: slot is nil and size is 0.
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
