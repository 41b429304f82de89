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

// Outputs returns the outputs of the folder.
func (s *Store) Outputs() remote.BlobStore { return folderOutputs{s} }

// Kept outputs are those of the folder, wherever it is open now.
type folderOutputs struct{ store *Store }

// Keep reads r again where the holder ends meanwhile: r is then an io.Seeker, or
// the output is not kept.
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

// All yields each output once, also where the holder ends meanwhile.
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

func (f folderOutputs) Open(ctx context.Context, ref domain.Ref) (remote.Reader, error) {
	m := &failoverReader{store: f.store, ctx: ctx, ref: ref}
	err := m.open()
	if err != nil {
		return nil, err
	}
	return m, nil
}

// A moving output is open to be read wherever the folder is open. Read and Seek
// belong to one goroutine; ReadAt is safe for concurrent use.
type failoverReader struct {
	store *Store
	ctx   context.Context // of Open: it is that of the reading
	ref   domain.Ref
	at    int64 // of Read
	mu    struct {
		sync.Mutex
		output  remote.Reader
		backend *backend // on which it is open
		closed  bool
	}
}

func (m *failoverReader) open() error {
	return withBackendErr(m.ctx, m.store, func(_ context.Context, b *backend) error { return m.openOn(b) })
}

// openOn opens the output on a backend, unless it is open there.
func (m *failoverReader) openOn(b *backend) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return outputs.ErrClosed
	}
	if m.mu.backend == b {
		return nil
	}
	opened, err := b.Outputs.Open(m.ctx, m.ref)
	if err != nil {
		return err
	}
	if m.mu.output != nil {
		_ = m.mu.output.Close() // of a holder that is gone
	}
	m.mu.output, m.mu.backend = opened, b
	return nil
}

func (m *failoverReader) current() remote.Reader {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.output
}

func (m *failoverReader) Retained() domain.Retained { return m.current().Retained() }

// ReadAt reads from the output, and opens it anew where the holder is gone.
func (m *failoverReader) ReadAt(p []byte, off int64) (int, error) {
	if m.isClosed() {
		return m.current().ReadAt(p, off) // which says so
	}
	return withBackend(m.ctx, m.store, func(_ context.Context, b *backend) (int, error) {
		if err := m.openOn(b); err != nil {
			return 0, err
		}
		return m.current().ReadAt(p, off)
	})
}

// Read reads on.
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
			return n, nil // an error comes again
		}
		return n, err
	})
}

// Seek says where Read reads on.
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

func (m *failoverReader) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.closed
}

// Close closes the output.
func (m *failoverReader) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	return m.mu.output.Close()
}
