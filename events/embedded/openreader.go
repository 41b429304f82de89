package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// ErrReadOnly is the answer to a write to a store that [OpenReader] opened.
var ErrReadOnly = errors.New("store is open to read only")

// OpenReader opens the store in a folder to read what is in it now, and changes
// nothing in the folder: not after a kill either, whose remains it reads as they
// are. It needs no right to write and no space. The store that it returns refuses
// what would write with [ErrReadOnly], and its followers wait for records that
// never come. The caller closes it.
//
// The folder's lock is shared with other readers, and held while the database is
// opened: a writer that comes meanwhile waits, and changes nothing for the reader
// afterwards. Only where the store has more tables than a quarter of the files that
// this process may have open is it held until Close. A folder that a writer
// has open is events.ErrInUse, one that a writer was making when it was killed
// events.ErrNotAStore; otherwise the errors are those of [Open]. Where the lock
// cannot be shared (the folder has no lock file, or it may not be read), the store
// is opened again until the folder did not change meanwhile, for a second.
//
// Records that no sync of a killed writer covered are synced first, where the
// file system lets a reader do that. Owner and Durability of the Config have no
// meaning.
func OpenReader(ctx context.Context, dir string, cfg Config) (*Store, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	storage := cmp.Or(cfg.FS, pebblefiles.Disk)
	if cfg.FS == nil {
		var err error
		if dir, err = realPath(dir); err != nil {
			return nil, fmt.Errorf("open store %s: %w", dir, err)
		}
	}
	f := &folder{fs: pebblefiles.ReadOnly(storage), dir: dir}
	s, p, err := pebblefiles.ReadPinned(ctx, storage, f.path(lockName), f.path(logName), func(p *pebblefiles.Pinned) (*Store, error) {
		return openPinned(f, p, cfg)
	})
	if errors.Is(err, pebblefiles.ErrLocked) {
		return nil, f.inUse()
	}
	if err != nil {
		return nil, err
	}
	s.pinned = p
	return s, nil
}

// openPinned opens a store whose files no writer changes meanwhile.
func openPinned(f *folder, p *pebblefiles.Pinned, cfg Config) (*Store, error) {
	if err := f.inspect(); err != nil {
		return nil, err
	}
	if f.fresh && !f.unfinished() {
		return nil, fmt.Errorf("open store %s: %w: it has no %s file; if a process was killed that was making a store, nothing was written to it yet",
			f.dir, events.ErrNotAStore, formatName)
	}
	f.before, _ = f.ownerRecord()
	s := newStore(f, cfg)
	s.replay = pebblefiles.NewReplay(p, s.torn)
	s.newFailStop(cfg.Logger)
	if err := s.openReadOnlyDatabase(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", f.dir, err)
	}
	return s, nil
}

// openReadOnlyDatabase opens Pebble and finds the end of the records.
func (s *Store) openReadOnlyDatabase() error {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	sealed, err := pebblefiles.Intact(s.folder.fs, s.folder.path(logName))
	if err != nil {
		return unsealed(err)
	}
	s.syncLogs()
	options := s.options(cache)
	options.ErrorIfNotExists, options.ReadOnly = true, true
	if s.db, err = pebble.Open(s.folder.path(logName), options); err != nil {
		return cmp.Or(s.failStop.Err(), openError(err))
	}
	s.failStop.Opened()
	s.replay.Done()
	return s.start(sealed)
}

// syncLogs syncs the logs, so that no reader acts on records that a power cut
// takes back. It ignores errors: a reader also reads a file system that refuses a sync.
func (s *Store) syncLogs() {
	dir := s.folder.path(logName)
	list, _ := pebblefiles.List(s.folder.fs, dir) // opening the database finds what is wrong
	for _, f := range list {
		if f.Kind != pebblefiles.Log {
			continue
		}
		if file, err := s.folder.fs.Open(s.folder.fs.PathJoin(dir, f.Name)); err == nil {
			_ = errors.Join(file.Sync(), file.Close())
		}
	}
}

// Holder returns the process that has the store in a folder open to write, and
// whether there is one. It changes no file. On a system without shared locks it also
// returns a process that was killed and left its owner file.
func Holder(dir string) (Owner, bool, error) {
	dir, err := realPath(dir)
	if err != nil {
		return Owner{}, false, err
	}
	f := &folder{fs: pebblefiles.Disk, dir: dir}
	lock, err := pebblefiles.LockShared(pebblefiles.Disk, f.path(lockName))
	if lock != nil {
		return Owner{}, false, lock.Close()
	}
	if err != nil && !errors.Is(err, pebblefiles.ErrLocked) {
		return Owner{}, false, fmt.Errorf("look who has store %s open: %w", dir, err)
	}
	s, signed := f.ownerRecord()
	return s.Owner, signed || err != nil, nil
}

// inUse says who has the folder open.
func (f *folder) inUse() error {
	return fmt.Errorf("open store %s: %w by %s: end that first, or name another store", f.dir, events.ErrInUse, f.holder())
}
