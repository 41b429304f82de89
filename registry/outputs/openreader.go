package outputs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// OpenReader opens the store in the folder dir read-only, as it is now, and changes
// nothing in the folder. A missing folder, or one without a database, is an empty store.
// Methods that write return an [ErrReadOnly]. If a writer has the store open, OpenReader
// returns an [ErrInUse]. A writer that opens the store later does not change the
// reader's view. Readers and writers share the lock of the folder as with
// embedded.OpenReader. The caller closes the store.
func OpenReader(ctx context.Context, dir string, cfg Config) (*Store, error) {
	storage := cmp.Or(cfg.FS, pebblefiles.Disk)
	s, p, err := pebblefiles.ReadPinned(ctx, storage, storage.PathJoin(dir, "LOCK"), dir, func(p *pebblefiles.Pinned) (*Store, error) {
		return openPinned(dir, p, cfg)
	})
	if errors.Is(err, pebblefiles.ErrLocked) {
		err = fmt.Errorf("%w: %w", ErrInUse, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open outputs in %s: %w", dir, err)
	}
	s.pinned = p
	return s, nil
}

// openPinned opens a store read-only through pinned files, which no writer changes. It
// checks the seal without changing it. For a folder without a database it creates an
// empty store in memory and opens that.
func openPinned(dir string, p *pebblefiles.Pinned, cfg Config) (*Store, error) {
	if _, err := pebblefiles.Intact(p, dir); err != nil {
		return nil, openError(err)
	}
	if p.Holds() {
		return openReadOnly(dir, p, cfg)
	}
	empty := vfs.NewMem()
	w, err := Open("outputs", Config{FS: empty, inMemory: true})
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return openReadOnly("outputs", empty, cfg)
}

// openReadOnly opens the store in the folder dir of storage for reading.
func openReadOnly(dir string, storage vfs.FS, cfg Config) (*Store, error) {
	s := &Store{dir: dir, fs: storage, logger: cfg.Logger, table: cmp.Or(cfg.memTable, memTable)}
	s.replay = pebblefiles.NewReplay(storage, s.onTear)
	s.failStop = pebblefiles.NewFailStopFS(s.replay, pebblefiles.FailStopOptions{})
	s.closing = make(chan struct{})
	s.mu.claims = map[domain.Ref]claim{}
	s.options = s.pebbleOptions()
	s.options.ReadOnly = true
	db, err := pebble.Open(dir, s.options)
	if err != nil {
		return nil, err
	}
	s.handle.db = db
	if _, err := readFormat(db); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.replay.Done()
	return s, nil
}
