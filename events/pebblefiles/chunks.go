package pebblefiles

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/bits"
)

// Pebble writes logs and manifests as blocks of 32 KiB that consist of chunks. A record is
// one full chunk, or a first chunk, middle chunks and a last one. A chunk begins with a
// header, in little-endian order:
//
//	CRC-32C(4)  length(2)  encoding(1)                                   of a manifest
//	CRC-32C(4)  length(2)  encoding(1)  log number(4)                    of a log
//	CRC-32C(4)  length(2)  encoding(1)  log number(4)  synced offset(8)  of a log
//
// The checksum covers all bytes after the length. Log files are reused under another
// number, so a chunk with another number belongs to an earlier log. The synced offset is
// the length of the log that was on the disk when the chunk was written. The rest of a
// block is zero.
const (
	blockLen      = 32 << 10
	sectorLen     = 512 // the smallest unit that a disk writes
	chunkHeader   = 7   // of a manifest
	logHeader     = 11  // of a log
	syncedHeader  = 19  // of a log, with the synced offset
	encodingAt    = 6   // offset of the encoding in a header
	logNumberAt   = 7   // offset of the log number
	syncedAt      = 11  // offset of the synced offset
	lastEncoding  = 12  // the largest encoding that Pebble writes
	fullChunk     = 1   // of an encoding modulo 4: 1, 5 and 9 are full
	firstChunk    = 2
	middleChunk   = 3
	lastChunk     = 0
	trailerNumber = 1 // the last chunk of a log has the log's number plus this
)

// headerLen returns the length of the header of a chunk with an encoding, or 0 for an
// encoding that Pebble does not write.
func headerLen(encoding byte) int {
	switch {
	case encoding == 0 || encoding > lastEncoding:
		return 0
	case encoding <= 4:
		return chunkHeader
	case encoding <= 8:
		return logHeader
	}
	return syncedHeader
}

// A chunk is a part of a record that matches its checksum.
type chunk struct {
	kind    byte   // fullChunk, firstChunk, middleChunk or lastChunk
	payload []byte // valid until another block is read
	synced  uint64 // the synced offset; 0 if the header has none
	end     int    // offset after the chunk in the file
}

// A chunkFile reads a log or a manifest, of which it holds one block in memory.
type chunkFile struct {
	source   io.ReaderAt
	size     int
	number   uint32 // of the log; 0 for a manifest
	manifest bool
	block    []byte // at the offset begin
	begin    int
	err      error // of source; the file then ends before the block that cannot be read
}

// rest returns the bytes from an offset to the end of its block. They are valid until
// another block is read.
func (f *chunkFile) rest(at int) []byte {
	if at >= f.size {
		return nil
	}
	if at < f.begin || at >= f.begin+len(f.block) {
		if f.block == nil {
			f.block = make([]byte, 0, blockLen)
		}
		f.begin = at / blockLen * blockLen
		f.block = f.block[:min(blockLen, f.size-f.begin)]
		if n, err := f.source.ReadAt(f.block, int64(f.begin)); n < len(f.block) {
			f.err, f.size, f.block = err, f.begin, f.block[:0]
			return nil
		}
	}
	return f.block[at-f.begin:]
}

// owns reports whether a chunk header with an encoding belongs to this file. A log
// may contain chunks of an earlier log whose file was reused; they have another log
// number.
func (f *chunkFile) owns(encoding byte, header []byte) bool {
	if f.manifest {
		return headerLen(encoding) == chunkHeader
	}
	return headerLen(encoding) > chunkHeader && binary.LittleEndian.Uint32(header[logNumberAt:]) == f.number
}

// chunkAt returns the chunk at an offset. ok is false unless a complete chunk of this
// file with a matching checksum begins there and ends in the same block.
func (f *chunkFile) chunkAt(at int) (c chunk, ok bool) {
	b := f.rest(at)
	if len(b) < chunkHeader {
		return chunk{}, false
	}
	encoding := b[encodingAt]
	header, length := headerLen(encoding), int(binary.LittleEndian.Uint16(b[4:]))
	if header == 0 || header+length > len(b) || !f.owns(encoding, b) || maskedChecksum(b[encodingAt:header+length]) != binary.LittleEndian.Uint32(b) {
		return chunk{}, false
	}
	c = chunk{kind: encoding % 4, payload: b[header : header+length], end: at + header + length}
	if header == syncedHeader {
		c.synced = binary.LittleEndian.Uint64(b[syncedAt:])
	}
	return c, true
}

// maskedChecksum returns the checksum in a chunk header: a CRC-32C, masked as in LevelDB's
// format.
func maskedChecksum(b []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(b, castagnoli), 17) + 0xa282ead8
}

// unmask returns the CRC-32C of a masked checksum.
func unmask(sum uint32) uint32 { return bits.RotateLeft32(sum-0xa282ead8, -17) }

// padding reports whether rest, the end of a block, is the padding of a writer that
// had no space for a further chunk. Padding is zero and shorter than the largest
// header.
func padding(rest []byte) bool {
	if len(rest) < logHeader {
		return true
	}
	return len(rest) < syncedHeader && allZero(rest)
}

// zeroHeader reports whether a header has no checksum, no length and no encoding.
func zeroHeader(b []byte) bool {
	return binary.LittleEndian.Uint32(b) == 0 && binary.LittleEndian.Uint16(b[4:]) == 0 && b[encodingAt] == 0
}

// oneBitFlipped reports whether flipping one bit at an offset yields a complete chunk or
// the padding of a block. If so, the disk has changed a written bit. A power cut cannot
// be the cause: an interrupted write lacks whole sectors, not one bit.
//
// The function tries each bit of the encoding and of the length, which decide where the
// chunk ends. For the stored encoding and length it computes the flipped bit from the
// checksum. It reports false if a sector of the chunk is zero: a power cut leaves such
// sectors, and one flipped bit fits the checksum of an incomplete chunk of 32 KiB by chance
// in 6 of 100,000 cases.
func (f *chunkFile) oneBitFlipped(at int) bool {
	b := f.rest(at)
	if len(b) < chunkHeader {
		return false
	}
	if len(b) < syncedHeader {
		ones := 0
		for _, x := range b {
			ones += bits.OnesCount8(x)
		}
		if ones == 1 {
			return true
		}
	}
	encoding, length := b[encodingAt], binary.LittleEndian.Uint16(b[4:])
	if f.oneBitFlippedAs(b, encoding, length, true) && !f.lacksSector(at, at+headerLen(encoding)+int(length)) {
		return true
	}
	for bit := range 8 {
		if f.oneBitFlippedAs(b, encoding^1<<bit, length, false) {
			return true
		}
	}
	for bit := range 16 {
		if f.oneBitFlippedAs(b, encoding, length^1<<bit, false) {
			return true
		}
	}
	return false
}

// lacksSector reports whether all bytes between two offsets that lie in one sector are
// zero.
func (f *chunkFile) lacksSector(from, to int) bool {
	for from < to {
		end := min((from/sectorLen+1)*sectorLen, to)
		if allZero(f.rest(from)[:end-from]) {
			return true
		}
		from = end
	}
	return false
}

// allZero reports whether each byte is zero.
func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// oneBitFlippedAs reports whether b begins with a chunk of the given encoding and
// length. If search is true, one bit of its checksum or body may be flipped. If
// search is false, the chunk must match, because the encoding or the length already
// has a flipped bit.
func (f *chunkFile) oneBitFlippedAs(b []byte, encoding byte, length uint16, search bool) bool {
	header := headerLen(encoding)
	if header == 0 || header+int(length) > len(b) || (header == chunkHeader) != f.manifest {
		return false
	}
	body := append([]byte{encoding}, b[encodingAt+1:header+int(length)]...)
	numbered := func() bool {
		return f.manifest || binary.LittleEndian.Uint32(body[logNumberAt-encodingAt:]) == f.number
	}
	found, want := maskedChecksum(body), binary.LittleEndian.Uint32(b)
	if !search {
		return found == want && numbered()
	}
	if numbered() && bits.OnesCount32(found^want) == 1 {
		return true
	}
	at, bit, ok := flippedBit(body, unmask(want))
	if !ok {
		return false
	}
	body[at] ^= 1 << bit
	return numbered() && headerLen(body[0]) == header
}

// flippedBit finds the bit of b that must be flipped so that b has the CRC-32C crc. It
// returns the index of the byte, the number of the bit in the byte, and true, or false
// if no single bit suffices. CRCs are linear: the change that a flipped bit causes
// depends only on its distance from the end of b. So flippedBit computes the change of
// each bit from the end to the start, in time proportional to the length of b.
func flippedBit(b []byte, crc uint32) (at, bit int, ok bool) {
	difference := crc32.Checksum(b, castagnoli) ^ crc
	var changes [8]uint32
	for bit := range changes {
		changes[bit] = castagnoli[1<<bit]
	}
	for at := len(b) - 1; at >= 0; at-- {
		for bit, change := range changes {
			if change == difference {
				return at, bit, true
			}
			changes[bit] = castagnoli[byte(change)] ^ change>>8
		}
	}
	return 0, 0, false
}
