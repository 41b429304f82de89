package events

import (
	"bytes"
	"hash/maphash"

	"github.com/settlement-ledger/ledger/domain"
)

// known holds what was read before and is likely to come again: names, and
// registrations that turns offer. Each has one slot, where the last one that
// belongs there is. It belongs to one goroutine; a nil one holds nothing.
type internTable struct {
	texts   [512]string
	offered [128]internedOffered
}

type internedOffered struct {
	raw   string
	value domain.Offered
}

// maxInternedLength is how long a text may be to be slot.
const maxInternedLength = 64

var internSeed = maphash.MakeSeed()

// text returns a text as a string of its own, the one slot if it is that.
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

// lookupOffered reads a registration that it holds, and reports whether it did. As a
// whole object was read from the same bytes before, it would be read so again.
func (c *codec) lookupOffered(v *domain.Offered) (slot *internedOffered, size int) {
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

// offeredElement is a registration that a turn offers.
func offeredElement(c *codec, v *domain.Offered) {
	if !c.reading {
		c.literal("{")
		c.offeredKeys(v)
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
	c.offeredKeys(v)
	c.literal("}")
	if slot != nil && !c.failed && c.pos == from+size {
		*slot = internedOffered{string(c.buf[from:c.pos]), *v}
	}
}

func (c *codec) offeredKeys(v *domain.Offered) {
	nameField(c, `"tool":`, &v.Name, always)
	idField(c, `"registration":`, &v.Registration, always)
	idField(c, `"layer":`, &v.Layer, always)
	c.fingerprintField(`"fingerprint":`, &v.Fingerprint, always)
}
