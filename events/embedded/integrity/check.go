package integrity

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// A Finding is one damage that Check found. Unknown fields are zero.
type Finding struct {
	File     string          // relative to the store's folder
	Offset   int64           // in the file, counted from 1
	Position events.Position // of the record
	Through  events.Position // of the last record, if one damage covers several consecutive ones
	Stream   events.Stream
	Revision events.Revision
	Detail   string // a text for an operator
}

// A Report counts the data that a Check read.
type Report struct {
	Files       int
	Bytes       int64           // of the files
	Records     uint64          // readable records
	Streams     int             // streams whose length is known at the end
	Checkpoints int             // readable or not
	End         events.Position // of the last record
	Digest      string          // events.Digest of the records; empty if a record could not be read
	Opened      bool            // the database could be opened; if not, only its files were checked
	Closed      bool            // the store was closed cleanly, so no records are missing at its end
	Locked      bool            // the lock excluded writers; false if the lock cannot be shared
}

// Options are the options of Check. The zero Options suit most callers.
type Options struct {
	FS         vfs.FS                                // file system of the folder; nil: the disk
	Checkpoint func(name string, data []byte) error  // returns an error for a bad checkpoint; nil: checkpoints are only read
	Record     func(events.Entry)                    // is called with each readable record; nil: not called
	Progress   func(done string, bytes, total int64) // gets a phase and its progress, in bytes of files or in records; nil: not called
}

// Check reads all data in the folder of a closed store and calls found for each damage.
// It opens the database without changing it, if possible, and continues past damage.
//
// It verifies the checksums of all blocks of all files, and the seal of a store that was
// closed cleanly. It verifies each record, the order of positions and revisions, and the
// checkpoints. It compares the index with the records, in both directions.
//
// Check returns an error only if it cannot check: the context ended, the folder is not a
// store (events.ErrNotAStore), the store has a newer format (events.ErrNewerFormat), or a
// writer has it open (events.ErrInUse).
func Check(ctx context.Context, dir string, found func(Finding), c Options) (checked Report, err error) {
	if c.FS == nil {
		c.FS = pebblefiles.Disk
		if dir, err = storedir.RealPath(dir); err != nil {
			return Report{}, fmt.Errorf("check %s: %w", dir, err)
		}
	}
	if c.Progress == nil {
		c.Progress = func(string, int64, int64) {}
	}
	k := &check{Options: c, dir: dir, found: found, seed: maphash.MakeSeed()}
	if err := k.run(ctx); err != nil {
		return k.Report, fmt.Errorf("check %s: %w", dir, err)
	}
	return k.Report, nil
}

// A check is one call of Check. It belongs to one goroutine.
//
// The records are read once, in order, and the index once. The check compares both by
// sums of hashes that do not depend on the order, so it needs no memory for each
// record. Only if the sums differ does it look up each entry.
type check struct {
	Options
	Report
	dir     string                // folder of the store
	found   func(Finding)         // of Check
	damages []*pebblefiles.Damage // of the files; reads of these bytes return errors
	db      *pebble.DB
	pending Finding                           // not reported yet: the next damage may extend it
	lengths map[events.Stream]events.Revision // of the streams so far; without streams that a hole may have extended
	lost    bool                              // a record could not be read, so an unknown stream may have any length
	holes   map[uint64]bool                   // sequences of unreadable records, at most 2^20
	seed    maphash.Seed                      // of the hashes in records and index
	records uint64                            // sum of the hashes of (stream, revision, sequence) of all records
	index   uint64                            // the same sum over the index
}

// run checks the files, and then the records, the index and the checkpoints.
func (k *check) run(ctx context.Context) error {
	lock, err := k.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := k.checkFiles(ctx); err != nil {
		return err
	}
	k.db, err = layout.OpenReadOnly(pebblefiles.ReportDamages(pebblefiles.ReadOnly(k.FS), k.damages), k.FS.PathJoin(k.dir, storedir.LogName))
	if err != nil {
		k.report(Finding{File: storedir.LogName, Detail: "the database cannot be opened: " + err.Error()})
		k.flush()
		return nil
	}
	k.Opened = true
	err = k.checkRecords(ctx)
	if err == nil {
		err = k.checkIndex(ctx)
	}
	if err == nil {
		err = k.checkOthers(ctx)
	}
	k.flush()
	if closing := k.db.Close(); closing != nil && err == nil {
		k.found(Finding{File: storedir.LogName, Detail: closing.Error()})
	}
	return err
}

// lock inspects the folder and takes the shared lock, which excludes writers. If the
// lock cannot be shared, the check continues without a lock. lock reports a missing
// FORMAT file or database as a finding. It returns events.ErrInUse if a writer has the
// lock. The caller closes the lock.
func (k *check) lock() (io.Closer, error) {
	f := &storedir.Dir{FS: k.FS, Path: k.dir}
	err := f.Inspect()
	if errors.Is(err, events.ErrNotAStore) && f.HoldsLog() {
		k.report(Finding{File: storedir.FormatName, Detail: err.Error()})
		err = nil
	}
	if errors.Is(err, storedir.ErrIncomplete) {
		k.report(Finding{File: storedir.LogName, Detail: err.Error()})
		err = nil
	}
	if err == nil && f.Fresh {
		err = fmt.Errorf("%w: it has no %s file", events.ErrNotAStore, storedir.FormatName)
	}
	if err != nil {
		return nil, err
	}
	lock, err := pebblefiles.LockShared(k.FS, f.PathOf(storedir.LockName))
	if err != nil {
		return nil, fmt.Errorf("%w by %s: end that first", events.ErrInUse, f.Holder())
	}
	if lock == nil {
		return io.NopCloser(nil), nil
	}
	k.Locked = true
	return lock, nil
}

// report collects a finding before it passes it to found, so that one damage to
// consecutive records is one finding. It keeps the latest finding as the pending one. If
// the next finding is the same damage to the next record, report extends the pending
// finding. Otherwise it passes the pending finding to found and keeps the next one.
func (k *check) report(f Finding) {
	before, _ := k.pending.Through.Parts()
	at, _ := f.Position.Parts()
	if f.Through.IsZero() {
		f.Through = f.Position
	}
	same := k.pending
	same.Position, same.Through, same.Stream, same.Revision = f.Position, f.Through, f.Stream, f.Revision
	if at != 0 && before+1 == at && same == f && k.pending.Stream == "" && f.Stream == "" {
		k.pending.Through = f.Through
		return
	}
	k.flush()
	k.pending = f
}

// flush calls found with the pending finding, if there is one.
func (k *check) flush() {
	if k.pending != (Finding{}) {
		k.found(k.pending)
	}
	k.pending = Finding{}
}

// checkFiles checks all files of the database and reports each damage. It keeps the
// damages, so that the later phases skip the damaged bytes. It returns an error only if
// ctx ends or the files cannot be listed.
func (k *check) checkFiles(ctx context.Context) error {
	dir := k.FS.PathJoin(k.dir, storedir.LogName)
	list, err := pebblefiles.List(k.FS, dir)
	if err != nil {
		k.report(Finding{File: storedir.LogName, Detail: err.Error()})
		return nil
	}
	total := int64(0)
	for _, f := range list {
		total += f.Bytes
	}
	_, k.Closed = pebblefiles.Sealed(k.FS, dir)
	for d, err := range pebblefiles.Check(ctx, k.FS, dir, func(bytes int64) {
		k.Files++
		k.Bytes += bytes
		k.Progress("files", k.Bytes, total)
	}) {
		if err != nil {
			return err
		}
		k.damages = append(k.damages, d)
		k.report(Finding{File: storedir.LogName + "/" + d.File, Offset: d.Offset + 1, Detail: d.Why})
	}
	return nil
}
