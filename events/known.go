package events

import (
	"bytes"
	"hash/maphash"

	"github.com/settlement-ledger/ledger/domain"
)

// known holds what was read before and is likely to come again: names, and
// registrations that turns offer. Each has one place, where the last one that
// belongs there is. It belongs to one goroutine; a nil one holds nothing.
type known struct {
	texts   [512]string
	offered [128]knownOffered
}

type knownOffered struct {
	raw   string
	value domain.Offered
}

// longName is how long a text may be to be held.
const longName = 64

var knownSeed = maphash.MakeSeed()

// text returns a text as a string of its own, the one held if it is that.
func (k *known) text(b []byte) string {
	if k == nil || len(b) > longName {
		return string(b)
	}
	held := &k.texts[maphash.Bytes(knownSeed, b)%uint64(len(k.texts))]
	if *held != string(b) {
		*held = string(b)
	}
	return *held
}

// recall reads a registration that it holds, and reports whether it did. As a
// whole object was read from the same bytes before, it would be read so again.
func (f *form) recall(v *domain.Offered) (place *knownOffered, size int) {
	if f.known == nil {
		return nil, 0
	}
	end := bytes.IndexByte(f.rest(), '}') + 1
	if end == 0 {
		return nil, 0
	}
	raw := f.b[f.at : f.at+end]
	place = &f.known.offered[maphash.Bytes(knownSeed, raw)%uint64(len(f.known.offered))]
	if place.raw == string(raw) {
		*v = place.value
		f.at += end
		return nil, end
	}
	return place, end
}

// offered is a registration that a turn offers.
func offered(f *form, v *domain.Offered) {
	if !f.reading {
		f.token("{")
		f.offeredKeys(v)
		f.token("}")
		return
	}
	from := f.at
	place, size := f.recall(v)
	if place == nil && size > 0 {
		return
	}
	f.token("{")
	if f.failed {
		return
	}
	f.offeredKeys(v)
	f.token("}")
	if place != nil && !f.failed && f.at == from+size {
		*place = knownOffered{string(f.b[from:f.at]), *v}
	}
}

func (f *form) offeredKeys(v *domain.Offered) {
	name(f, `"tool":`, &v.Name, always)
	id(f, `"registration":`, &v.Registration, always)
	id(f, `"layer":`, &v.Layer, always)
	f.fingerprint(`"fingerprint":`, &v.Fingerprint, always)
}
