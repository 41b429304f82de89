package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// metadata is the JSON metadata of a record, with the keys that EventStoreDB's
// own tools expect.
type metadata struct {
	Correlation domain.SessionID `json:"$correlationId,omitzero"`
	Causation   domain.EventID   `json:"$causationId,omitzero"`
}

// Encode returns the record of a draft. It truncates the time to the
// microsecond. It returns an error for an event that encoding/json rejects.
func Encode(d Draft) (Record, error) { return (&encodeBuffer{}).encode(d) }

// An encodeBuffer holds the bytes of the records of one append. It may be
// reused once the store has returned from Append, because no store keeps a
// reference to its arguments. The zero encodeBuffer is empty.
type encodeBuffer struct {
	buf     []byte // bytes written so far; records point into it, so written bytes never change
	records []Record
}

// initialBuffer is the initial capacity in bytes: enough for a common event
// with its metadata.
const initialBuffer = 768

// encode does the work of Encode. The data and metadata of the returned record
// are slices of the buffer, so they are valid until the buffer is reused.
func (b *encodeBuffer) encode(d Draft) (Record, error) {
	if d.Event == nil {
		return Record{}, fmt.Errorf("encode %s: there is no event", d.ID)
	}
	version := kinds[d.Event.Kind()].version
	data, err := []byte(nil), error(nil)
	if u, ok := d.Event.(Unknown); ok {
		version, data = u.Version, u.Data
		if !json.Valid(data) {
			return Record{}, fmt.Errorf("encode %s: its data are not JSON", u.Name)
		}
	} else if data, err = b.marshal(d.Event); err != nil {
		return Record{}, fmt.Errorf("encode %s: %w", d.Event.Kind(), err)
	}
	return Record{
		ID: d.ID, Kind: d.Event.Kind(), Version: version, Time: d.Time.UTC().Truncate(time.Microsecond),
		Data: data, Metadata: b.metadata(metadata{d.Correlation, d.Causation}),
	}, nil
}

// marshal encodes an event with the codec, or with encoding/json if the codec
// does not support it. It writes <, > and & without escapes, because people
// read records too.
func (b *encodeBuffer) marshal(e Event) ([]byte, error) {
	if b.buf == nil {
		b.buf = make([]byte, 0, initialBuffer)
	}
	c := jsonCodec{buf: b.buf}
	if !c.write(e) {
		return marshalJSON(packedForm(e))
	}
	return b.appended(c.buf), nil
}

// metadata encodes the metadata of a record.
func (b *encodeBuffer) metadata(m metadata) []byte {
	c := jsonCodec{buf: b.buf}
	metadataElement(&c, &m)
	return b.appended(c.buf)
}

// appended stores the grown buffer and returns the bytes added to it.
func (b *encodeBuffer) appended(buf []byte) []byte {
	from := len(b.buf)
	b.buf = buf
	return buf[from:len(buf):len(buf)]
}

// maxPooledBuffer bounds the capacity in bytes of a buffer that returns to the
// pool.
const maxPooledBuffer = 64 << 10

// encodeBuffers is the pool of unused buffers.
var encodeBuffers = sync.Pool{New: func() any { return new(encodeBuffer) }}

// release returns the buffer to the pool. The caller must not use its records
// any more.
func (b *encodeBuffer) release() {
	if cap(b.buf) > maxPooledBuffer {
		return
	}
	clear(b.records)
	b.buf, b.records = b.buf[:0], b.records[:0]
	encodeBuffers.Put(b)
}

// marshalJSON encodes v with encoding/json, without HTML escapes and without
// the final line end.
func marshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
