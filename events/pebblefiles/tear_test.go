package pebblefiles

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// A chunk that lacks a sector is the end of a log that a power cut left, also if one
// flipped bit happens to fit its checksum. Without the zero sector it is damaged.
func TestAChunkThatLacksASectorIsNoFlippedBit(t *testing.T) {
	t.Parallel()
	const number, payload = 5, 6000
	log := func(lost bool) *chunkFile {
		chunk := append(make([]byte, logHeader), bytes.Repeat([]byte("x"), payload)...)
		binary.LittleEndian.PutUint16(chunk[4:], payload)
		chunk[encodingAt] = 5 // a full chunk of a log
		binary.LittleEndian.PutUint32(chunk[logNumberAt:], number)
		if lost {
			clear(chunk[4096:4608])
		}
		binary.LittleEndian.PutUint32(chunk, maskedChecksum(chunk[encodingAt:]))
		chunk[1000] ^= 4
		return &chunkFile{source: bytes.NewReader(chunk), size: len(chunk), number: number}
	}
	if tear := findTear("000005.log", log(true)); tear != nil {
		t.Errorf("findTear of a chunk without a sector = %v; want none", tear.Damage())
	}
	if tear := findTear("000005.log", log(false)); tear == nil || !tear.Certain {
		t.Errorf("findTear of a chunk with a flipped bit = %v; want damage", tear)
	}
}
