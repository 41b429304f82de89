package stores

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// nodeOutputs are the outputs that this node keeps of a ledger in a database,
// through whichever process of this machine has them open. The methods are those
// of outputs.Store.
type nodeOutputs struct{ *NodeStore }

// maxMoves is how often one that asks for something follows the outputs to where
// they have gone.
const maxMoves = 5

// withLease calls use with the outputs, and again where who served them is gone.
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

// Keep reads r again, from where it stood, where who served the outputs is gone
// meanwhile: r is then an io.Seeker, or nothing is kept.
func (n nodeOutputs) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	upload := remote.NewUpload(ref, mime, r)
	return withLease(ctx, n, func(kept remote.BlobStore) (domain.Retained, error) { return upload.Try(ctx, kept) })
}

func (n nodeOutputs) Confirm(ctx context.Context, id domain.EventID) error {
	_, err := withLease(ctx, n, func(kept remote.BlobStore) (any, error) { return nil, kept.Confirm(ctx, id) })
	return err
}

// Open has the outputs stay open until the one that it returns is closed.
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

// A leasedOutput output is one of outputs that stay open for it.
type leasedOutput struct {
	remote.Reader
	release func()
}

// Close closes the output. A second Close is that of the output alone.
func (l *leasedOutput) Close() error {
	defer l.release()
	return l.Reader.Close()
}

func (n nodeOutputs) Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error) {
	return withLease(ctx, n, func(kept remote.BlobStore) (domain.Retained, error) { return kept.Stat(ctx, ref) })
}

func (n nodeOutputs) Verify(ctx context.Context, ref domain.Ref) error {
	_, err := withLease(ctx, n, func(kept remote.BlobStore) (any, error) { return nil, kept.Verify(ctx, ref) })
	return err
}

// All has the outputs stay open while it yields them. Where who serves them goes
// meanwhile it ends with an error.
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
