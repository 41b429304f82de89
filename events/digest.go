package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// A Digest is the SHA-256 of a sequence of entries, with all fields but their
// positions: two stores with the same records in the same order have the same
// digest. docs/formats.md specifies the bytes. It is not safe for concurrent
// use.
type Digest struct {
	sum   hash.Hash
	count uint64
	head  []byte
}

// NewDigest returns the digest of an empty sequence.
func NewDigest() *Digest { return &Digest{sum: sha256.New()} }

// Add adds the next entry. It keeps no reference to the bytes of the entry.
func (d *Digest) Add(e Entry) {
	id := e.ID.Bytes()
	b := binary.BigEndian.AppendUint32(d.head[:0], uint32(len(e.Stream)))
	b = append(b, e.Stream...)
	b = binary.BigEndian.AppendUint64(b, uint64(e.Revision))
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Kind)))
	b = append(b, e.Kind...)
	b = binary.BigEndian.AppendUint16(b, uint16(e.Version))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(len(e.Data)))
	b = binary.BigEndian.AppendUint64(b, uint64(len(e.Metadata)))
	_, _ = d.sum.Write(b) // a hash returns no error
	_, _ = d.sum.Write(e.Data)
	_, _ = d.sum.Write(e.Metadata)
	d.head = b
	d.count++
}

// Count returns the number of entries added.
func (d *Digest) Count() uint64 { return d.count }

// String returns the digest of the entries so far in 64 hexadecimal digits.
func (d *Digest) String() string { return hex.EncodeToString(d.sum.Sum(nil)) }
