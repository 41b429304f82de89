package shared

import (
	"context"
	"io"
	"iter"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// Outputs returns the blob store of the folder. After a takeover its operations
// continue with the next holder. The blob store is valid until the Store closes.
func (s *Store) Outputs() remote.BlobStore { return folderOutputs{s} }

// A folderOutputs implements remote.BlobStore by the blob store of the current holder.
type folderOutputs struct{ store *Store }

// Keep stores a blob. After a takeover it repeats the upload at the next holder if r is
// an io.Seeker, and otherwise returns an outputs.ErrNotKept.
func (f folderOutputs) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	upload := remote.NewUpload(ref, mime, r)
	return withBackend(ctx, f.store, func(ctx context.Context, b *backend) (domain.Retained, error) { return upload.Try(ctx, b.Outputs) })
}

func (f folderOutputs) Confirm(ctx context.Context, settlement domain.EventID) error {
	return withBackendErr(ctx, f.store, func(ctx context.Context, b *backend) error { return b.Outputs.Confirm(ctx, settlement) })
}

func (f folderOutputs) Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error) {
	return withBackend(ctx, f.store, func(ctx context.Context, b *backend) (domain.Retained, error) { return b.Outputs.Stat(ctx, ref) })
}

func (f folderOutputs) Verify(ctx context.Context, ref domain.Ref) error {
	return withBackendErr(ctx, f.store, func(ctx context.Context, b *backend) error { return b.Outputs.Verify(ctx, ref) })
}

// All yields each blob once, across takeovers. It remembers the blobs that it has
// yielded, because the list of the next holder begins anew.
func (f folderOutputs) All(ctx context.Context) iter.Seq2[domain.Retained, error] {
	return func(yield func(domain.Retained, error) bool) {
		yielded := map[domain.Ref]bool{}
		iterate(ctx, f.store, true,
			func(ctx context.Context, b *backend) iter.Seq2[domain.Retained, error] { return b.Outputs.All(ctx) },
			func(domain.Retained) {})(func(r domain.Retained, err error) bool {
			if err == nil && yielded[r.Ref] {
				return true
			}
			yielded[r.Ref] = true
			return yield(r, err)
		})
	}
}

// Open returns a reader of a blob. After a takeover the reader continues with the next
// holder. Its requests use ctx. The caller closes the reader.
func (f folderOutputs) Open(ctx context.Context, ref domain.Ref) (remote.Reader, error) {
	m := &failoverReader{store: f.store, ctx: ctx, ref: ref}
	err := m.open()
	if err != nil {
		return nil, err
	}
	return m, nil
}

// A failoverReader reads a blob at the current holder, and reopens it after a
// takeover. Read and Seek belong to one goroutine; ReadAt and Close are safe for
// concurrent use.
type failoverReader struct {
	store *Store
	// ctx is the context of Open, for all requests.
	ctx context.Context
	ref domain.Ref
	// at is the offset of the next Read.
	at int64
	mu struct {
		sync.Mutex
		// output is the latest reader. It stays valid for Retained after its backend
		// is lost.
		output remote.Reader
		// backend is the backend at which output is open.
		backend *backend
		closed  bool
	}
}

// open opens the blob at the current holder, or at the next one if the current holder
// is lost.
func (m *failoverReader) open() error {
	return withBackendErr(m.ctx, m.store, func(_ context.Context, b *backend) error { return m.openOn(b) })
}

// openOn opens the blob at backend b, unless the blob is already open there. It holds
// no lock during the request; if two goroutines open the blob at the same time, one of
// the two readers is closed again. It returns outputs.ErrClosed after Close. If b was
// lost during the request, it returns the reason.
func (m *failoverReader) openOn(b *backend) error {
	m.mu.Lock()
	closed, open := m.mu.closed, m.mu.backend == b
	m.mu.Unlock()
	if closed {
		return outputs.ErrClosed
	}
	if open {
		return nil
	}
	opened, err := b.Outputs.Open(m.ctx, m.ref)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.mu.closed:
		err = outputs.ErrClosed
	case b.gone.Err() != nil: // another goroutine may have opened it at the next backend
		err = context.Cause(b.gone)
	case m.mu.backend != b:
		opened, m.mu.output, m.mu.backend = m.mu.output, opened, b
	}
	if opened != nil {
		_ = opened.Close() // the reader of a lost backend, or a second one at this backend
	}
	return err
}

// current returns the latest reader. It is never nil after Open.
func (m *failoverReader) current() remote.Reader {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.output
}

// Retained returns the metadata of the blob.
func (m *failoverReader) Retained() domain.Retained { return m.current().Retained() }

// ReadAt implements io.ReaderAt. After a takeover it reopens the blob at the next
// holder and reads there.
func (m *failoverReader) ReadAt(p []byte, off int64) (int, error) {
	if m.isClosed() {
		return m.current().ReadAt(p, off) // which returns an ErrClosed
	}
	return withBackend(m.ctx, m.store, func(_ context.Context, b *backend) (int, error) {
		if err := m.openOn(b); err != nil {
			return 0, err
		}
		return m.current().ReadAt(p, off)
	})
}

// Read implements io.Reader. After a takeover it reopens the blob at the next holder
// and continues at the current offset.
func (m *failoverReader) Read(p []byte) (int, error) {
	if m.isClosed() {
		return m.current().Read(p)
	}
	return withBackend(m.ctx, m.store, func(_ context.Context, b *backend) (int, error) {
		if err := m.openOn(b); err != nil {
			return 0, err
		}
		output := m.current()
		if _, err := output.Seek(m.at, io.SeekStart); err != nil {
			return 0, err
		}
		n, err := output.Read(p)
		m.at += int64(n)
		if n > 0 {
			return n, nil // the next Read returns the error again
		}
		return n, err
	})
}

// Seek sets the offset of the next Read.
func (m *failoverReader) Seek(offset int64, whence int) (int64, error) {
	output := m.current()
	if whence == io.SeekCurrent {
		offset, whence = m.at+offset, io.SeekStart
	}
	at, err := output.Seek(offset, whence)
	if err == nil {
		m.at = at
	}
	return at, err
}

// isClosed reports whether Close was called.
func (m *failoverReader) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.closed
}

// Close closes the reader. It may be called again.
func (m *failoverReader) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	return m.mu.output.Close()
}
