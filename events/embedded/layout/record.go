package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The limits of the layout.
const (
	MaxStream = 1 << 10 // bytes of a stream's name
	MaxKind   = 1 << 10 // bytes of a kind
)

// recordFormat is the first byte of an encoded record.
const recordFormat = 1

// headerLen is the length of the part of an encoded record before its stream.
const headerLen = 1 + 2 + 2 + 2 + 8 + 8 + 16 + 4 + 4

// SumLen is the length in bytes of the sum of a record.
const SumLen = 4

// castagnoli is the table of the CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns an encoded record of a stream without its sum, and with capacity for
// the sum. The caller appends the sum when the sequence is known.
func Encode(s events.Stream, rev events.Revision, r events.Record) []byte {
	return AppendRecord(make([]byte, 0, EncodedLen(s, r)+SumLen), s, rev, r)
}

// EncodedLen returns the number of bytes that AppendRecord appends.
func EncodedLen(s events.Stream, r events.Record) int {
	return headerLen + len(s) + len(r.Kind) + len(r.Data) + len(r.Metadata)
}

// AppendRecord appends an encoded record, without its sum, to b. The caller has
// checked that the lengths fit the layout.
func AppendRecord(b []byte, s events.Stream, rev events.Revision, r events.Record) []byte {
	b = append(b, recordFormat)
	b = binary.BigEndian.AppendUint16(b, uint16(r.Version))
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.Kind)))
	b = binary.BigEndian.AppendUint64(b, uint64(rev))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Time.UnixMicro()))
	id := r.ID.Bytes()
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Data)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Metadata)))
	b = append(append(b, s...), r.Kind...)
	return append(append(b, r.Data...), r.Metadata...)
}

// Checksum returns the CRC-32C of the bytes of an encoded record, without the sequence.
// FinishSum adds the sequence. Because the checksum takes two steps, many goroutines can
// call Checksum before one of them assigns sequences.
func Checksum(value []byte) uint32 { return crc32.Checksum(value, castagnoli) }

// Sum returns the sum of an encoded record. It covers the sequence, so that a value under
// another key is damaged.
func Sum(value []byte, seq uint64) uint32 { return FinishSum(Checksum(value), seq) }

// FinishSum returns the sum of an encoded record. The argument value is the result of
// Checksum for the record.
func FinishSum(value uint32, seq uint64) uint32 {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], seq)
	return crc32.Update(value, castagnoli, key[:])
}

// A RawRecord is an encoded record without its sum. Its methods read the fields in
// place; ParseRecord has checked that the fields lie within the record. The caller of
// ParseRecord owns the bytes.
type RawRecord []byte

// ParseRecord returns a value as a RawRecord that shares its bytes. It checks only
// lengths; call Verify for the sum. A value whose lengths do not add up is an
// events.ErrDamaged.
func ParseRecord(value []byte, seq uint64) (RawRecord, error) {
	if len(value) < headerLen+SumLen {
		return nil, Damaged(seq, fmt.Sprintf("it is %d bytes long", len(value)))
	}
	r := RawRecord(value[:len(value)-SumLen])
	if len(r) != r.BodyOffset()+r.size() {
		return nil, Damaged(seq, "its lengths do not add up")
	}
	return r, nil
}

// Verify returns an events.ErrDamaged unless a value matches its sum under the
// sequence and has a known format. The value must have passed ParseRecord.
func Verify(value []byte, seq uint64) error {
	end := len(value) - SumLen
	if binary.BigEndian.Uint32(value[end:]) != Sum(value[:end], seq) {
		return Damaged(seq, "its bytes do not match their sum")
	}
	if value[0] != recordFormat {
		return Damaged(seq, fmt.Sprintf("it has format %d, not %d", value[0], recordFormat))
	}
	return nil
}

// streamLen returns the length in bytes of the stream's name.
func (r RawRecord) streamLen() int { return int(binary.BigEndian.Uint16(r[3:])) }

// kindLen returns the length in bytes of the kind.
func (r RawRecord) kindLen() int { return int(binary.BigEndian.Uint16(r[5:])) }

// Revision returns the revision of the record in its stream.
func (r RawRecord) Revision() events.Revision { return events.Revision(binary.BigEndian.Uint64(r[7:])) }

// Micros returns the time in microseconds of Unix time.
func (r RawRecord) Micros() int64 { return int64(binary.BigEndian.Uint64(r[15:])) }

// dataLen returns the length in bytes of the data.
func (r RawRecord) dataLen() int { return int(binary.BigEndian.Uint32(r[39:])) }

// size returns the length in bytes of data and metadata together.
func (r RawRecord) size() int { return r.dataLen() + int(binary.BigEndian.Uint32(r[43:])) }

// BodyOffset returns the offset of the data. The bytes before it are enough for
// Header.
func (r RawRecord) BodyOffset() int { return headerLen + r.streamLen() + r.kindLen() }

// Len returns the length in bytes of the record without its sum.
func (r RawRecord) Len() int { return len(r) }

// Stream returns the stream's name. It shares the bytes of r.
func (r RawRecord) Stream() []byte { return r[headerLen:][:r.streamLen()] }

// Kind returns the kind. It shares the bytes of r.
func (r RawRecord) Kind() []byte { return r[headerLen+r.streamLen():][:r.kindLen()] }

// Header returns the header of the entry with a sequence. It reads only the bytes before
// the data.
func (r RawRecord) Header(seq uint64, interned *Interner) events.Header {
	h := events.Header{
		Kind:     interned.kind(r.Kind()),
		Version:  int(binary.BigEndian.Uint16(r[1:])),
		Time:     time.UnixMicro(r.Micros()).UTC(),
		Stream:   interned.stream(r.Stream()),
		Revision: r.Revision(),
		Position: events.NewPosition(seq, seq),
		Size:     r.size(),
	}
	fromBytes(&h.ID, r[23:39])
	return h
}

// Entry returns the entry with a sequence. Its data and metadata share the bytes of r.
func (r RawRecord) Entry(seq uint64, interned *Interner) events.Entry {
	e := events.Entry{
		Record: events.Record{
			Kind:    interned.kind(r.Kind()),
			Version: int(binary.BigEndian.Uint16(r[1:])),
			Time:    time.UnixMicro(r.Micros()).UTC(),
		},
		Stream:   interned.stream(r.Stream()),
		Revision: r.Revision(),
		Position: events.NewPosition(seq, seq),
	}
	fromBytes(&e.ID, r[23:39])
	e.Data, e.Metadata = r.payload()
	return e
}

// payload returns the data and the metadata, each nil if it is empty. Both share the
// bytes of r. They have no spare capacity, so an append to one does not change the
// other.
func (r RawRecord) payload() (data, metadata []byte) {
	begin := r.BodyOffset()
	end := begin + r.dataLen()
	if begin < end {
		data = r[begin:end:end]
	}
	if end < len(r) {
		metadata = r[end:len(r):len(r)]
	}
	return data, metadata
}

// Decode decodes a value with its sum. The entry owns its bytes. It returns an
// events.ErrDamaged for a value that AppendRecord and Sum did not produce for seq.
func Decode(value []byte, seq uint64) (events.Entry, error) {
	r, err := ParseRecord(value, seq)
	if err == nil {
		err = Verify(value, seq)
	}
	if err != nil {
		return events.Entry{}, err
	}
	return RawRecord(bytes.Clone(r)).Entry(seq, nil), nil
}

// Damaged returns an events.ErrDamaged about the record with a sequence. why is a
// clause about the record, such as "it is missing".
func Damaged(seq uint64, why string) error {
	return fmt.Errorf("read the record at position %d: %w: %s", seq, events.ErrDamaged, why)
}

// fromBytes sets an ID from its bytes.
func fromBytes[K domain.IDKind](id *domain.ID[K], b []byte) {
	*id = domain.IDFromBytes[K]([16]byte(b))
}
