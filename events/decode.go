package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
)

// A decoder decodes entries one after the other, which costs less than each
// alone, as names and registrations come again. It belongs to one goroutine.
type decoder struct {
	codec    codec
	decoded  int
	interned *internTable
}

// internAfter is after how many entries a decoder begins to hold what comes again.
const internAfter = 32

// decode is [Decode].
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
	} else if !unknown { // that of others is theirs: $correlationId is any text to them
		return Envelope{}, damaged(e, err)
	}
	if unknown {
		v.Event = Unknown{e.Kind, e.Version, e.Data}
		return v, nil
	}
	if e.Version == k.version {
		d.codec = codec{buf: e.Data, reading: true, interned: d.interned}
		if v.Event = d.codec.read(e.Kind); v.Event != nil {
			return v, nil
		}
	}
	if v.Event, err = k.read(e.Version, e.Data); err != nil {
		return Envelope{}, damaged(e, err)
	}
	return v, nil
}

// lent is decode for an entry whose bytes belong to the store: nothing is
// shared with them.
func (d *decoder) lent(e Entry) (Envelope, error) {
	v, err := d.decode(e)
	if u, ok := v.Event.(Unknown); ok && err == nil {
		u.Data = bytes.Clone(u.Data)
		v.Event = u
	}
	return v, err
}

func (d *decoder) metadata(data []byte) (m metadata, err error) {
	if len(data) == 0 {
		return m, nil
	}
	d.codec = codec{buf: data, reading: true}
	if m.fields(&d.codec); d.codec.complete() {
		return m, nil
	}
	m = metadata{}
	return m, json.Unmarshal(data, &m)
}

// decoded decodes a sequence.
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

// Decode returns the envelope of an entry. A kind that is not known, or a
// version later than the one that is, gives an Unknown, which shares its data
// with the entry. Metadata of one that are not as the ledger writes them say
// nothing. Nothing else is shared. Data or metadata of any other kind that do
// not decode are an ErrDamaged that names stream, revision and position.
func Decode(e Entry) (Envelope, error) { return (&decoder{}).decode(e) }

func damaged(e Entry, err error) error {
	return fmt.Errorf("decode %s at revision %d of %s, position %s: %w: %w", e.Kind, e.Revision, e.Stream, e.Position, ErrDamaged, err)
}
