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

// Swept says what a Sweep removed.
type Swept struct {
	Outputs int   // half-written ones included
	Bytes   int64 // of outputs; a half-written one counts what its chunks or its file hold
}

// Sweep removes what a crash left: outputs that are written by half, and those
// unconfirmed ones of which recorded says that no settlement names them; the
// others it confirms. It touches nothing that was kept since the store was
// opened, whose settlement may be on its way to the log. When recorded returns
// an error, Sweep ends with it and with what it had removed by then.
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

// sweepBodies removes the bodies from before the store was opened that no head
// names.
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

// nextBody returns the first body from an ID on, with its size if it has no
// name, and s.first if there is none from before the store was opened.
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

// sweepIncoming removes the files of bodies that were being written when the
// power went. It touches no file of another name.
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
