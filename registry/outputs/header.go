package outputs

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// The first bytes of the keys. The package doc draws the layout.
const (
	formatKind = 'f'
	headerKind = 'h'
	chunkKind  = 'b'

	identityKind = 'i'
)

const (
	format       = 1 // of the store, under formatKey
	headerFormat = 1 // of a header

	headerKeySize   = 1 + 16 + 1
	chunkKeySize    = 1 + 8 + 4
	headerFixedSize = 1 + 1 + 8 + 4 + 8 + 8 + 32 + 8 // bytes of a header before its texts
	crcSize         = 4
)

// castagnoli is the table of the CRC-32C of headers and chunks.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A state is the stage in the life of a blob. The zero state is invalid.
type state byte

const (
	unconfirmed state = iota + 1 // the settlement event may not be in the log
	confirmed                    // the settlement event is in the log
	pruned                       // the bytes are deleted; the header stays
)

// A blobHeader is the stored header of a blob: its metadata, its state and the number
// in the keys of its chunks.
type blobHeader struct {
	retained domain.Retained
	state    state
	blob     uint64    // number of the blob; 0 once pruned
	chunk    uint32    // bytes in each chunk but the last
	prunedAt time.Time // in UTC; zero unless pruned
	policy   string    // name of the policy that pruned it; empty unless pruned
}

// tombstone returns the *PrunedError of a pruned blob, and nil for any other.
func (h blobHeader) tombstone() error {
	if h.state != pruned {
		return nil
	}
	return &PrunedError{Retained: h.retained, Policy: h.policy, At: h.prunedAt}
}

// headerKey returns the key of the header under ref.
func headerKey(ref domain.Ref) []byte {
	return append(settlementKey(ref.Settlement()), byte(ref.Channel()))
}

// settlementKey returns the common prefix of the header keys of a settlement.
func settlementKey(settlement domain.EventID) []byte {
	id := settlement.Bytes()
	return append([]byte{headerKind}, id[:]...)
}

// parseHeaderKey is the inverse of headerKey. It returns an ErrDamaged for a key of
// another length.
func parseHeaderKey(key []byte) (domain.Ref, error) {
	if len(key) != headerKeySize {
		return domain.Ref{}, fmt.Errorf("key of %d bytes in the place of a head: %w", len(key), ErrDamaged)
	}
	var zero domain.EventID
	id := idFrom(zero, [16]byte(key[1:17]))
	return domain.NewRef(id, domain.Channel(key[17])), nil
}

// idFrom returns the ID with the bytes b, of the same type as its first argument.
// Package domain does not export the kinds of IDs, so the compiler infers the kind
// from that argument.
func idFrom[K domain.IDKind](_ domain.ID[K], b [16]byte) domain.ID[K] {
	return domain.IDFromBytes[K](b)
}

// chunkKey returns the key of a chunk of a blob.
func chunkKey(blob uint64, chunk uint32) []byte {
	key := make([]byte, 0, chunkKeySize)
	key = append(key, chunkKind)
	key = binary.BigEndian.AppendUint64(key, blob)
	return binary.BigEndian.AppendUint32(key, chunk)
}

// chunkSpan returns the range of the chunk keys of a blob: the first key, and the key
// after the last one.
func chunkSpan(blob uint64) (from, to []byte) { return chunkKey(blob, 0), chunkKey(blob+1, 0) }

// prefixEnd returns the least key that is greater than all keys with the prefix. It
// returns nil if there is no such key, because all bytes of the prefix are 255.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

// checksum returns the CRC-32C of a key and its value. It covers the key, so that a
// value that is stored under another key does not match.
func checksum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// encode returns the stored form of the header, which the package doc draws. It
// panics if the metadata has no valid SHA-256.
func (h blobHeader) encode() []byte {
	sum, err := hex.DecodeString(h.retained.SHA256)
	if err != nil || len(sum) != 32 {
		panic("outputs: a head without a digest")
	}
	var at int64
	if h.state == pruned {
		at = h.prunedAt.UnixNano()
	}
	b := make([]byte, 0, headerFixedSize+4+len(h.retained.MIME)+len(h.policy)+crcSize)
	b = append(b, headerFormat, byte(h.state))
	b = binary.BigEndian.AppendUint64(b, h.blob)
	b = binary.BigEndian.AppendUint32(b, h.chunk)
	b = binary.BigEndian.AppendUint64(b, uint64(h.retained.Bytes))
	b = binary.BigEndian.AppendUint64(b, uint64(h.retained.Lines))
	b = append(b, sum...)
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = appendText(b, h.retained.MIME)
	b = appendText(b, h.policy)
	return binary.BigEndian.AppendUint32(b, checksum(headerKey(h.retained.Ref), b))
}

// appendText appends the length and the bytes of text.
func appendText(b []byte, text string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// decodeHeader is the inverse of encode. It returns an ErrFormat for a header of
// another format, and an ErrDamaged for one that does not match its checksum or has
// invalid fields. Both errors name ref.
func decodeHeader(ref domain.Ref, b []byte) (blobHeader, error) {
	if len(b) < headerFixedSize+4+crcSize {
		return blobHeader{}, fmt.Errorf("%v: %w: its record has %d bytes", ref, ErrDamaged, len(b))
	}
	if b[0] != headerFormat {
		return blobHeader{}, fmt.Errorf("%v: %w: its record is of format %d, this program reads %d", ref, ErrFormat, b[0], headerFormat)
	}
	b, sum := b[:len(b)-crcSize], binary.BigEndian.Uint32(b[len(b)-crcSize:])
	if checksum(headerKey(ref), b) != sum {
		return blobHeader{}, fmt.Errorf("%v: %w: its record does not match its checksum", ref, ErrDamaged)
	}
	h := blobHeader{state: state(b[1]), blob: binary.BigEndian.Uint64(b[2:]), chunk: binary.BigEndian.Uint32(b[10:])}
	h.retained = domain.Retained{
		Ref:    ref,
		Bytes:  int64(binary.BigEndian.Uint64(b[14:])),
		Lines:  int64(binary.BigEndian.Uint64(b[22:])),
		SHA256: hex.EncodeToString(b[30:62]),
	}
	at := int64(binary.BigEndian.Uint64(b[62:]))
	mime, rest, ok := cutText(b[headerFixedSize:])
	policy, rest, ok2 := cutText(rest)
	if !ok || !ok2 || len(rest) != 0 || h.state < unconfirmed || h.state > pruned || h.chunk == 0 || h.retained.Bytes < 0 {
		return blobHeader{}, fmt.Errorf("%v: %w: its record is not valid", ref, ErrDamaged)
	}
	h.retained.MIME, h.policy = mime, policy
	if h.state == pruned {
		h.prunedAt = time.Unix(0, at).UTC()
	}
	return h, nil
}

// cutText is the inverse of appendText. It returns the text and the bytes after it.
// ok is false if b is too short.
func cutText(b []byte) (text string, rest []byte, ok bool) {
	if len(b) < 2 {
		return "", nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if len(b) < 2+n {
		return "", nil, false
	}
	return string(b[2 : 2+n]), b[2+n:], true
}
