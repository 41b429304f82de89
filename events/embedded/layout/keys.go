package layout

import (
	"encoding/binary"
	"math"

	"github.com/settlement-ledger/ledger/events"
)

// EntryKey returns the key of the record with a sequence.
func EntryKey(seq uint64) []byte {
	key := make([]byte, EntryKeyLen)
	PutEntryKey(key, seq)
	return key
}

// EntryKeyLen is the length in bytes of the key of a record.
const EntryKeyLen = 2 + 8

// PutEntryKey writes the key of the record with the sequence seq into key, which has
// EntryKeyLen bytes.
func PutEntryKey(key []byte, seq uint64) {
	copy(key, "e/")
	binary.BigEndian.PutUint64(key[2:], seq)
}

// EntriesEnd returns a bound greater than the key of every record.
func EntriesEnd() []byte { return []byte("e0") }

// UpperBound returns the exclusive upper bound of an iterator over the records with
// sequences up to the argument end, which may be MaxSequence.
func UpperBound(end uint64) []byte {
	if end == MaxSequence {
		return EntriesEnd()
	}
	return EntryKey(end + 1)
}

// MaxSequence is greater than every sequence. As the end of a range it means that the
// range has no end.
const MaxSequence = math.MaxUint64

// IndexKey returns the key of the index entry of a revision of a stream.
func IndexKey(s events.Stream, r events.Revision) []byte {
	key := make([]byte, IndexKeyLen(s))
	PutIndexKey(key, s, r)
	return key
}

// IndexKeyLen returns the length in bytes of the index keys of a stream.
func IndexKeyLen(s events.Stream) int { return 2 + len(s) + 1 + 8 }

// PutIndexKey writes the key of an index entry into key, which has IndexKeyLen bytes.
func PutIndexKey(key []byte, s events.Stream, r events.Revision) {
	copy(key, "s/")
	n := 2 + copy(key[2:], s)
	key[n] = 0
	binary.BigEndian.PutUint64(key[n+1:], uint64(r))
}

// IndexEnd returns a bound that is greater than every index key of a stream, and not
// greater than the index keys of the streams after it.
func IndexEnd(s events.Stream) []byte {
	return append(append([]byte("s/"), s...), 1)
}

// CheckpointKey returns the key of a checkpoint.
func CheckpointKey(name string) []byte { return append([]byte("c/"), name...) }

// LastUint64 returns the number in the last 8 bytes of a key or value: the sequence
// in a key of a record, the revision in an index key. b must have 8 bytes or more.
func LastUint64(b []byte) uint64 { return binary.BigEndian.Uint64(b[len(b)-8:]) }
