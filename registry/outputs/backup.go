package outputs

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// Snapshot makes the folder dir, in one that is there and outside the store's,
// and in it a copy of everything that is kept, which stays as it is and can be
// opened as a store. Before that it calls before; from when on until the copy is
// made nothing is confirmed, dropped or pruned, so that what before saw referred
// to is in the copy. Outputs can be kept and read meanwhile. It returns the error
// of before.
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

// Compact gives back the space of outputs that were dropped or pruned. The store
// is used meanwhile. The space is free when the store is closed, at the latest. A
// write that fails ends it with an [ErrBroken].
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
