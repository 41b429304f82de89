package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
)

// A decoder decodes entries in sequence. From the 32nd on it interns names and
// registrations, which repeat. It belongs to one goroutine.
type decoder struct {
	codec    jsonCodec
	decoded  int
	interned *internTable
}

// internAfter is the number of entries after which a decoder allocates its
// intern table.
const internAfter = 32

// decode does the work of Decode. It interns names and registrations in the
// table of d.
func (d *decoder) decode(e Entry) (Envelope, error) {
	if d.decoded++; d.decoded == internAfter {
		d.interned = &internTable{}
	}
	v := Envelope{ID: e.ID, Stream: e.Stream, Revision: e.Revision, Position: e.Position, Time: e.Time}
	k, ok := kinds[e.Kind]
	unknown := !ok || e.Version > k.version || e.Version < 1
	meta, err := d.metadata(e.Metadata)
	if err == nil {
		v.Correlation, v.Causation = meta.Correlation, meta.Causation
	} else if !unknown { // other programs write any text into $correlationId
		return Envelope{}, damaged(e, err)
	}
	if unknown {
		v.Event = Unknown{e.Kind, e.Version, e.Data}
		return v, nil
	}
	if e.Version >= k.readable {
		d.codec = jsonCodec{buf: e.Data, reading: true, interned: d.interned}
		if v.Event = d.codec.read(e.Kind); v.Event != nil {
			return v, nil
		}
	}
	if v.Event, err = k.read(e.Version, e.Data); err != nil {
		return Envelope{}, damaged(e, err)
	}
	return v, nil
}

// lent decodes an entry whose bytes belong to the store. The envelope shares
// no memory with the entry.
func (d *decoder) lent(e Entry) (Envelope, error) {
	v, err := d.decode(e)
	if u, ok := v.Event.(Unknown); ok && err == nil {
		u.Data = bytes.Clone(u.Data)
		v.Event = u
	}
	return v, err
}

// metadata decodes the metadata of a record; empty metadata give the zero
// value.
func (d *decoder) metadata(data []byte) (m metadata, err error) {
	if len(data) == 0 {
		return m, nil
	}
	d.codec = jsonCodec{buf: data, reading: true}
	if metadataElement(&d.codec, &m); d.codec.complete() {
		return m, nil
	}
	m = metadata{}
	return m, json.Unmarshal(data, &m)
}

// decoded decodes a sequence of entries with one decoder. It ends with the
// first error.
func decoded(entries iter.Seq2[Entry, error], decode func(*decoder, Entry) (Envelope, error)) iter.Seq2[Envelope, error] {
	return func(yield func(Envelope, error) bool) {
		d := &decoder{}
		for e, err := range entries {
			if err != nil {
				yield(Envelope{}, err)
				return
			}
			v, err := decode(d, e)
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// Decode returns the envelope of an entry. An unknown kind, or a version later
// than the known one, decodes to an Unknown, which shares its data with the
// entry; its metadata are ignored if they do not decode. All other fields are
// copies. It returns an ErrDamaged with stream, revision and position if data
// or metadata of a known kind do not decode.
func Decode(e Entry) (Envelope, error) { return (&decoder{}).decode(e) }

// damaged returns an ErrDamaged that names the location of e and wraps err.
func damaged(e Entry, err error) error {
	return fmt.Errorf("decode %s at revision %d of %s, position %s: %w: %w", e.Kind, e.Revision, e.Stream, e.Position, ErrDamaged, err)
}
