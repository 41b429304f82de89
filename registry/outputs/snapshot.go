package outputs

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// Snapshot creates the folder dir and copies the store into it. The parent of dir must
// exist, outside the folder of the store. The copy can be opened as a store. Snapshot
// first calls the function before. If before fails, Snapshot returns its error. From the
// call of before until the copy is complete, Confirm, Drop and Prune wait. So the copy
// has every blob to which the log referred when before ran. Keep and reads continue
// meanwhile.
func (s *Store) Snapshot(ctx context.Context, dir string, before func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.updates.Lock()
	defer s.updates.Unlock()
	if err := before(); err != nil {
		return err
	}
	s.failStop.Exclude(dir)
	defer s.failStop.Exclude("")
	err := s.write(func(db *pebble.DB) error { return pebblefiles.Snapshot(db, dir) })
	if err != nil {
		return fmt.Errorf("take a snapshot of the outputs: %w", err)
	}
	return nil
}

// Compact frees the space of dropped and pruned blobs while the store is in use. Some
// old files may stay until the store is closed. Compact returns an [ErrBroken] as soon
// as a write of the database fails.
func (s *Store) Compact(ctx context.Context) error {
	ctx, cancel := s.failStop.Context(ctx)
	defer cancel()
	err := s.write(func(db *pebble.DB) error { return db.Compact(ctx, []byte{0}, []byte{0xff}, true) })
	if broken := s.broken(); broken != nil {
		err = broken
	}
	if err != nil {
		return fmt.Errorf("compact outputs: %w", err)
	}
	return nil
}
