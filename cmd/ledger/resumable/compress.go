package resumable

import (
	"compress/gzip"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// A Compression is the compression of a file.
type Compression string

// The compressions.
const (
	Plain Compression = ""
	Gzip  Compression = "gzip"
	Zstd  Compression = "zstd"
)

// CompressionOf returns the compression that the end of a path names, and the path without
// that end.
func CompressionOf(path string) (Compression, string) {
	if rest, ok := strings.CutSuffix(path, ".gz"); ok {
		return Gzip, rest
	}
	if rest, ok := strings.CutSuffix(path, ".zst"); ok {
		return Zstd, rest
	}
	return Plain, path
}

// A compressor compresses what is written between two calls of end as one member or frame.
type compressor struct {
	to   io.Writer
	by   Compression
	open io.WriteCloser // nil: no byte was written since the last end
	zstd *zstd.Encoder  // used again for each frame
}

// Write compresses data.
func (c *compressor) Write(data []byte) (int, error) {
	if c.by == Plain {
		return c.to.Write(data)
	}
	if c.open == nil {
		if err := c.begin(); err != nil {
			return 0, err
		}
	}
	return c.open.Write(data)
}

// begin begins a member or frame. One goroutine compresses, so that equal input gives equal
// output.
func (c *compressor) begin() (err error) {
	if c.by == Gzip {
		c.open = gzip.NewWriter(c.to)
		return nil
	}
	if c.zstd == nil {
		if c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err != nil {
			return err
		}
	}
	c.zstd.Reset(c.to)
	c.open = c.zstd
	return nil
}

// end ends the member or frame.
func (c *compressor) end() error {
	if c.open == nil {
		return nil
	}
	err := c.open.Close()
	c.open = nil
	return err
}
