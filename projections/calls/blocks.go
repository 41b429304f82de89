package calls

import (
	"encoding/binary"

	"github.com/klauspost/compress/s2"
)

// blockSize is the least number of bytes in a block of a checkpoint before
// compression, except for the last block.
const blockSize = 1 << 20

// A blockWriter compresses the bytes of its codec in blocks. A block ends
// after a session or a call, and has its compressed length before it.
type blockWriter struct {
	codec
	to   []byte
	room []byte // to compress into
}

// border ends a block that is large enough.
func (w *blockWriter) border() {
	if len(w.b) >= blockSize {
		w.flush()
	}
}

func (w *blockWriter) flush() {
	if need := s2.MaxEncodedLen(len(w.b)); len(w.room) < need {
		w.room = make([]byte, need)
	}
	block := s2.Encode(w.room, w.b)
	w.to = append(binary.AppendUvarint(w.to, uint64(len(block))), block...)
	w.b = w.b[:0]
}

// end writes the last block and returns them all.
func (w *blockWriter) end() []byte {
	w.flush()
	return w.to
}

// nextBlock returns the compressed bytes of the next block and the rest, or
// nil if there is no complete block.
func nextBlock(blocks []byte) (block, rest []byte) {
	n, size := binary.Uvarint(blocks)
	if size <= 0 || n > uint64(len(blocks)-size) {
		return nil, nil
	}
	return blocks[size : size+int(n)], blocks[size+int(n):]
}

// border decompresses the next block after the end of one.
func (p *codec) border() {
	if len(p.b) > 0 || len(p.blocks) == 0 {
		return
	}
	block, rest := nextBlock(p.blocks)
	b, err := s2.Decode(p.room, block)
	if err != nil {
		p.fail()
		return
	}
	p.b, p.blocks, p.room = b, rest, b[:cap(b)]
}

// following returns the decompressed size of the remaining blocks, as they
// declare it.
func (p *codec) following() (bytes int) {
	for rest := p.blocks; len(rest) > 0; {
		var block []byte
		block, rest = nextBlock(rest)
		n, err := s2.DecodedLen(block)
		if err != nil {
			return bytes
		}
		bytes += n
	}
	return bytes
}
