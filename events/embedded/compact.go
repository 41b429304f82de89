package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// Compact rewrites the records where that takes less room or fewer reads, and
// removes what a backup that was killed left. The store is read and written to
// meanwhile. The room is free when the store is closed, at the latest. A write
// that fails ends it.
func (s *Store) Compact(ctx context.Context) error {
	ctx, cancel := s.failStop.Context(ctx)
	defer cancel()
	err := s.use(func() error {
		if s.pinned != nil {
			return ErrReadOnly
		}
		if err := s.failure(); err != nil {
			return err
		}
		if s.snapshotMu.TryLock() {
			defer s.snapshotMu.Unlock()
			if err := s.folder.fs.RemoveAll(s.folder.path(snapshotName)); err != nil {
				return err
			}
		}
		err := s.db.Compact(ctx, []byte{0}, []byte{0xff}, true)
		if failure := s.failure(); failure != nil {
			return failure
		}
		return asStoreError(err)
	})
	if err != nil {
		return fmt.Errorf("compact %s: %w", s.folder.dir, err)
	}
	return nil
}

// unsealed returns why a store whose folder is not as it was closed is not
// opened.
func unsealed(err error) error {
	if errors.Is(err, pebblefiles.ErrNewerVersion) {
		return fmt.Errorf("%w: %w", events.ErrNewerFormat, err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: log/%w; copy the whole folder, or restore a backup; a copy without log/seal opens with what can be read", ErrIncomplete, err)
	}
	return fmt.Errorf("%w: log/%w: restore a backup; a copy without log/seal opens with what can be read", events.ErrDamaged, err)
}

// Layout says what Pebble makes of the records.
type Layout struct {
	Levels []Level
	Memory int64 // bytes that are in the log and in no table yet
}

// A Level is one of the levels of tables.
type Level struct {
	Tables int64
	Bytes  int64
}

// Layout returns how the records lie.
func (s *Store) Layout() (l Layout, err error) {
	err = s.use(func() error {
		m := s.db.Metrics()
		for _, level := range m.Levels {
			l.Levels = append(l.Levels, Level{level.TablesCount, level.TablesSize})
		}
		l.Memory = int64(m.MemTable.Size)
		return nil
	})
	return l, err
}
