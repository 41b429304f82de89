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
func (s *Store) Outputs() remote.Outputs { return kept{s} }

// Kept outputs are those of the folder, wherever it is open now.
type kept struct{ store *Store }

// Keep reads r again where the holder ends meanwhile: r is then an io.Seeker, or
// the output is not kept.
func (k kept) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	upload := remote.NewUpload(ref, mime, r)
	return on(ctx, k.store, func(ctx context.Context, b *backend) (domain.Retained, error) { return upload.Try(ctx, b.Outputs) })
}

func (k kept) Confirm(ctx context.Context, settlement domain.EventID) error {
	return done(ctx, k.store, func(ctx context.Context, b *backend) error { return b.Outputs.Confirm(ctx, settlement) })
}

func (k kept) Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error) {
	return on(ctx, k.store, func(ctx context.Context, b *backend) (domain.Retained, error) { return b.Outputs.Stat(ctx, ref) })
}

func (k kept) Verify(ctx context.Context, ref domain.Ref) error {
	return done(ctx, k.store, func(ctx context.Context, b *backend) error { return b.Outputs.Verify(ctx, ref) })
}

// All yields each output once, also where the holder ends meanwhile.
func (k kept) All(ctx context.Context) iter.Seq2[domain.Retained, error] {
	return func(yield func(domain.Retained, error) bool) {
		yielded := map[domain.Ref]bool{}
		along(ctx, k.store, true,
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

func (k kept) Open(ctx context.Context, ref domain.Ref) (remote.Output, error) {
	m := &moving{store: k.store, ctx: ctx, ref: ref}
	err := m.open()
	if err != nil {
		return nil, err
	}
	return m, nil
}

// A moving output is open to be read wherever the folder is open. Read and Seek
// belong to one goroutine; ReadAt is safe for concurrent use.
type moving struct {
	store *Store
	ctx   context.Context // of Open: it is that of the reading
	ref   domain.Ref
	at    int64 // of Read
	mu    struct {
		sync.Mutex
		output  remote.Output
		backend *backend // on which it is open
		closed  bool
	}
}

func (m *moving) open() error {
	return done(m.ctx, m.store, func(_ context.Context, b *backend) error { return m.openOn(b) })
}

// openOn opens the output on a backend, unless it is open there.
func (m *moving) openOn(b *backend) error {
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

func (m *moving) current() remote.Output {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.output
}

func (m *moving) Retained() domain.Retained { return m.current().Retained() }

// ReadAt reads from the output, and opens it anew where the holder is gone.
func (m *moving) ReadAt(p []byte, off int64) (int, error) {
	if m.isClosed() {
		return m.current().ReadAt(p, off) // which says so
	}
	return on(m.ctx, m.store, func(_ context.Context, b *backend) (int, error) {
		if err := m.openOn(b); err != nil {
			return 0, err
		}
		return m.current().ReadAt(p, off)
	})
}

// Read reads on.
func (m *moving) Read(p []byte) (int, error) {
	if m.isClosed() {
		return m.current().Read(p)
	}
	return on(m.ctx, m.store, func(_ context.Context, b *backend) (int, error) {
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
func (m *moving) Seek(offset int64, whence int) (int64, error) {
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

func (m *moving) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.closed
}

// Close closes the output.
func (m *moving) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	return m.mu.output.Close()
}
