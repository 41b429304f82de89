package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"iter"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// An Output is a kept output, open to be read, as [outputs.Output] is.
type Output interface {
	io.ReadSeekCloser
	io.ReaderAt
	Retained() domain.Retained
}

// Outputs are outputs that are kept somewhere. The methods are those of
// [outputs.Store].
type Outputs interface {
	Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error)
	Confirm(ctx context.Context, settlement domain.EventID) error
	Open(ctx context.Context, ref domain.Ref) (Output, error)
	Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error)
	Verify(ctx context.Context, ref domain.Ref) error
	All(ctx context.Context) iter.Seq2[domain.Retained, error]
}

// Local returns the outputs of a store of this process.
func Local(store *outputs.Store) Outputs { return local{store} }

type local struct{ *outputs.Store }

func (l local) Open(ctx context.Context, ref domain.Ref) (Output, error) {
	o, err := l.Store.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Open is [outputs.Store.Open] at the node. The context is that of the reading,
// too. Of the output, 1 MiB is in memory.
func (c *Client) Open(ctx context.Context, ref domain.Ref) (Output, error) {
	retained, err := c.stat(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", ref, err)
	}
	return &reading{
		retained: retained, sum: sha256.New(),
		fetch: func(p []byte, off int64) (int, error) { return c.fetch(ctx, retained, p, off) },
	}, nil
}

// Verify reads a whole output and compares it with what is known of it, which
// is what [outputs.Store.Verify] does where the output lies; the bytes travel.
func (c *Client) Verify(ctx context.Context, ref domain.Ref) error {
	o, err := c.Open(ctx, ref)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer o.Close()
	return readThrough(o)
}

// readThrough reads all of an output, which compares its digest.
func readThrough(o Output) error {
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{o}, make([]byte, 64<<10)); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// fetch reads bytes of an output from off on, no more than a page. It reads
// fewer only where the node has no more that are whole.
func (c *Client) fetch(ctx context.Context, retained domain.Retained, p []byte, off int64) (n int, err error) {
	p = p[:min(int64(len(p)), pageSize, retained.Bytes-off)]
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)}, "If-Match": {etag(retained)}}
	err = c.ask(ctx, question{method: http.MethodGet, path: pathOf(retained.Ref), header: header}, func(h http.Header, body io.Reader) error {
		size, err := strconv.Atoi(h.Get("Content-Length"))
		if want := fmt.Sprintf("bytes %d-%d/%d", off, off+int64(size)-1, retained.Bytes); err != nil || size < 1 || size > len(p) || h.Get("Content-Range") != want {
			return fmt.Errorf("read %d bytes at %d from node %s: %w: it gives %q", len(p), off, c.address, ErrNotANode, cut(h.Get("Content-Range")))
		}
		if n, err = io.ReadFull(body, p[:size]); err != nil {
			return err
		}
		if sum := sha256.Sum256(p[:n]); !hasDigest(h.Get(digestHeader), sum[:]) {
			return fmt.Errorf("read %d bytes at %d from node %s: %w", n, off, c.address, ErrMangled)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// A reading is an output at a node. It holds the page that was read last, and
// while it is read from its first byte on, the digest of what was.
type reading struct {
	retained domain.Retained
	fetch    func(p []byte, off int64) (int, error)
	at       int64
	page     []byte
	from     int64 // where page begins
	sum      hash.Hash
	summed   int64 // bytes in sum
	shut     atomic.Bool
}

func (o *reading) Retained() domain.Retained { return o.retained }

func (o *reading) Close() error {
	o.shut.Store(true)
	o.page = nil
	return nil
}

func (o *reading) Read(p []byte) (int, error) {
	if o.shut.Load() {
		return 0, o.failed(outputs.ErrClosed)
	}
	if o.at >= o.retained.Bytes {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if o.at < o.from || o.at >= o.from+int64(len(o.page)) {
		if err := o.turn(); err != nil {
			o.page = o.page[:0]
			return 0, o.failed(err)
		}
	}
	n := copy(p, o.page[o.at-o.from:])
	o.at += int64(n)
	return n, nil
}

// turn reads the page that begins where the reading is. The last page of a
// reading from the first byte on is given only if all of it has the digest.
func (o *reading) turn() error {
	if o.page == nil {
		o.page = make([]byte, min(pageSize, o.retained.Bytes))
	}
	n, err := o.fetch(o.page[:cap(o.page)], o.at)
	if err != nil {
		return err
	}
	o.page, o.from = o.page[:n], o.at
	if o.summed != o.from {
		return nil
	}
	_, _ = o.sum.Write(o.page)
	o.summed += int64(n)
	if sum := hex.EncodeToString(o.sum.Sum(nil)); o.summed == o.retained.Bytes && sum != o.retained.SHA256 {
		return fmt.Errorf("at byte %d: %w: all of it has SHA-256 %s, and %s was kept", o.from, outputs.ErrDamaged, sum, o.retained.SHA256)
	}
	return nil
}

func (o *reading) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.retained.Bytes
	default:
		return 0, fmt.Errorf("seek in %v: whence %d is not one of 0, 1, 2", o.retained.Ref, whence)
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek in %v: byte %d is before the beginning", o.retained.Ref, offset)
	}
	o.at = offset
	return offset, nil
}

func (o *reading) ReadAt(p []byte, off int64) (n int, err error) {
	if o.shut.Load() {
		return 0, o.failed(outputs.ErrClosed)
	}
	if off < 0 {
		return 0, fmt.Errorf("read %v: byte %d is before the beginning", o.retained.Ref, off)
	}
	for n < len(p) {
		at := off + int64(n)
		if at >= o.retained.Bytes {
			return n, io.EOF
		}
		m, err := o.fetch(p[n:], at)
		if err != nil {
			return n, o.failed(err)
		}
		n += m
	}
	return n, nil
}

func (o *reading) failed(err error) error { return fmt.Errorf("read %v: %w", o.retained.Ref, err) }
