package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// Compact rewrites all tables, so that they take less space and fewer reads. It also
// removes the snapshot that a killed backup left. The store stays usable. Old tables
// are removed when no reader uses them, at the latest when the store is closed. If
// ctx ends, Compact returns the cause. It returns ErrReadOnly in a store that
// OpenReader opened, and the failure of the store after a failed write.
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
			if err := s.folder.FS.RemoveAll(s.folder.PathOf(snapshotName)); err != nil {
				return err
			}
		}
		err := s.db.Compact(ctx, []byte{0}, []byte{0xff}, true)
		if failure := s.failure(); failure != nil {
			return failure
		}
		return layout.AsDamaged(err)
	})
	if err != nil {
		return fmt.Errorf("compact %s: %w", s.folder.Path, err)
	}
	return nil
}

// unsealed converts an error of comparing the files of a store with its seal. It returns
// events.ErrNewerFormat for files of a newer version, storedir.ErrIncomplete for a
// missing file, and events.ErrDamaged for any other error.
func unsealed(err error) error {
	if errors.Is(err, pebblefiles.ErrNewerVersion) {
		return fmt.Errorf("%w: %w", events.ErrNewerFormat, err)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: log/%w; copy the whole folder, or restore a backup; a copy without log/seal opens with what can be read", storedir.ErrIncomplete, err)
	}
	return fmt.Errorf("%w: log/%w: restore a backup; a copy without log/seal opens with what can be read", events.ErrDamaged, err)
}

// A Layout describes the tables of the database.
type Layout struct {
	Levels []Level
	Memory int64 // bytes of records that are in the log and not yet in a table
}

// A Level is one level of tables.
type Level struct {
	Tables int64 // number of tables
	Bytes  int64 // their size on the disk
}

// Layout returns the number and size of the tables in each level.
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
