package outputs

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/domain"
)

// Swept counts the garbage that a Sweep deleted.
type Swept struct {
	Outputs int   // deleted blobs, with the partly written ones
	Bytes   int64 // of the blobs; for a partly written one, the bytes of its chunks or its file
}

// Sweep is the garbage collector. It deletes the remains of crashes:
//
//   - unconfirmed blobs whose settlement event was never recorded;
//   - chunks without a header, of a Keep that did not finish;
//   - sstables under incoming, of such a Keep.
//
// Sweep considers only old blobs: those that Keep began to write before this store
// was opened. The event of a newer blob may not be in the log yet. For each
// settlement with old unconfirmed blobs Sweep calls recorded, which reports whether
// the log has the settlement event. If the log has the event, Sweep confirms the
// blobs; otherwise it deletes them. If recorded returns an error, Sweep stops and
// returns the error and the counts so far. Sweep may run while the store is in use.
func (s *Store) Sweep(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) (Swept, error) {
	var swept Swept
	err := s.sweepUnrecorded(ctx, recorded, &swept)
	if err == nil {
		err = s.sweepChunks(ctx, &swept)
	}
	if err == nil {
		err = s.sweepIncoming(&swept)
	}
	if err != nil {
		return swept, fmt.Errorf("sweep outputs: %w", err)
	}
	return swept, nil
}

// sweepUnrecorded calls sweepSettlement once for each settlement that has an
// unconfirmed blob from before the opening of the store. The headers of one
// settlement follow each other, so comparing with the last settlement is enough.
func (s *Store) sweepUnrecorded(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error), swept *Swept) error {
	var last domain.EventID
	for h, err := range s.headers(ctx) {
		if err != nil {
			return err
		}
		id := h.retained.Ref.Settlement()
		if h.state != unconfirmed || h.blob >= s.firstNew || id == last {
			continue
		}
		last = id
		if err := s.sweepSettlement(ctx, id, recorded, swept); err != nil {
			return err
		}
	}
	return nil
}

// sweepSettlement calls recorded with a settlement. If the log has the settlement event,
// sweepSettlement confirms the unconfirmed blobs of the settlement. Otherwise it deletes
// them, except the blobs that are newer than the opening of the store.
func (s *Store) sweepSettlement(ctx context.Context, id domain.EventID, recorded func(context.Context, domain.EventID) (bool, error), swept *Swept) error {
	named, err := recorded(ctx, id)
	if err != nil {
		return fmt.Errorf("ask whether %v is on record: %w", id, err)
	}
	if named {
		return s.Confirm(ctx, id)
	}
	old := func(h blobHeader) bool { return h.state == unconfirmed && h.blob < s.firstNew }
	headers, err := s.updateHeaders(ctx, id, func(b *pebble.Batch, h blobHeader) error {
		if !old(h) {
			return nil
		}
		return deleteBlob(b, h)
	}, pebble.Sync)
	if err != nil {
		return err
	}
	for _, h := range headers {
		if old(h) {
			swept.Outputs++
			swept.Bytes += h.retained.Bytes
		}
	}
	return nil
}

// sweepChunks deletes the chunks of blobs without a header. It first collects the
// blob numbers in all headers, and then visits the blobs with chunks in the order of
// their numbers. It ends at firstNew, the first number since the opening of the
// store, so it does not delete the chunks of a running Keep.
func (s *Store) sweepChunks(ctx context.Context, swept *Swept) error {
	named := map[uint64]struct{}{}
	for h, err := range s.headers(ctx) {
		if err != nil {
			return err
		}
		named[h.blob] = struct{}{}
	}
	for id := uint64(0); ; id++ {
		next, size, err := s.firstBlob(id, named)
		if err != nil || next >= s.firstNew {
			return err
		}
		id = next
		if _, ok := named[id]; ok {
			continue
		}
		from, to := chunkSpan(id)
		if err := s.write(func(db *pebble.DB) error { return db.DeleteRange(from, to, pebble.Sync) }); err != nil {
			return err
		}
		swept.Outputs++
		swept.Bytes += size
	}
}

// firstBlob returns the lowest blob number that has chunks and is not less than the
// argument from. It returns firstNew if there is no such number below firstNew. size is
// the total size of the chunks of the blob; it is 0 for a blob in the set named, whose
// chunks have a header.
func (s *Store) firstBlob(from uint64, named map[uint64]struct{}) (id uint64, size int64, err error) {
	id = s.firstNew
	err = s.read(func(db *pebble.DB) error {
		iter, err := db.NewIter(&pebble.IterOptions{LowerBound: chunkKey(from, 0), UpperBound: chunkKey(s.firstNew, 0)})
		if err != nil {
			return redact(err)
		}
		defer iter.Close()
		for iter.First(); iter.Valid(); iter.Next() {
			at := binary.BigEndian.Uint64(iter.Key()[1:])
			if id == s.firstNew {
				id = at
			}
			if _, ok := named[at]; ok || at != id {
				break
			}
			lazy := iter.LazyValue()
			size += int64(lazy.Len()) - crcSize
		}
		return corruptionError(iter.Error())
	})
	return id, size, err
}

// sweepIncoming deletes the sstables under incoming that no Keep is writing. It
// leaves files with other names alone.
func (s *Store) sweepIncoming(swept *Swept) error {
	names, err := s.fs.List(s.incoming())
	if err != nil {
		return redact(err)
	}
	for _, name := range names {
		number, ours := strings.CutSuffix(name, incomingSuffix)
		id, err := strconv.ParseUint(number, 10, 64)
		if !ours || err != nil || s.isWriting(id) {
			continue
		}
		if err := s.sweepFile(name, swept); err != nil {
			return err
		}
	}
	return nil
}

// sweepFile deletes one file under incoming and adds it to the counts.
func (s *Store) sweepFile(name string, swept *Swept) error {
	path := s.fs.PathJoin(s.incoming(), name)
	file, err := s.fs.Stat(path)
	if err == nil {
		err = s.fs.Remove(path)
	}
	if err != nil {
		return redact(err)
	}
	swept.Outputs++
	swept.Bytes += file.Size()
	return nil
}
