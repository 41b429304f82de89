package transcripts

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// digest is enough of a SHA-256 to tell the records of a file apart.
type digest [16]byte

func sum(parts ...string) digest {
	h := sha256.New()
	for _, p := range parts {
		_ = binary.Write(h, binary.BigEndian, uint64(len(p)))
		h.Write([]byte(p))
	}
	return digest(h.Sum(nil))
}

// derive returns the ID of a thing that happened at a time and that the parts
// name: the ULID of its millisecond and of 80 bits of the SHA-256 over the
// lengths and bytes of the parts.
func derive[I any](from func([16]byte) I, at time.Time, parts ...string) I {
	var b [16]byte
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(max(at.UnixMilli(), 0)))
	d := sum(parts...)
	copy(b[:6], ms[2:])
	copy(b[6:], d[:10])
	return from(b)
}
