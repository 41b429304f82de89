package embedded

import (
	"context"
	"fmt"
	"iter"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// snapshotName is the folder of the snapshot that a backup copies. A killed backup
// leaves it; the next backup, and Compact, remove it.
const snapshotName = "snapshot"

// A Part is other data that a backup includes, such as the outputs to which records
// refer.
type Part interface {
	// Snapshot creates the folder dir with an immutable copy of the part's data. It
	// first calls before, and from then until the copy is complete the part removes
	// no data, so that the copy has everything that before saw referenced. It returns
	// the error of before.
	Snapshot(ctx context.Context, dir string, before func() error) error
}

// A Referenced part finds the references to its data in records. A backup compares the
// copy of the part with the copy of the records.
type Referenced interface {
	Part
	// Missing returns the names of the data that the records refer to and the copy in
	// the folder dir lacks. It gets the copied records in order.
	Missing(ctx context.Context, dir string, records iter.Seq2[events.Entry, error]) ([]string, error)
}

// snapshot copies the durable records into a folder, and then the parts that they refer
// to, each into a folder of its name.
func (s *Store) snapshot(ctx context.Context, dir string, parts []NamedPart) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(parts) > 0 {
		part, rest := parts[0], parts[1:]
		return part.Snapshot(ctx, s.folder.FS.PathJoin(dir, part.Name), func() error { return s.snapshot(ctx, dir, rest) })
	}
	return s.use(func() error {
		if err := s.failure(); err != nil {
			return err
		}
		if err := pebblefiles.Snapshot(s.db, s.folder.FS.PathJoin(dir, storedir.LogName)); err != nil {
			return fmt.Errorf("take a snapshot of the records: %w", layout.AsDamaged(err))
		}
		return s.failure()
	})
}
