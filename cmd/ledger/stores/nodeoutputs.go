package stores

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// nodeOutputs is the [remote.BlobStore] of this node's outputs for a ledger in a database.
// Each method acquires the outputs from the NodeStore, calls the method of outputs.Store
// with the same name, and releases them.
type nodeOutputs struct{ *NodeStore }

// maxMoves is the greatest number of attempts of one operation. An attempt fails if the
// process that serves the outputs ends meanwhile.
const maxMoves = 5

// withLease acquires the outputs and calls the function use with them. If the error of
// use shows that the process that served the outputs has ended, withLease acquires them
// again and repeats the call, up to maxMoves calls in total. Repeated calls of use must
// therefore be harmless. withLease returns the result and the error of the last call.
func withLease[T any](ctx context.Context, n nodeOutputs, use func(remote.BlobStore) (T, error)) (result T, err error) {
	for range maxMoves {
		var t *outputsLease
		if t, err = n.acquire(ctx); err != nil {
			return result, err
		}
		result, err = use(t)
		t.release()
		if err == nil || ctx.Err() != nil || !n.isGone(t, err) {
			break
		}
	}
	return result, err
}

// Keep stores the bytes of r. If the serving process dies meanwhile, Keep moves r back
// to the offset at which r began and retries. If r is not an io.Seeker, Keep returns an
// outputs.ErrNotKept instead.
func (n nodeOutputs) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	upload := remote.NewUpload(ref, mime, r)
	return withLease(ctx, n, func(kept remote.BlobStore) (domain.Retained, error) { return upload.Try(ctx, kept) })
}

// Confirm confirms the outputs of a settlement, after it is on record.
func (n nodeOutputs) Confirm(ctx context.Context, id domain.EventID) error {
	_, err := withLease(ctx, n, func(kept remote.BlobStore) (any, error) { return nil, kept.Confirm(ctx, id) })
	return err
}

// Open opens an output for reading. The Reader holds a lease, so the outputs stay open until
// the caller closes it.
func (n nodeOutputs) Open(ctx context.Context, ref domain.Ref) (remote.Reader, error) {
	return withLease(ctx, n, func(kept remote.BlobStore) (remote.Reader, error) {
		o, err := kept.Open(ctx, ref)
		if err != nil {
			return nil, err
		}
		stay, err := n.acquire(ctx)
		if err != nil {
			return nil, errors.Join(err, o.Close())
		}
		return &leasedOutput{o, stay.release}, nil
	})
}

// A leasedOutput is a Reader that releases its lease of the outputs at Close.
type leasedOutput struct {
	remote.Reader
	// release may be called again.
	release func()
}

// Close closes the output and releases the lease. A second Close only closes the output
// again.
func (l *leasedOutput) Close() error {
	defer l.release()
	return l.Reader.Close()
}

// Stat returns the metadata of an output.
func (n nodeOutputs) Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error) {
	return withLease(ctx, n, func(kept remote.BlobStore) (domain.Retained, error) { return kept.Stat(ctx, ref) })
}

// Verify reads an output and returns an error if its bytes do not match its metadata.
func (n nodeOutputs) Verify(ctx context.Context, ref domain.Ref) error {
	_, err := withLease(ctx, n, func(kept remote.BlobStore) (any, error) { return nil, kept.Verify(ctx, ref) })
	return err
}

// All yields the metadata of each output. The outputs stay open until the loop ends. If
// the serving process dies, All yields the error and ends: a retry would yield some
// outputs twice.
func (n nodeOutputs) All(ctx context.Context) iter.Seq2[domain.Retained, error] {
	return func(yield func(domain.Retained, error) bool) {
		t, err := n.acquire(ctx)
		if err != nil {
			yield(domain.Retained{}, err)
			return
		}
		defer t.release()
		for r, err := range t.All(ctx) {
			if err != nil {
				n.isGone(t, err)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}
