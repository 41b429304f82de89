package outputs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/domain"
)

// Confirm marks what is kept for a settlement as named by the log. It is for
// after the settlement is durable. The mark saves a later Sweep a question and
// no more: it may be lost in a crash. A settlement for which nothing is kept is
// no error.
func (s *Store) Confirm(ctx context.Context, settlement domain.EventID) error {
	_, err := s.updateHeaders(ctx, settlement, func(b *pebble.Batch, h blobHeader) error {
		if h.state != unconfirmed {
			return nil
		}
		h.state = confirmed
		return b.Set(headerKey(h.retained.Ref), h.encode(), nil)
	}, pebble.NoSync)
	if err != nil {
		return fmt.Errorf("confirm the outputs of %v: %w", settlement, err)
	}
	return nil
}

// Drop removes all that is kept for a settlement, and all that is known of it,
// as when the settlement could not be recorded. It is gone for good when Drop
// returns. A settlement for which nothing is kept is no error.
func (s *Store) Drop(ctx context.Context, settlement domain.EventID) error {
	if _, err := s.updateHeaders(ctx, settlement, deleteBlob, pebble.Sync); err != nil {
		return fmt.Errorf("drop the outputs of %v: %w", settlement, err)
	}
	return nil
}

func deleteBlob(b *pebble.Batch, h blobHeader) error {
	return errors.Join(b.Delete(headerKey(h.retained.Ref), nil), deleteChunks(b, h))
}

func deleteChunks(b *pebble.Batch, h blobHeader) error {
	if h.state == pruned {
		return nil
	}
	from, to := chunkSpan(h.blob)
	return b.DeleteRange(from, to, nil)
}

// change applies do to each head of a settlement, in one batch. It returns the
// heads as they were.
func (s *Store) updateHeaders(ctx context.Context, settlement domain.EventID, do func(*pebble.Batch, blobHeader) error, o *pebble.WriteOptions) ([]blobHeader, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.updates.Lock()
	defer s.updates.Unlock()
	from := settlementKey(settlement)
	headers, _, err := s.readPage(from, prefixEnd(from), math.MaxInt)
	if err != nil || len(headers) == 0 {
		return nil, err
	}
	return headers, s.write(func(db *pebble.DB) error {
		batch := db.NewBatch()
		defer batch.Close()
		for _, h := range headers {
			if err := do(batch, h); err != nil {
				return err
			}
		}
		return batch.Commit(o)
	})
}

// Prune removes the bytes of an output and keeps what is known of them, with
// the name of the policy that asked and when. Both are durable when it returns.
// From then on the output is a [*Pruned], also to Prune. It returns an
// [ErrNotFound] for an output that is not kept.
func (s *Store) Prune(ctx context.Context, ref domain.Ref, policy string, at time.Time) (domain.Retained, error) {
	retained, err := s.prune(ctx, ref, policy, at)
	if err != nil {
		return retained, fmt.Errorf("prune %v: %w", ref, err)
	}
	return retained, nil
}

func (s *Store) prune(ctx context.Context, ref domain.Ref, policy string, at time.Time) (domain.Retained, error) {
	if len(policy) > math.MaxUint16 {
		return domain.Retained{}, fmt.Errorf("policy name of %d bytes: the limit is %d", len(policy), math.MaxUint16)
	}
	s.updates.Lock()
	defer s.updates.Unlock()
	h, err := s.header(ctx, ref)
	if err == nil {
		err = h.tombstone()
	}
	if err != nil {
		return h.retained, err
	}
	return h.retained, s.write(func(db *pebble.DB) error {
		batch := db.NewBatch()
		defer batch.Close()
		if err := deleteChunks(batch, h); err != nil {
			return err
		}
		h.state, h.blob, h.policy, h.prunedAt = pruned, 0, policy, at
		if err := batch.Set(headerKey(ref), h.encode(), nil); err != nil {
			return err
		}
		if err := batch.Commit(pebble.Sync); err != nil || h.retained.Bytes <= loggedChunks*chunkSize {
			return err
		}
		_, err := db.AsyncFlush() // which gives back the space of the table that held it
		return err
	})
}
