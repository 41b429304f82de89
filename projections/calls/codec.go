package calls

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A codec either appends a value to bytes or reads it from bytes, field by
// field, so that one function defines both directions. Numbers are varints,
// texts have a length prefix, and IDs are sixteen bytes.
type codec struct {
	b       []byte // the bytes appended; when reading, the bytes left
	reading bool
	broken  bool    // the input is truncated, or has an unknown number
	blocks  []byte  // where it reads: what follows b, compressed
	room    []byte  // to read a block into; b is a part of it
	tables  *tables // of what is given by number
}

// tables hold values that repeat in encoded calls, which refer to them by
// number.
type tables struct {
	words     table[string]
	processes table[domain.ProcessID]
	offered   table[domain.Offered]
}

// pack encodes or decodes the tables.
func (t *tables) pack(p *codec) {
	rows(p, &t.words, text[string])
	rows(p, &t.processes, id)
	rows(p, &t.offered, func(p *codec, o *domain.Offered) {
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

// errCorrupt reports a checkpoint that does not decode.
var errCorrupt = errors.New("the packed calls are torn")

func (p *codec) fail() { p.b, p.blocks, p.broken = nil, nil, true }

// take returns the next n bytes, without a copy.
func (p *codec) take(n uint64) []byte {
	if n > uint64(len(p.b)) {
		p.fail()
		return nil
	}
	part := p.b[:n]
	p.b = p.b[n:]
	return part
}

func unsigned[T ~int | ~int64 | ~uint8 | ~uint32 | ~uint64](p *codec, v *T) {
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

func (p *codec) signed(v *int64) {
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

// count encodes or decodes the length of a list. It checks a decoded length
// against the remaining bytes, so that a corrupt one does not allocate.
func (p *codec) count(n int) int {
	unsigned(p, &n)
	if p.reading && (n < 0 || n > len(p.b) && n-len(p.b) > p.following()) {
		p.fail()
		return 0
	}
	return n
}

func text[T ~string | ~[]byte](p *codec, v *T) {
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

func id[K domain.IDKind](p *codec, v *domain.ID[K]) {
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
func (p *codec) time(t *time.Time) {
	if !p.reading {
		p.b = binary.AppendVarint(p.b, t.UnixMicro())
		return
	}
	var micros int64
	p.signed(&micros)
	*t = time.UnixMicro(micros).UTC()
}

func (p *codec) position(v *events.Position) {
	commit, prepare := v.Parts()
	unsigned(p, &commit)
	unsigned(p, &prepare)
	if p.reading {
		*v = events.NewPosition(commit, prepare)
	}
}

// place encodes or decodes a place without its event.
func (p *codec) place(v *Place) {
	unsigned(p, &v.Revision)
	p.position(&v.Position)
	unsigned(p, &v.Ordinal)
}

// A table holds each of a set of values once, by number.
type table[T comparable] struct {
	all []T
	at  map[T]uint32
}

// number returns the number of a value, and adds it if needed.
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

// tableValue encodes or decodes a value as its number in a table.
func tableValue[V, T comparable](p *codec, t *table[T], v *V, to func(V) T, from func(T) V) {
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

func same[T any](v T) T { return v }

// word encodes or decodes a text of the table of words.
func word[T ~string](p *codec, words *table[string], v *T) {
	tableValue(p, words, v, func(v T) string { return string(v) }, func(w string) T { return T(w) })
}

// rows encodes or decodes the values of a table.
func rows[T comparable](p *codec, t *table[T], row func(*codec, *T)) {
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

// packIDs encodes or decodes a list of IDs.
func packIDs[K domain.IDKind](p *codec, s *idList[domain.ID[K]]) {
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
