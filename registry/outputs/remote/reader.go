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

// A Reader reads one blob, like an [outputs.BlobReader].
type Reader interface {
	io.ReadSeekCloser
	io.ReaderAt
	Retained() domain.Retained
}

// A BlobStore stores blobs. Its methods are those of [outputs.Store].
type BlobStore interface {
	Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error)
	Confirm(ctx context.Context, settlement domain.EventID) error
	Open(ctx context.Context, ref domain.Ref) (Reader, error)
	Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error)
	Verify(ctx context.Context, ref domain.Ref) error
	All(ctx context.Context) iter.Seq2[domain.Retained, error]
}

// Local returns a store of this process as a BlobStore.
func Local(store *outputs.Store) BlobStore { return localStore{store} }

// A localStore adapts Open to the interface.
type localStore struct{ *outputs.Store }

func (l localStore) Open(ctx context.Context, ref domain.Ref) (Reader, error) {
	o, err := l.Store.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Open is [outputs.Store.Open] at the node. The reader uses ctx for its requests and
// buffers 1 MiB. The caller closes it.
func (c *Client) Open(ctx context.Context, ref domain.Ref) (Reader, error) {
	o, err := c.open(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", ref, err)
	}
	return o, nil
}

// open is Open without the text of the operation in its errors.
func (c *Client) open(ctx context.Context, ref domain.Ref) (*remoteReader, error) {
	retained, err := c.stat(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &remoteReader{
		retained: retained, sum: sha256.New(),
		fetchRange: func(p []byte, off int64) (int, error) { return c.fetchRange(ctx, retained, p, off) },
	}, nil
}

// Verify downloads a whole blob and compares it with its metadata.
func (c *Client) Verify(ctx context.Context, ref domain.Ref) error {
	o, err := c.Open(ctx, ref)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer o.Close()
	return readToEnd(o)
}

// readToEnd reads a whole blob, which verifies its digest.
func readToEnd(o Reader) error {
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{o}, make([]byte, 64<<10)); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// fetchRange reads bytes at an offset into p, at most one page, and verifies their
// digest. It returns fewer bytes only if damage at the node follows them.
func (c *Client) fetchRange(ctx context.Context, retained domain.Retained, p []byte, off int64) (n int, err error) {
	p = p[:min(int64(len(p)), pageSize, retained.Bytes-off)]
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)}, "If-Match": {etag(retained)}}
	err = c.do(ctx, request{method: http.MethodGet, path: pathOf(retained.Ref), header: header}, func(h http.Header, body io.Reader) error {
		size, err := strconv.Atoi(h.Get("Content-Length"))
		if want := fmt.Sprintf("bytes %d-%d/%d", off, off+int64(size)-1, retained.Bytes); err != nil || size < 1 || size > len(p) || h.Get("Content-Range") != want {
			return fmt.Errorf("read %d bytes at %d from node %s: %w: it gives %q", len(p), off, c.address, ErrNotANode, truncate(h.Get("Content-Range")))
		}
		if n, err = io.ReadFull(body, p[:size]); err != nil {
			return err
		}
		if sum := sha256.Sum256(p[:n]); !hasDigest(h.Get(digestHeader), sum[:]) {
			return fmt.Errorf("read %d bytes at %d from node %s: %w", n, off, c.address, ErrChecksum)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// A remoteReader reads a blob at a node. It buffers the last page, and hashes the bytes
// as long as they are read sequentially from the first one.
type remoteReader struct {
	retained   domain.Retained
	fetchRange func(p []byte, off int64) (int, error)
	at         int64
	page       []byte
	pageStart  int64 // offset of page
	sum        hash.Hash
	summed     int64 // number of bytes in sum
	shut       atomic.Bool
}

func (o *remoteReader) Retained() domain.Retained { return o.retained }

func (o *remoteReader) Close() error {
	o.shut.Store(true)
	o.page = nil
	return nil
}

func (o *remoteReader) Read(p []byte) (int, error) {
	if o.shut.Load() {
		return 0, o.failed(outputs.ErrClosed)
	}
	if o.at >= o.retained.Bytes {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if o.at < o.pageStart || o.at >= o.pageStart+int64(len(o.page)) {
		if err := o.nextPage(); err != nil {
			o.page = o.page[:0]
			return 0, o.failed(err)
		}
	}
	n := copy(p, o.page[o.at-o.pageStart:])
	o.at += int64(n)
	return n, nil
}

// nextPage reads the page at the current offset. If the blob was read sequentially,
// nextPage rejects the last page unless the digest of all bytes is right.
func (o *remoteReader) nextPage() error {
	if o.page == nil {
		o.page = make([]byte, min(pageSize, o.retained.Bytes))
	}
	n, err := o.fetchRange(o.page[:cap(o.page)], o.at)
	if err != nil {
		return err
	}
	o.page, o.pageStart = o.page[:n], o.at
	if o.summed != o.pageStart {
		return nil
	}
	_, _ = o.sum.Write(o.page)
	o.summed += int64(n)
	if sum := hex.EncodeToString(o.sum.Sum(nil)); o.summed == o.retained.Bytes && sum != o.retained.SHA256 {
		return fmt.Errorf("at byte %d: %w: all of it has SHA-256 %s, and %s was kept", o.pageStart, outputs.ErrDamaged, sum, o.retained.SHA256)
	}
	return nil
}

func (o *remoteReader) Seek(offset int64, whence int) (int64, error) {
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

func (o *remoteReader) ReadAt(p []byte, off int64) (n int, err error) {
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
		m, err := o.fetchRange(p[n:], at)
		if err != nil {
			return n, o.failed(err)
		}
		n += m
	}
	return n, nil
}

func (o *remoteReader) failed(err error) error { return fmt.Errorf("read %v: %w", o.retained.Ref, err) }
