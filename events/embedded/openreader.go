package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// ErrReadOnly is the error of a write to a store that [OpenReader] opened.
var ErrReadOnly = errors.New("store is open to read only")

// OpenReader opens the store in a folder for reading, as of now. It changes nothing in
// the folder, even if the last writer was killed. It needs neither write permission nor
// free space. Writes to the returned store fail with [ErrReadOnly]. A follower of the
// store yields the records that the store has, and then waits until its context ends or
// the store is closed. The caller closes the store.
//
// While OpenReader opens the database, it holds the folder's lock, which it shares with
// other readers and for which a writer waits. It then releases the lock. It keeps the
// lock until Close only if the store has more tables than a quarter of the files that
// this process may open. Later changes of a writer are not visible to the reader.
//
// OpenReader returns events.ErrInUse if a writer has the folder open,
// events.ErrNotAStore if a writer was killed while it created the store, and otherwise
// the errors of [Open]. If the lock file is missing or cannot be read, no lock keeps
// writers away. OpenReader then opens the store repeatedly, for up to a second, until
// the folder has not changed during an opening.
//
// OpenReader syncs the records that a killed writer had not synced, if the file system
// allows a reader to sync. It ignores Owner and Durability of the Config.
func OpenReader(ctx context.Context, dir string, cfg Config) (*Store, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	storage := cmp.Or(cfg.FS, pebblefiles.Disk)
	if cfg.FS == nil {
		var err error
		if dir, err = storedir.RealPath(dir); err != nil {
			return nil, fmt.Errorf("open store %s: %w", dir, err)
		}
	}
	f := &storedir.Dir{FS: pebblefiles.ReadOnly(storage), Path: dir}
	s, p, err := pebblefiles.ReadPinned(ctx, storage, f.PathOf(storedir.LockName), f.PathOf(storedir.LogName), func(p *pebblefiles.Pinned) (*Store, error) {
		return openPinned(f, p, cfg)
	})
	if errors.Is(err, pebblefiles.ErrLocked) {
		return nil, f.InUse()
	}
	if err != nil {
		return nil, err
	}
	s.pinned = p
	return s, nil
}

// openPinned opens a store through pinned files, which no writer changes. It returns
// ErrNotAStore if the folder has no format file.
func openPinned(f *storedir.Dir, p *pebblefiles.Pinned, cfg Config) (*Store, error) {
	if err := f.Inspect(); err != nil {
		return nil, err
	}
	if f.Fresh && !f.Unfinished() {
		return nil, fmt.Errorf("open store %s: %w: it has no %s file; if a process was killed that was making a store, nothing was written to it yet",
			f.Path, events.ErrNotAStore, storedir.FormatName)
	}
	f.Before, _ = f.OwnerRecord()
	s := newStore(f, cfg)
	s.replay = pebblefiles.NewReplay(p, s.torn)
	s.newFailStop(cfg.Logger)
	if err := s.openReadOnlyDatabase(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", f.Path, err)
	}
	return s, nil
}

// openReadOnlyDatabase checks the seal, syncs the logs, opens Pebble for reading and
// finds the last record. It writes to no file.
func (s *Store) openReadOnlyDatabase() error {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	sealed, err := pebblefiles.Intact(s.folder.FS, s.folder.PathOf(storedir.LogName))
	if err != nil {
		return unsealed(err)
	}
	s.syncLogs()
	options := s.options(cache)
	options.ErrorIfNotExists, options.ReadOnly = true, true
	if s.db, err = pebble.Open(s.folder.PathOf(storedir.LogName), options); err != nil {
		return cmp.Or(s.failStop.Err(), openError(err))
	}
	s.failStop.Opened()
	s.replay.Done()
	return s.start(sealed)
}

// syncLogs syncs the logs, so that a reader does not act on records that a power cut
// removes. It ignores errors, because some file systems refuse a sync to a reader.
func (s *Store) syncLogs() {
	dir := s.folder.PathOf(storedir.LogName)
	list, _ := pebblefiles.List(s.folder.FS, dir) // opening the database reports an error
	for _, f := range list {
		if f.Kind != pebblefiles.Log {
			continue
		}
		if file, err := s.folder.FS.Open(s.folder.FS.PathJoin(dir, f.Name)); err == nil {
			_ = errors.Join(file.Sync(), file.Close())
		}
	}
}
