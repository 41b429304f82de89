package calls

import (
	"encoding/binary"

	"github.com/klauspost/compress/s2"
)

// blockSize is the least number of bytes in a block of a checkpoint before
// compression, except for the last block.
const blockSize = 1 << 20

// A blockWriter collects the bytes of its codec and compresses them in blocks. A
// varint with the length of the compressed bytes precedes each block. A block ends
// after a session or a call, never within one. Blocks bound the memory for encoding
// and decoding, because the encoding of a whole log never exists uncompressed.
type blockWriter struct {
	checkpointCodec
	// to receives the finished blocks.
	to []byte
	// room is the buffer for one compressed block, reused by each.
	room []byte
}

// border ends the block if it has at least blockSize bytes. The encoder calls border
// after each session and call.
func (w *blockWriter) border() {
	if len(w.b) >= blockSize {
		w.flush()
	}
}

// flush compresses the bytes of the codec into a block and empties the codec.
func (w *blockWriter) flush() {
	if need := s2.MaxEncodedLen(len(w.b)); len(w.room) < need {
		w.room = make([]byte, need)
	}
	block := s2.Encode(w.room, w.b)
	w.to = append(binary.AppendUvarint(w.to, uint64(len(block))), block...)
	w.b = w.b[:0]
}

// end writes the last block, which may be empty, and returns all blocks.
func (w *blockWriter) end() []byte {
	w.flush()
	return w.to
}

// nextBlock splits the first block from the others and returns its compressed bytes
// and the rest. It returns nil, nil for a truncated block.
func nextBlock(blocks []byte) (block, rest []byte) {
	n, size := binary.Uvarint(blocks)
	if size <= 0 || n > uint64(len(blocks)-size) {
		return nil, nil
	}
	return blocks[size : size+int(n)], blocks[size+int(n):]
}

// border decompresses the next block if the codec has read all bytes of the current
// one. The decoder calls border at the places where the blockWriter may end a block.
// A damaged block breaks the codec.
func (p *checkpointCodec) border() {
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

// following returns the decompressed size of the blocks that are still compressed. It
// reads the sizes from the headers of the blocks and decompresses none. It stops at a
// damaged header.
func (p *checkpointCodec) following() (bytes int) {
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
