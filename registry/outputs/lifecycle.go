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

// Confirm marks the blobs of a settlement as referenced by the log. The caller calls it
// after the settlement event is durable. The mark only saves a lookup in a later Sweep,
// so Confirm does not sync it and a crash may lose it. A settlement without blobs is no
// error.
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

// Drop deletes the blobs of a settlement and their headers, for a settlement that could
// not be recorded. The deletion is durable when Drop returns. A settlement without
// blobs is no error.
func (s *Store) Drop(ctx context.Context, settlement domain.EventID) error {
	if _, err := s.updateHeaders(ctx, settlement, deleteBlob, pebble.Sync); err != nil {
		return fmt.Errorf("drop the outputs of %v: %w", settlement, err)
	}
	return nil
}

// deleteBlob adds the deletion of a header and its chunks to a batch.
func deleteBlob(b *pebble.Batch, h blobHeader) error {
	return errors.Join(b.Delete(headerKey(h.retained.Ref), nil), deleteChunks(b, h))
}

// deleteChunks adds the deletion of the chunks of a blob to a batch. A pruned blob
// has no chunks.
func deleteChunks(b *pebble.Batch, h blobHeader) error {
	if h.state == pruned {
		return nil
	}
	from, to := chunkSpan(h.blob)
	return b.DeleteRange(from, to, nil)
}

// updateHeaders changes the headers of a settlement in one batch. It calls do for each
// header, and do adds its changes to the batch. The options o decide whether the commit
// is synced. updateHeaders holds the mutex updates, so that no other change of headers
// comes between the read and the commit. It returns the headers as they were before the
// change. A settlement without blobs is no error.
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

// Prune deletes the bytes of a blob. It keeps the metadata of the blob, and stores the
// name of the policy and the time that the caller passes as at. The deletion and the
// stored values are durable when Prune returns. From then on all reads of the blob, and
// Prune itself, return a [*PrunedError]. Prune returns an [ErrNotFound] for an unknown
// ref.
func (s *Store) Prune(ctx context.Context, ref domain.Ref, policy string, at time.Time) (domain.Retained, error) {
	retained, err := s.prune(ctx, ref, policy, at)
	if err != nil {
		return retained, fmt.Errorf("prune %v: %w", ref, err)
	}
	return retained, nil
}

// prune does the work of Prune, which adds the name of the operation and the ref to the
// errors of prune.
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
		_, err := db.AsyncFlush() // so that compactions free the ingested sstable
		return err
	})
}
