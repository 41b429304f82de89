package calls

import (
	"encoding/binary"

	"github.com/klauspost/compress/s2"
)

// blockSize is how many bytes of a checkpoint are compressed together, at
// least, but for the last.
const blockSize = 1 << 20

// A blockWriter compresses what is appended to its packer. A block ends where
// a session or a call does, and has the length of its compressed bytes before
// it.
type blockWriter struct {
	codec
	to   []byte
	room []byte // to compress into
}

// border says that a block may end here.
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

// nextBlock returns the compressed bytes of the next block, and what follows
// them; none where there is no whole block.
func nextBlock(blocks []byte) (block, rest []byte) {
	n, size := binary.Uvarint(blocks)
	if size <= 0 || n > uint64(len(blocks)-size) {
		return nil, nil
	}
	return blocks[size : size+int(n)], blocks[size+int(n):]
}

// border goes on to the next block where one was read to its end.
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

// following returns how many bytes the blocks to come have, as they say.
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
