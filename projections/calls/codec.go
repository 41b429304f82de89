package calls

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A checkpointCodec either appends values to bytes or reads them from bytes, field by
// field. A function with a codec as its argument thus defines both directions of a
// format, and they cannot differ. Numbers are varints, texts have a length prefix,
// and IDs are sixteen bytes. A codec that reads invalid input becomes broken: later
// reads return zero values, and the caller checks broken at the end.
type checkpointCodec struct {
	// b is the bytes appended so far, or the bytes still to be read.
	b []byte
	// reading reports that the codec reads; otherwise it appends. It never changes.
	reading bool
	// broken reports that the input was truncated or had an undefined number.
	broken bool
	// blocks is the compressed input that follows b, if the codec reads blocks.
	blocks []byte
	// room is the buffer of the decompressed block of which b is a part.
	room []byte
	// tables resolves the values that are encoded by number.
	tables *tables
}

// tables hold values that repeat in encoded calls, which refer to them by
// number.
type tables struct {
	// words has the names of tools, agents and locations.
	words     table[string]
	processes table[domain.ProcessID]
	offered   table[domain.Offered]
}

// pack encodes or decodes the tables.
func (t *tables) pack(p *checkpointCodec) {
	rows(p, &t.words, text[string])
	rows(p, &t.processes, id)
	rows(p, &t.offered, func(p *checkpointCodec, o *domain.Offered) {
		text(p, &o.Name)
		id(p, &o.Registration)
		id(p, &o.Layer)
		if !p.reading {
			p.b = append(p.b, o.Fingerprint[:]...)
			return
		}
		copy(o.Fingerprint[:], p.take(uint64(len(o.Fingerprint))))
	})
}

// errCorrupt reports a checkpoint that does not decode. The view then folds the whole
// log.
var errCorrupt = errors.New("the packed calls are corrupt")

// fail breaks the codec and discards its input, so that loops over the input end.
func (p *checkpointCodec) fail() { p.b, p.blocks, p.broken = nil, nil, true }

// take returns the next n bytes of the input, without copying them. If fewer bytes
// are left, it breaks the codec and returns nil.
func (p *checkpointCodec) take(n uint64) []byte {
	if n > uint64(len(p.b)) {
		p.fail()
		return nil
	}
	part := p.b[:n]
	p.b = p.b[n:]
	return part
}

// unsigned encodes or decodes a number that is not negative, as an unsigned varint.
// Invalid or missing bytes break a decoding codec and leave v unchanged.
func unsigned[T ~int | ~int64 | ~uint8 | ~uint32 | ~uint64](p *checkpointCodec, v *T) {
	if !p.reading {
		p.b = binary.AppendUvarint(p.b, uint64(*v))
		return
	}
	n, size := binary.Uvarint(p.b)
	if size <= 0 {
		p.fail()
		return
	}
	p.b = p.b[size:]
	*v = T(n)
}

// signed encodes or decodes a number that may be negative, as a zigzag varint.
func (p *checkpointCodec) signed(v *int64) {
	if !p.reading {
		p.b = binary.AppendVarint(p.b, *v)
		return
	}
	n, size := binary.Varint(p.b)
	if size <= 0 {
		p.fail()
		return
	}
	p.b = p.b[size:]
	*v = n
}

// count encodes n, the length of a list, or decodes and returns such a length. Each
// element takes at least one byte. A decoded length above the number of remaining
// bytes breaks the codec, so that corrupt input cannot cause a large allocation. A
// broken codec returns 0.
func (p *checkpointCodec) count(n int) int {
	unsigned(p, &n)
	if p.reading && (n < 0 || n > len(p.b) && n-len(p.b) > p.following()) {
		p.fail()
		return 0
	}
	return n
}

// text encodes or decodes a text or bytes, with a length prefix. Decoding copies the
// bytes. If there are no bytes, it leaves v unchanged.
func text[T ~string | ~[]byte](p *checkpointCodec, v *T) {
	n := len(*v)
	unsigned(p, &n)
	if !p.reading {
		p.b = append(p.b, *v...)
		return
	}
	if part := p.take(uint64(n)); len(part) > 0 {
		*v = T(append([]byte(nil), part...))
	}
}

// id encodes or decodes an ID as its sixteen bytes.
func id[K domain.IDKind](p *checkpointCodec, v *domain.ID[K]) {
	if !p.reading {
		b := v.Bytes()
		p.b = append(p.b, b[:]...)
		return
	}
	if part := p.take(16); part != nil {
		*v = domain.IDFromBytes[K]([16]byte(part))
	}
}

// time encodes or decodes a time of an event: UTC, in microseconds.
func (p *checkpointCodec) time(t *time.Time) {
	if !p.reading {
		p.b = binary.AppendVarint(p.b, t.UnixMicro())
		return
	}
	var micros int64
	p.signed(&micros)
	*t = time.UnixMicro(micros).UTC()
}

// position encodes or decodes a position as its two numbers.
func (p *checkpointCodec) position(v *events.Position) {
	commit, prepare := v.Parts()
	unsigned(p, &commit)
	unsigned(p, &prepare)
	if p.reading {
		*v = events.NewPosition(commit, prepare)
	}
}

// place encodes or decodes a Place without its event ID, which the caller encodes.
func (p *checkpointCodec) place(v *Place) {
	unsigned(p, &v.Revision)
	p.position(&v.Position)
	unsigned(p, &v.Ordinal)
}

// A table numbers its distinct values from 0, in the order in which they were added.
// It never removes a value.
type table[T comparable] struct {
	all []T
	at  map[T]uint32
}

// number returns the number of a value. It adds the value if the table does not have
// it, and so must not be called by concurrent readers of a State.
func (t *table[T]) number(v T) uint32 {
	n, ok := t.at[v]
	if !ok {
		if t.at == nil {
			t.at = map[T]uint32{}
		}
		n = uint32(len(t.all))
		t.all = append(t.all, v)
		t.at[v] = n
	}
	return n
}

// tableValue encodes or decodes v as its number in the table t. The function to
// converts v to the type of the table's values, and the function from converts such a
// value back. A decoded number outside the table breaks the codec.
func tableValue[V, T comparable](p *checkpointCodec, t *table[T], v *V, to func(V) T, from func(T) V) {
	var n uint32
	if !p.reading {
		n = t.number(to(*v))
	}
	unsigned(p, &n)
	if !p.reading {
		return
	}
	if int(n) >= len(t.all) {
		p.fail()
		return
	}
	*v = from(t.all[n])
}

// same is the conversion of a table whose values have the type of the field.
func same[T any](v T) T { return v }

// word encodes or decodes a text by its number in the table of words.
func word[T ~string](p *checkpointCodec, words *table[string], v *T) {
	tableValue(p, words, v, func(v T) string { return string(v) }, func(w string) T { return T(w) })
}

// rows encodes or decodes all values of a table, each by calling row. Decoding adds
// the values to the table in the same order, so that they keep their numbers.
func rows[T comparable](p *checkpointCodec, t *table[T], row func(*checkpointCodec, *T)) {
	for i := range p.count(len(t.all)) {
		if p.reading {
			var v T
			row(p, &v)
			t.number(v)
			continue
		}
		row(p, &t.all[i])
	}
}

// packIDs encodes or decodes a list of IDs. Decoding appends to an empty list.
func packIDs[K domain.IDKind](p *checkpointCodec, s *idList[domain.ID[K]]) {
	for i := range p.count(len(s.list)) {
		if p.reading {
			var one domain.ID[K]
			id(p, &one)
			s.add(one)
			continue
		}
		id(p, &s.list[i])
	}
}
