package embedded

import (
	"context"
	"fmt"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/backup"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// snapshotName is the folder of the snapshot that a backup copies. A killed backup
// leaves it; the next backup, and Compact, remove it.
const snapshotName = "snapshot"

// Backup makes a backup of the store in the folder dst. See [backup.Make].
func (s *Store) Backup(ctx context.Context, dst string, components ...backup.NamedComponent) (backup.Manifest, backup.Written, error) {
	return backup.Make(ctx, backup.Source{
		FS: s.folder.FS, Dir: s.folder.Path, SnapshotDir: s.folder.PathOf(snapshotName), Snapshot: s.snapshot, Acquire: s.acquireSnapshot,
	}, dst, components...)
}

// acquireSnapshot reserves the snapshot folder for one backup, until the caller releases
// it.
func (s *Store) acquireSnapshot() (release func(), err error) {
	if !s.snapshotMu.TryLock() {
		return nil, fmt.Errorf("%w by another backup of it: wait for that", events.ErrInUse)
	}
	return s.snapshotMu.Unlock, nil
}

// snapshot makes a snapshot of the durable records in the new folder dir, while
// appends continue. If the store is paused or stopped, it returns the failure.
func (s *Store) snapshot(_ context.Context, dir string) error {
	return s.use(func() error {
		if err := s.failure(); err != nil {
			return err
		}
		if err := pebblefiles.Snapshot(s.db, dir); err != nil {
			return fmt.Errorf("take a snapshot of the records: %w", layout.AsDamaged(err))
		}
		return s.failure()
	})
}
