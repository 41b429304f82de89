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

// A Reader reads one blob, like an [outputs.BlobReader]. Read, Seek and Close belong
// to one goroutine; ReadAt is safe for concurrent use. After Close, Read and ReadAt
// return an outputs.ErrClosed.
type Reader interface {
	io.ReadSeekCloser
	io.ReaderAt
	Retained() domain.Retained
}

// A BlobStore stores blobs. Each method does the same as the method of [outputs.Store]
// with that name, and returns the same errors. Implementations are safe for concurrent
// use.
type BlobStore interface {
	Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error)
	Confirm(ctx context.Context, settlement domain.EventID) error
	Open(ctx context.Context, ref domain.Ref) (Reader, error)
	Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error)
	Verify(ctx context.Context, ref domain.Ref) error
	All(ctx context.Context) iter.Seq2[domain.Retained, error]
}

// Local returns a store of this process as a BlobStore. The caller stays the owner of
// the store.
func Local(store *outputs.Store) BlobStore { return localStore{store} }

// A localStore adapts outputs.Store, whose Open returns a *outputs.BlobReader, to
// BlobStore.
type localStore struct{ *outputs.Store }

// Open is outputs.Store.Open. A failed Open returns a nil Reader.
func (l localStore) Open(ctx context.Context, ref domain.Ref) (Reader, error) {
	o, err := l.Store.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Open is [outputs.Store.Open] at the node. It sends one request, for the metadata.
// The reader uses ctx for its requests and buffers up to 1 MiB. The caller closes it.
func (c *Client) Open(ctx context.Context, ref domain.Ref) (Reader, error) {
	o, err := c.open(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", ref, err)
	}
	return o, nil
}

// open is Open without the operation's name in its errors.
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

// Verify downloads a whole blob and compares it with its metadata. Damage is an
// outputs.ErrDamaged.
func (c *Client) Verify(ctx context.Context, ref domain.Ref) error {
	o, err := c.Open(ctx, ref)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer o.Close()
	return readToEnd(o)
}

// readToEnd reads a whole blob in sequence, which verifies its digest.
func readToEnd(o Reader) error {
	if _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{o}, make([]byte, 64<<10)); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return nil
}

// fetchRange reads bytes at an offset into p, at most one page, and verifies their
// digest. It returns fewer bytes than requested only if the node has damaged bytes
// after them; a request for those bytes then returns the error. The request has the
// blob's digest as its If-Match. If the blob was replaced, the request fails, so a
// reader never mixes the bytes of two blobs.
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

// A remoteReader reads a blob at a node. It buffers the last page. It hashes the bytes
// while they are read in sequence from the first byte on.
type remoteReader struct {
	retained domain.Retained
	// fetchRange is Client.fetchRange of this blob.
	fetchRange func(p []byte, off int64) (int, error)
	// at is the offset of the next Read.
	at int64
	// page is the buffered part of the blob.
	page []byte
	// pageStart is the offset of page.
	pageStart int64
	// sum is the hash of the first summed bytes.
	sum    hash.Hash
	summed int64
	// shut is set by Close.
	shut atomic.Bool
}

// Retained returns the metadata of the blob.
func (o *remoteReader) Retained() domain.Retained { return o.retained }

// Close releases the buffer. It sends no request.
func (o *remoteReader) Close() error {
	o.shut.Store(true)
	o.page = nil
	return nil
}

// Read reads from the current offset, from the buffer or a new page. After a sequential
// read from the first byte to the end, Read has verified the digest of the blob.
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

// nextPage reads the page at the current offset into the buffer. After the last page of
// a sequential read from the first byte on, it compares the digest of all bytes with
// the metadata, and returns an outputs.ErrDamaged if they differ.
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

// Seek sets the offset of the next Read, which may be behind the end. It sends no
// request.
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

// ReadAt reads len(p) bytes at an offset, in requests of at most one page, without the
// buffer. It returns io.EOF if the blob ends before len(p) bytes are read. It verifies
// the digest of each page, but not the digest of the whole blob.
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

// failed wraps err, an error of Read or ReadAt, with the reference of the blob.
func (o *remoteReader) failed(err error) error { return fmt.Errorf("read %v: %w", o.retained.Ref, err) }
