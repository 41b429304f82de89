package embedded

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
	maxStream = 1 << 10 // bytes of a stream's name
	maxKind   = 1 << 10 // bytes of a kind
)

// recordFormat is the first byte of an encoded record.
const recordFormat = 1

// headerLen is the length of the part of an encoded record before its stream.
const headerLen = 1 + 2 + 2 + 2 + 8 + 8 + 16 + 4 + 4

const sumLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entryKey returns the key of the record with a sequence.
func entryKey(seq uint64) []byte {
	key := make([]byte, entryKeyLen)
	putEntryKey(key, seq)
	return key
}

// entryKeyLen is the length of the key of a record.
const entryKeyLen = 2 + 8

// putEntryKey fills a key of entryKeyLen.
func putEntryKey(key []byte, seq uint64) {
	copy(key, "e/")
	binary.BigEndian.PutUint64(key[2:], seq)
}

// entriesEnd returns a bound greater than the key of every record.
func entriesEnd() []byte { return []byte("e0") }

// indexKey returns the key of the index entry of a revision of a stream.
func indexKey(s events.Stream, r events.Revision) []byte {
	key := make([]byte, indexKeyLen(s))
	putIndexKey(key, s, r)
	return key
}

func indexKeyLen(s events.Stream) int { return 2 + len(s) + 1 + 8 }

// putIndexKey fills a key of indexKeyLen.
func putIndexKey(key []byte, s events.Stream, r events.Revision) {
	copy(key, "s/")
	n := 2 + copy(key[2:], s)
	key[n] = 0
	binary.BigEndian.PutUint64(key[n+1:], uint64(r))
}

// indexEnd returns a bound greater than every index key of a stream.
func indexEnd(s events.Stream) []byte {
	return append(append([]byte("s/"), s...), 1)
}

// checkpointKey returns the key of a checkpoint.
func checkpointKey(name string) []byte { return append([]byte("c/"), name...) }

// lastUint64 returns the number in the last 8 bytes of a key or value.
func lastUint64(b []byte) uint64 { return binary.BigEndian.Uint64(b[len(b)-8:]) }

// encode encodes a record of a stream, without its sum, which also covers the sequence.
func encode(s events.Stream, rev events.Revision, r events.Record) []byte {
	return appendRecord(make([]byte, 0, encodedLen(s, r)+sumLen), s, rev, r)
}

// encodedLen returns the number of bytes that appendRecord appends.
func encodedLen(s events.Stream, r events.Record) int {
	return headerLen + len(s) + len(r.Kind) + len(r.Data) + len(r.Metadata)
}

// appendRecord appends an encoded record, without its sum, to b.
func appendRecord(b []byte, s events.Stream, rev events.Revision, r events.Record) []byte {
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

// sum returns the sum of an encoded record. It covers the sequence, so that a value under
// another key is damaged.
func sum(value []byte, seq uint64) uint32 { return finishSum(crc32.Checksum(value, castagnoli), seq) }

// finishSum adds the sequence to the checksum of an encoded record.
func finishSum(value uint32, seq uint64) uint32 {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], seq)
	return crc32.Update(value, castagnoli, key[:])
}

// A raw is an encoded record without its sum, whose lengths are consistent.
type raw []byte

// rawOf returns a value without its sum. It checks only lengths.
func rawOf(value []byte, seq uint64) (raw, error) {
	if len(value) < headerLen+sumLen {
		return nil, damaged(seq, fmt.Sprintf("it is %d bytes long", len(value)))
	}
	r := raw(value[:len(value)-sumLen])
	if len(r) != r.bodyOffset()+r.size() {
		return nil, damaged(seq, "its lengths do not add up")
	}
	return r, nil
}

// whole returns an error unless a value matches its sum under the sequence and has a
// known format.
func whole(value []byte, seq uint64) error {
	end := len(value) - sumLen
	if binary.BigEndian.Uint32(value[end:]) != sum(value[:end], seq) {
		return damaged(seq, "its bytes do not match their sum")
	}
	if value[0] != recordFormat {
		return damaged(seq, fmt.Sprintf("it has format %d, not %d", value[0], recordFormat))
	}
	return nil
}

func (r raw) streamLen() int            { return int(binary.BigEndian.Uint16(r[3:])) }
func (r raw) kindLen() int              { return int(binary.BigEndian.Uint16(r[5:])) }
func (r raw) revision() events.Revision { return events.Revision(binary.BigEndian.Uint64(r[7:])) }
func (r raw) micros() int64             { return int64(binary.BigEndian.Uint64(r[15:])) }
func (r raw) dataLen() int              { return int(binary.BigEndian.Uint32(r[39:])) }
func (r raw) size() int                 { return r.dataLen() + int(binary.BigEndian.Uint32(r[43:])) }
func (r raw) bodyOffset() int           { return headerLen + r.streamLen() + r.kindLen() } // offset of the data
func (r raw) all() int                  { return len(r) }
func (r raw) stream() []byte            { return r[headerLen:][:r.streamLen()] }
func (r raw) kind() []byte              { return r[headerLen+r.streamLen():][:r.kindLen()] }

// header returns the header of the entry with a sequence. It reads only the bytes before
// the data.
func (r raw) header(seq uint64, interned *interner) events.Header {
	h := events.Header{
		Kind:     interned.kind(r.kind()),
		Version:  int(binary.BigEndian.Uint16(r[1:])),
		Time:     time.UnixMicro(r.micros()).UTC(),
		Stream:   interned.stream(r.stream()),
		Revision: r.revision(),
		Position: events.NewPosition(seq, seq),
		Size:     r.size(),
	}
	fromBytes(&h.ID, r[23:39])
	return h
}

// entry returns the entry with a sequence. Its data and metadata share the bytes of r.
func (r raw) entry(seq uint64, interned *interner) events.Entry {
	e := events.Entry{
		Record: events.Record{
			Kind:    interned.kind(r.kind()),
			Version: int(binary.BigEndian.Uint16(r[1:])),
			Time:    time.UnixMicro(r.micros()).UTC(),
		},
		Stream:   interned.stream(r.stream()),
		Revision: r.revision(),
		Position: events.NewPosition(seq, seq),
	}
	fromBytes(&e.ID, r[23:39])
	e.Data, e.Metadata = r.payload()
	return e
}

// payload returns the data and the metadata, or nil if empty. Appending to one does not
// change the other.
func (r raw) payload() (data, metadata []byte) {
	begin := r.bodyOffset()
	end := begin + r.dataLen()
	if begin < end {
		data = r[begin:end:end]
	}
	if end < len(r) {
		metadata = r[end:len(r):len(r)]
	}
	return data, metadata
}

// decode decodes a value with its sum. The entry shares no bytes with value. A value that
// encode and sum did not produce is ErrDamaged.
func decode(value []byte, seq uint64) (events.Entry, error) {
	r, err := rawOf(value, seq)
	if err == nil {
		err = whole(value, seq)
	}
	if err != nil {
		return events.Entry{}, err
	}
	return raw(bytes.Clone(r)).entry(seq, nil), nil
}

// damaged returns an ErrDamaged about the record with a sequence.
func damaged(seq uint64, why string) error {
	return fmt.Errorf("read the record at position %d: %w: %s", seq, events.ErrDamaged, why)
}

// fromBytes sets an ID from its bytes.
func fromBytes[K domain.IDKind](id *domain.ID[K], b []byte) {
	*id = domain.IDFromBytes[K]([16]byte(b))
}
