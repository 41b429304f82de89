package embedded

import (
	"context"
	"fmt"
	"iter"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// snapshotName is the folder in a store's folder that holds a snapshot while a
// backup is made of it. A backup that was killed leaves it; the next one, and
// compaction, remove it.
const snapshotName = "snapshot"

// A Part is what a backup holds beside the records: the outputs, to which
// records refer.
type Part interface {
	// Snapshot makes the folder dir, and in it a copy of what the part keeps,
	// which stays as it is. Before that it calls before, from when on until the
	// copy is made it removes nothing: what before saw referred to is in the
	// copy. It returns the error of before.
	Snapshot(ctx context.Context, dir string, before func() error) error
}

// A Referenced part knows what the records name of it. A backup compares the copy
// of the part with the copy of the records.
type Referenced interface {
	Part
	// Missing is given the records that are copied, in their order, and the folder
	// that Snapshot made. It returns the names of what they refer to and the folder
	// lacks.
	Missing(ctx context.Context, dir string, records iter.Seq2[events.Entry, error]) ([]string, error)
}

// snapshot makes a copy of all that is durable in a folder: of the records, and
// then of the parts that they refer to, each in a folder of its name.
func (s *Store) snapshot(ctx context.Context, dir string, parts []NamedPart) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(parts) > 0 {
		part, rest := parts[0], parts[1:]
		return part.Snapshot(ctx, s.folder.fs.PathJoin(dir, part.Name), func() error { return s.snapshot(ctx, dir, rest) })
	}
	return s.use(func() error {
		if err := s.failure(); err != nil {
			return err
		}
		if err := pebblefiles.Snapshot(s.db, s.folder.fs.PathJoin(dir, logName)); err != nil {
			return fmt.Errorf("take a snapshot of the records: %w", asStoreError(err))
		}
		return s.failure()
	})
}
