package transcripts

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/settlement-ledger/ledger/domain"
)

// contentDigest is enough of a SHA-256 to tell the records of a file apart.
type contentDigest [16]byte

func sumParts[T ~string | ~[]byte](parts ...T) contentDigest {
	h := sha256.New()
	var piece [4096]byte // so that no long text is copied whole
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

// deriveID returns the ID of a thing that happened at a time and that the parts
// name: the ULID of its millisecond and of 80 bits of the SHA-256 over the
// lengths and bytes of the parts.
func deriveID[I any](from func([16]byte) I, at time.Time, parts ...string) I {
	var b [16]byte
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(at.UnixMilli(), 0)))
	d := sumParts(parts...)
	copy(b[:6], ms[2:])
	copy(b[6:], d[:10])
	return from(b)
}

// A idSuffix is what an ID has of the parts that name it. Two files may give one
// thing different times, and its IDs then differ in the time alone.
type idSuffix [10]byte

func suffixOf[K domain.IDKind](id domain.ID[K]) idSuffix {
	b := id.Bytes()
	return idSuffix(b[6:])
}

// storedIDs are IDs by their tails.
type storedIDs map[idSuffix][16]byte

// rememberID holds an ID, unless one of that tail is held.
func rememberID[K domain.IDKind](stored storedIDs, id domain.ID[K]) {
	if id.IsZero() {
		return
	}
	if t := suffixOf(id); stored[t] == [16]byte{} {
		stored[t] = id.Bytes()
	}
}

// storedID returns the ID that is held with the tail of an ID, and the ID itself
// where there is none.
func storedID[K domain.IDKind](stored storedIDs, id domain.ID[K]) domain.ID[K] {
	if b := stored[suffixOf(id)]; b != [16]byte{} {
		return domain.IDFromBytes[K](b)
	}
	return id
}
