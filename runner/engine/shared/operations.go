package shared

import (
	"context"
	"errors"
	"iter"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// withBackend calls do with the current backend. If that backend is lost during the
// call, withBackend calls do again with the next backend. do must therefore be safe to
// repeat: a read, or a write that the store recognises when it is repeated. withBackend
// returns the result of the last call of do, or the error of the search for a backend.
func withBackend[T any](ctx context.Context, s *Store, do func(context.Context, *backend) (T, error)) (T, error) {
	for {
		b, err := s.backend(ctx)
		if err != nil {
			var zero T
			return zero, err
		}
		bound, free := b.withContext(ctx, true)
		result, err := do(bound, b)
		free()
		if !b.lostBy(ctx, err) {
			return result, err
		}
	}
}

// withBackendErr is withBackend for an operation without a result.
func withBackendErr(ctx context.Context, s *Store, do func(context.Context, *backend) error) error {
	_, err := withBackend(ctx, s, func(ctx context.Context, b *backend) (struct{}, error) { return struct{}{}, do(ctx, b) })
	return err
}

// Append implements events.Store. If the holder ended with the outcome unknown, Append
// repeats the append with the next holder, which recognises a repetition by its IDs
// and revision.
func (s *Store) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	return withBackendErr(ctx, s, func(ctx context.Context, b *backend) error { return b.Log.Append(ctx, stream, after, records...) })
}

// iterate yields the values that read returns for the current backend. When that
// backend is lost, iterate calls read with the next one. It passes each value to
// lastBeats before it yields the value, so that read can start behind the last value.
// If limited is not set, iterate waits for a silent holder as long as ctx lasts.
func iterate[T any](ctx context.Context, s *Store, limited bool, read func(context.Context, *backend) iter.Seq2[T, error], lastBeats func(T)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		for {
			b, err := s.backend(ctx)
			if err != nil {
				yield(zero, err)
				return
			}
			if !iterateOne(ctx, b, limited, read, func(v T, err error) bool {
				if err == nil {
					lastBeats(v)
				}
				return yield(v, err)
			}) {
				return
			}
		}
	}
}

// iterateOne yields the values of one backend. more reports whether the loop must
// continue with the next backend. more is false at the end of the values, after an
// error that was yielded, and after the body has left the loop.
func iterateOne[T any](ctx context.Context, b *backend, limited bool, read func(context.Context, *backend) iter.Seq2[T, error], yield func(T, error) bool) (more bool) {
	bound, free := b.withContext(ctx, limited)
	defer free()
	for v, err := range read(bound, b) {
		if b.lostBy(ctx, err) {
			return true
		}
		if !yield(v, err) {
			return false
		}
	}
	return false
}

// Read implements events.Store. After a takeover, Read and the other bounded loops end
// where the log of the next holder ends.
func (s *Store) Read(ctx context.Context, stream events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		from := after
		iterate(ctx, s, true,
			func(ctx context.Context, b *backend) iter.Seq2[events.Entry, error] {
				return b.Log.Read(ctx, stream, from)
			},
			func(e events.Entry) { from = e.Revision })(yield)
	}
}

// ReadAll implements events.Store.
func (s *Store) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		from := after
		iterate(ctx, s, true,
			func(ctx context.Context, b *backend) iter.Seq2[events.Entry, error] { return b.Log.ReadAll(ctx, from) },
			func(e events.Entry) { from = e.Position })(yield)
	}
}

// Follow implements events.Store. It waits for an unresponsive holder as long as ctx
// lasts.
func (s *Store) Follow(ctx context.Context, after events.Position, options ...events.Following) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		from, options := after, options
		if len(options) == 1 && options[0].CaughtUp != nil {
			options = []events.Following{resumed(options[0], &from)}
		}
		iterate(ctx, s, false,
			func(ctx context.Context, b *backend) iter.Seq2[events.Entry, error] {
				return b.Log.Follow(ctx, from, options...)
			},
			func(e events.Entry) { from = e.Position })(yield)
	}
}

// resumed returns a copy of f for a loop that reads through several backends. CaughtUp
// of the copy stores each position in from, so that the next backend continues there.
// It calls f.CaughtUp only for a position that was not reported before, since the next
// backend may report the same position again.
func resumed(f events.Following, from *events.Position) events.Following {
	caughtUp, notified, last := f.CaughtUp, false, events.Position{}
	f.CaughtUp = func(at events.Position) {
		if notified && at.Compare(last) <= 0 {
			return
		}
		notified, last, *from = true, at, at
		caughtUp(at)
	}
	return f
}

// Scan implements events.Scanner.
func (s *Store) Scan(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return query(ctx, s, q, events.Scanner.Scan, func(e events.Entry) events.Position { return e.Position })
}

// Lend implements events.Scanner. An entry is valid until the next one.
func (s *Store) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return query(ctx, s, q, events.Scanner.Lend, func(e events.Entry) events.Position { return e.Position })
}

// Headers implements events.Scanner.
func (s *Store) Headers(ctx context.Context, q events.Query) iter.Seq2[events.Header, error] {
	return query(ctx, s, q, events.Scanner.Headers, func(h events.Header) events.Position { return h.Position })
}

// query yields the values that method returns for q. The function at returns the
// position of a value. After a takeover, query continues in the next backend behind the
// last such position, in the direction of q.
func query[T any](ctx context.Context, s *Store, q events.Query, method func(events.Scanner, context.Context, events.Query) iter.Seq2[T, error], at func(T) events.Position) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := q
		iterate(ctx, s, true,
			func(ctx context.Context, b *backend) iter.Seq2[T, error] { return method(b.Log, ctx, left) },
			func(v T) { left.After = at(v) })(yield)
	}
}

// Split implements events.Scanner.
func (s *Store) Split(ctx context.Context, q events.Query, parts int) ([]events.Query, error) {
	return withBackend(ctx, s, func(ctx context.Context, b *backend) ([]events.Query, error) { return b.Log.Split(ctx, q, parts) })
}

// SaveCheckpoint replaces the data under a name in the folder. The data are durable
// after the next Sync.
func (s *Store) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	return withBackendErr(ctx, s, func(ctx context.Context, b *backend) error { return b.Checkpoints.SaveCheckpoint(ctx, name, data) })
}

// LoadCheckpoint returns the data under a name in the folder, or nil without an error
// if there is no checkpoint of this name.
func (s *Store) LoadCheckpoint(ctx context.Context, name string) ([]byte, error) {
	return withBackend(ctx, s, func(ctx context.Context, b *backend) ([]byte, error) { return b.Checkpoints.LoadCheckpoint(ctx, name) })
}

// Sync returns nil when all data that were appended or saved before are durable. An
// exception are checkpoints that were saved at a holder that has been killed since.
func (s *Store) Sync(ctx context.Context) error {
	return withBackendErr(ctx, s, func(ctx context.Context, b *backend) error { return b.Checkpoints.Sync(ctx) })
}

// errReadOnly is the error of Backup in a process that only reads, while there is no
// holder.
var errReadOnly = errors.New("no process serves the folder, and this one opened it for reading only")

// Backup has the holder write a backup into dir, an absolute path, and returns when the
// backup is complete.
func (s *Store) Backup(ctx context.Context, dir string) (BackupReport, error) {
	return withBackend(ctx, s, func(ctx context.Context, b *backend) (BackupReport, error) {
		switch {
		case b.owned != nil:
			return b.owned.backup(ctx, dir)
		case b.client != nil:
			return b.client.Backup(ctx, dir)
		}
		return BackupReport{}, errReadOnly
	})
}

// Holds reports whether this process is the holder. The answer can be outdated when
// Holds returns.
func (s *Store) Holds() bool { return s.owned() != nil }

// owned returns the folder if this process is the holder, and nil otherwise.
func (s *Store) owned() *ownedFolder {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.current.gone.Err() != nil {
		return nil
	}
	return s.mu.current.owned
}

// Node returns the address at which other machines can fetch the outputs of this
// process, for the start event of the process. If this process is a client, that is the
// address of the holder, or an empty string if the holder serves no other machines. In
// the holder itself it is an empty string.
func (s *Store) Node() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.mu.current.client; c != nil {
		return c.Endpoint.Node
	}
	return ""
}

// Before returns the killed holders whose work was not recovered when this process
// became the holder. It returns nil if this process is not the holder.
func (s *Store) Before() []domain.ProcessID {
	if h := s.owned(); h != nil {
		return h.before
	}
	return nil
}

// Recovered removes the killed holders, which Before returns, from the endpoint. The
// caller has recovered their work. Recovered has no effect if this process is not the
// holder any more.
func (s *Store) Recovered() error {
	if h := s.owned(); h != nil {
		return h.holder.UpdateEndpoint(func(e *Endpoint) { e.Before = nil })
	}
	return nil
}

// Sweep deletes blobs that crashes left behind, like [outputs.Store.Sweep]. If this
// process is not the holder, it deletes nothing and returns the zero Swept. It ignores
// blobs that were stored since this process became the holder. The caller ensures that
// no older blob belongs to a running process.
func (s *Store) Sweep(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) (outputs.Swept, error) {
	h := s.owned()
	if h == nil {
		return outputs.Swept{}, nil
	}
	return h.outputs.Sweep(ctx, recorded)
}
