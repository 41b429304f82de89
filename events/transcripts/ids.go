package transcripts

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// A contentDigest is the first 16 bytes of a SHA-256. Two different records of a file
// are practically certain to have different digests.
type contentDigest [16]byte

// sumParts returns the digest of the lengths and bytes of parts. The lengths
// distinguish ("ab", "c") from ("a", "bc").
func sumParts[T ~string | ~[]byte](parts ...T) contentDigest {
	h := sha256.New()
	// A buffer of fixed size avoids a copy of a long string.
	var piece [4096]byte
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(piece[:0], uint64(len(p))))
		for len(p) > 0 {
			n := copy(piece[:], p)
			h.Write(piece[:n])
			p = p[n:]
		}
	}
	return contentDigest(h.Sum(nil))
}

// deriveID returns the ID of an object from a time and the parts of its name. The ID
// is a ULID with the millisecond of the time and 80 bits of the SHA-256 over the
// lengths and bytes of the parts. The function from converts its bytes to the ID
// type. Equal arguments give the same ID in every process, so that a repeated import
// adds no event.
func deriveID[I any](from func([16]byte) I, at time.Time, parts ...string) I {
	var b [16]byte
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(at.UnixMilli(), 0)))
	d := sumParts(parts...)
	copy(b[:6], ms[2:])
	copy(b[6:], d[:10])
	return from(b)
}

// An idSuffix is the part of a derived ID that depends on the name of its object and
// not on the time. Two files can give one object different times. The two IDs then
// differ in their first six bytes and have the same suffix.
type idSuffix [10]byte

// suffixOf returns the suffix of an ID: its bytes after the six bytes of the time.
func suffixOf[K domain.IDKind](id domain.ID[K]) idSuffix {
	b := id.Bytes()
	return idSuffix(b[6:])
}

// storedIDs maps the suffix of each ID on record to that ID. The ID on record
// replaces a derived ID with the same suffix, which can have another time.
type storedIDs map[idSuffix][16]byte

// rememberID adds an ID on record to stored. It ignores a zero ID, and an ID whose
// suffix is already in stored.
func rememberID[K domain.IDKind](stored storedIDs, id domain.ID[K]) {
	if id.IsZero() {
		return
	}
	if t := suffixOf(id); stored[t] == [16]byte{} {
		stored[t] = id.Bytes()
	}
}

// storedID returns the ID on record that has the suffix of id, or id itself if no ID
// on record has it.
func storedID[K domain.IDKind](stored storedIDs, id domain.ID[K]) domain.ID[K] {
	if b := stored[suffixOf(id)]; b != [16]byte{} {
		return domain.IDFromBytes[K](b)
	}
	return id
}
