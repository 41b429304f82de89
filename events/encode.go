package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// metadata is the JSON beside an event, with the keys that EventStoreDB's own
// tools expect.
type metadata struct {
	Correlation domain.SessionID `json:"$correlationId,omitzero"`
	Causation   domain.EventID   `json:"$causationId,omitzero"`
}

// Encode returns the record of an event. The time is kept to the microsecond.
func Encode(d Draft) (Record, error) { return (&encodeBuffer{}).encode(d) }

// A scratch is memory for records that are kept by nobody: it may be used
// again once they are of no use. The zero scratch is empty.
type encodeBuffer struct {
	buf     []byte // what was written so far; it is shared with the records, and never written twice
	records []Record
}

// initialBuffer is for an event of the usual size with its metadata.
const initialBuffer = 768

// encode is Encode with the bytes of the record in the scratch.
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

// marshal leaves <, > and & as they are: records are read by people, too.
func (b *encodeBuffer) marshal(e Event) ([]byte, error) {
	if b.buf == nil {
		b.buf = make([]byte, 0, initialBuffer)
	}
	c := codec{buf: b.buf}
	if !c.write(e) {
		return marshalJSON(e)
	}
	return b.appended(c.buf), nil
}

func (b *encodeBuffer) metadata(m metadata) []byte {
	c := codec{buf: b.buf}
	m.fields(&c)
	return b.appended(c.buf)
}

// took keeps what was appended to the scratch, and returns that.
func (b *encodeBuffer) appended(buf []byte) []byte {
	from := len(b.buf)
	b.buf = buf
	return buf[from:len(buf):len(buf)]
}

// maxPooledBuffer bounds the bytes of a scratch that is kept for another append.
const maxPooledBuffer = 64 << 10

// encodeBuffers are those that no append uses.
var encodeBuffers = sync.Pool{New: func() any { return new(encodeBuffer) }}

// done gives a scratch back, whose records are used no more.
func (b *encodeBuffer) release() {
	if cap(b.buf) > maxPooledBuffer {
		return
	}
	clear(b.records)
	b.buf, b.records = b.buf[:0], b.records[:0]
	encodeBuffers.Put(b)
}

// marshalJSON is marshal by encoding/json.
func marshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
