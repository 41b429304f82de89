package embedded

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// The limits of what the layout can hold.
const (
	maxStream = 1 << 10 // bytes of a stream's name
	maxKind   = 1 << 10 // bytes of a kind
)

// recordFormat is the first byte of a record.
const recordFormat = 1

// headerLen is how long the part of a record before its stream is.
const headerLen = 1 + 2 + 2 + 2 + 8 + 8 + 16 + 4 + 4

const sumLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entryKey returns the key of the record with a sequence.
func entryKey(seq uint64) []byte {
	key := make([]byte, entryKeyLen)
	putEntryKey(key, seq)
	return key
}

const entryKeyLen = 2 + 8

// putEntryKey fills a key of entryKeyLen.
func putEntryKey(key []byte, seq uint64) {
	copy(key, "e/")
	binary.BigEndian.PutUint64(key[2:], seq)
}

// entriesEnd is behind the key of every record.
func entriesEnd() []byte { return []byte("e0") }

// indexKey returns the key of a stream's entry with a revision.
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

// indexEnd is behind the key of every entry of a stream.
func indexEnd(s events.Stream) []byte {
	return append(append([]byte("s/"), s...), 1)
}

// checkpointKey returns the key of a checkpoint.
func checkpointKey(name string) []byte { return append([]byte("c/"), name...) }

// lastUint64 returns the number that a key or value ends with.
func lastUint64(b []byte) uint64 { return binary.BigEndian.Uint64(b[len(b)-8:]) }

// encode returns the value of a record in a stream, all but its sum, which
// needs the sequence as well.
func encode(s events.Stream, rev events.Revision, r events.Record) []byte {
	return appendRecord(make([]byte, 0, encodedLen(s, r)+sumLen), s, rev, r)
}

// encodedLen returns how many bytes appendRecord appends.
func encodedLen(s events.Stream, r events.Record) int {
	return headerLen + len(s) + len(r.Kind) + len(r.Data) + len(r.Metadata)
}

// appendRecord appends what encode returns.
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

// sum is over the sequence as well, so that a value under another key is
// damaged too.
func sum(value []byte, seq uint64) uint32 { return finishSum(crc32.Checksum(value, castagnoli), seq) }

// finishSum returns the sum of a value whose own checksum is known.
func finishSum(value uint32, seq uint64) uint32 {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], seq)
	return crc32.Update(value, castagnoli, key[:])
}

// decode is the inverse of encode with its sum. What it returns shares nothing
// with value. Anything that they did not write is ErrDamaged.
func decode(value []byte, seq uint64) (events.Entry, error) {
	end := len(value) - sumLen
	if end < headerLen {
		return events.Entry{}, damaged(seq, fmt.Sprintf("it is %d bytes long", len(value)))
	}
	if binary.BigEndian.Uint32(value[end:]) != sum(value[:end], seq) {
		return events.Entry{}, damaged(seq, "its bytes do not match their sum")
	}
	if value[0] != recordFormat {
		return events.Entry{}, damaged(seq, fmt.Sprintf("it has format %d, not %d", value[0], recordFormat))
	}
	return split(append([]byte(nil), value[:end]...), seq)
}

// split cuts a value that it owns into the fields of an entry.
func split(value []byte, seq uint64) (events.Entry, error) {
	number := binary.BigEndian
	rest := value[headerLen:]
	stream, kind := int(number.Uint16(value[3:])), int(number.Uint16(value[5:]))
	data, metadata := int(number.Uint32(value[39:])), int(number.Uint32(value[43:]))
	if len(rest) != stream+kind+data+metadata {
		return events.Entry{}, damaged(seq, "its lengths do not add up")
	}
	cut := func(n int) []byte {
		if n == 0 {
			return nil
		}
		part := rest[:n:n]
		rest = rest[n:]
		return part
	}
	e := events.Entry{
		Stream:   events.Stream(cut(stream)),
		Revision: events.Revision(number.Uint64(value[7:])),
		Position: events.NewPosition(seq, seq),
		Record: events.Record{
			Kind:    string(cut(kind)),
			Version: int(number.Uint16(value[1:])),
			Time:    time.UnixMicro(int64(number.Uint64(value[15:]))).UTC(),
			Data:    cut(data),
		},
	}
	e.Metadata = cut(metadata)
	fromBytes(&e.ID, value[23:39])
	return e, nil
}

func damaged(seq uint64, why string) error {
	return fmt.Errorf("read the record at position %d: %w: %s", seq, events.ErrDamaged, why)
}

// fromBytes is the inverse of ID.Bytes.
func fromBytes[K domain.Kind](id *domain.ID[K], b []byte) {
	*id = domain.IDFromBytes[K]([16]byte(b))
}
