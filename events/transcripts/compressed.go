package transcripts

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of the decompression of a file.
const maxWindow = 64 << 20

// A plainReader reads a file, decompressed if it is compressed.
type plainReader struct {
	io.Reader
	close func()
	// compressed reports that the file is compressed. A damage of the compression ends
	// the file; damage is then its error.
	compressed bool
	damage     error
}

// decompress returns a reader of the contents of r, which can be compressed with gzip
// or zstd. The caller closes it.
func decompress(r io.Reader) (*plainReader, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	head, _ := buffered.Peek(4)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		return &plainReader{Reader: unzipped, close: func() { _ = unzipped.Close() }, compressed: true}, nil
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		unpacked, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		return &plainReader{Reader: unpacked, close: unpacked.Close, compressed: true}, nil
	}
	return &plainReader{Reader: buffered, close: func() {}}, nil
}

// Read reads the contents. It returns io.EOF at a damage of the compression.
func (p *plainReader) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err != nil && p.compressed && !errors.Is(err, io.EOF) {
		p.damage, err = err, io.EOF
	}
	return n, err
}

// Close releases the decompressor. It does not close the file.
func (p *plainReader) Close() { p.close() }
