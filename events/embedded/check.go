package embedded

import (
	"cmp"
	"context"
	"encoding/binary"
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
	Through  events.Position // of the last of consecutive records with the same damage
	Stream   events.Stream
	Revision events.Revision
	Detail   string
}

// A CheckSummary counts the data that a check read.
type CheckSummary struct {
	Files       int
	Bytes       int64 // of the files
	Records     uint64
	Streams     int
	Checkpoints int
	End         events.Position // of the last record
	Digest      string          // events.Digest of the records; empty if a record could not be read
	Opened      bool            // the database could be opened; if not, only its files were checked
	Closed      bool            // the store was closed cleanly, so no records are missing at its end
	Locked      bool            // no process could write meanwhile; false if the lock cannot be shared
}

// CheckOptions are the options of Check. The zero CheckOptions suit most callers.
type CheckOptions struct {
	FS         vfs.FS                                // file system of the folder; nil: the disk
	Checkpoint func(name string, data []byte) error  // returns an error for a bad checkpoint; nil: checkpoints are only read
	Record     func(events.Entry)                    // is called with each readable record; nil: not called
	Progress   func(done string, bytes, total int64) // is called with a phase and its progress, in bytes of files or in records; nil: not called
}

// Check reads all data in the folder of a closed store and calls found for each damage.
// It opens the database without changing it, if possible, and continues past damage.
//
// It verifies the sums of all blocks of all files, the seal of a store that was closed
// cleanly, each record, the index against the records and the records against the index,
// the order of positions and revisions, and checkpoints. It returns an error only if it
// cannot check: the context ended, the folder is not a store (events.ErrNotAStore), or the
// store has a newer format (events.ErrNewerFormat) or is open (events.ErrInUse).
func Check(ctx context.Context, dir string, found func(Finding), c CheckOptions) (checked CheckSummary, err error) {
	if c.FS == nil {
		c.FS = pebblefiles.Disk
		if dir, err = storedir.RealPath(dir); err != nil {
			return CheckSummary{}, fmt.Errorf("check %s: %w", dir, err)
		}
	}
	if c.Progress == nil {
		c.Progress = func(string, int64, int64) {}
	}
	k := &check{CheckOptions: c, dir: dir, found: found, seed: maphash.MakeSeed()}
	if err := k.run(ctx); err != nil {
		return k.CheckSummary, fmt.Errorf("check %s: %w", dir, err)
	}
	return k.CheckSummary, nil
}

// A check is a Check in progress.
type check struct {
	CheckOptions
	CheckSummary
	dir     string
	found   func(Finding)
	damages []*pebblefiles.Damage
	db      *pebble.DB
	pending Finding // not reported yet: the next damage may extend it
	lengths map[events.Stream]events.Revision
	lost    bool // a record could not be read, so stream lengths are unknown
	holes   map[uint64]bool
	seed    maphash.Seed
	records uint64 // sum of the hashes of (stream, revision, sequence) of all records
	index   uint64 // the same sum over the index
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

// lock inspects the folder and takes a shared lock if possible, which excludes writers.
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

// report reports a finding. It merges it with the pending one if that is the same damage
// of the records before.
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

// flush calls found with the pending finding.
func (k *check) flush() {
	if k.pending != (Finding{}) {
		k.found(k.pending)
	}
	k.pending = Finding{}
}

// checkFiles checks all files of the database.
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

// sum adds the hash of a record's stream, revision and sequence to a sum that does not
// depend on the order.
func (k *check) sum(to *uint64, stream events.Stream, revision events.Revision, sequence uint64) {
	var h maphash.Hash
	h.SetSeed(k.seed)
	_, _ = h.WriteString(string(stream))
	var place [16]byte
	binary.BigEndian.PutUint64(place[:8], uint64(revision))
	binary.BigEndian.PutUint64(place[8:], sequence)
	_, _ = h.Write(place[:])
	*to += h.Sum64()
}

// checkRecords reads all records in order.
func (k *check) checkRecords(ctx context.Context) error {
	k.lengths, k.holes = map[events.Stream]events.Revision{}, map[uint64]bool{}
	end, err := k.end()
	if err != nil {
		k.report(Finding{File: storedir.LogName, Detail: "the end of the records cannot be read: " + err.Error()})
	}
	k.End = events.NewPosition(end, end)
	if sealed, _ := pebblefiles.Sealed(k.FS, k.FS.PathJoin(k.dir, storedir.LogName)); sealed > end {
		k.report(Finding{Position: events.NewPosition(end+1, end+1), Through: events.NewPosition(sealed, sealed),
			Detail: "the record is missing, and was there when the store was closed"})
	}
	digest := events.NewDigest()
	for seq := uint64(1); seq <= end; {
		seq, err = k.readRun(ctx, seq, end, digest)
		if err != nil {
			return err
		}
	}
	k.Records, k.Streams = digest.Count(), len(k.lengths)
	if !k.lost && err == nil {
		k.Digest = digest.String()
	}
	return nil
}

// end returns the sequence of the last record, from the records or, if they cannot be
// read, from the seal.
func (k *check) end() (uint64, error) {
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: layout.EntryKey(0), UpperBound: layout.EntriesEnd()})
	if err != nil {
		return 0, err
	}
	end := uint64(0)
	if it.Last() {
		end = layout.LastUint64(it.Key())
	}
	err = it.Close()
	if err != nil {
		end, _ = pebblefiles.Sealed(k.FS, k.FS.PathJoin(k.dir, storedir.LogName))
	}
	return end, err
}

// readRun reads records from a sequence on, to the first unreadable one or to the end, and
// returns the sequence at which to continue.
func (k *check) readRun(ctx context.Context, seq, end uint64, digest *events.Digest) (uint64, error) {
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: layout.EntryKey(seq), UpperBound: layout.UpperBound(end)})
	if err != nil {
		k.hole(seq, end, err.Error())
		return end + 1, nil
	}
	ok := it.First()
	for ; ok && seq <= end; ok = it.Next() {
		if seq%4096 == 0 {
			k.Progress("records", int64(seq), int64(end))
			if err := context.Cause(ctx); err != nil {
				return 0, errors.Join(err, it.Close())
			}
		}
		if at := layout.LastUint64(it.Key()); at > seq {
			k.hole(seq, at-1, "the record is missing")
			seq = at
		}
		value, err := it.ValueAndErr()
		if err != nil {
			break
		}
		k.record(value, seq, digest)
		seq++
	}
	if err := it.Close(); err != nil {
		k.hole(seq, seq, readDetail(err))
		return seq + 1, nil
	}
	if seq <= end {
		k.hole(seq, end, "the record is missing")
	}
	return end + 1, nil
}

// readDetail returns the text of a read error. It is the same for each record of a block.
func readDetail(err error) string {
	if d, ok := errors.AsType[*pebblefiles.Damage](err); ok {
		return "the record cannot be read: " + storedir.LogName + "/" + d.Error()
	}
	return "the record cannot be read: " + err.Error()
}

// hole reports records that cannot be read.
func (k *check) hole(from, through uint64, detail string) {
	k.lost = true
	for seq := from; seq <= through && len(k.holes) < 1<<20; seq++ {
		k.holes[seq] = true
	}
	clear(k.lengths) // streams may have grown in the hole
	k.report(Finding{Position: events.NewPosition(from, from), Through: events.NewPosition(through, through), Detail: detail})
}

// record checks one record.
func (k *check) record(value []byte, seq uint64, digest *events.Digest) {
	e, err := layout.Decode(value, seq)
	if err != nil {
		k.hole(seq, seq, err.Error())
		return
	}
	if err := e.Valid(); err != nil {
		k.report(Finding{Position: e.Position, Stream: e.Stream, Revision: e.Revision, Detail: err.Error()})
	}
	length, known := k.lengths[e.Stream]
	if (known || !k.lost) && e.Revision != length+1 {
		k.report(Finding{Position: e.Position, Stream: e.Stream, Revision: e.Revision,
			Detail: fmt.Sprintf("the entry of its stream before it has revision %d", length)})
	}
	k.lengths[e.Stream] = e.Revision
	k.sum(&k.records, e.Stream, e.Revision, seq)
	digest.Add(e)
	if k.Record != nil {
		k.Record(e)
	}
}

// checkIndex compares the index with the records, by sums over all entries and, if these
// differ, one by one.
func (k *check) checkIndex(ctx context.Context) error {
	differs := false
	err := k.eachIndex(ctx, func(stream events.Stream, revision events.Revision, seq uint64, value []byte) {
		if len(value) != 8 {
			differs = true
			return
		}
		k.sum(&k.index, stream, revision, seq)
	}, func(error) { differs = true })
	if err != nil || !differs && k.index == k.records {
		return err
	}
	return cmp.Or(k.indexToRecords(ctx), k.recordsToIndex(ctx))
}

// eachIndex calls do for each index entry, and broke if the index cannot be read further.
func (k *check) eachIndex(ctx context.Context, do func(events.Stream, events.Revision, uint64, []byte), broke func(error)) error {
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: []byte("s/"), UpperBound: []byte("s0")})
	if err != nil {
		broke(err)
		return nil
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%4096 == 0 {
			if err := context.Cause(ctx); err != nil {
				return errors.Join(err, it.Close())
			}
			k.Progress("index", int64(n), int64(k.Records))
		}
		value, err := it.ValueAndErr()
		if err != nil {
			break
		}
		key := it.Key()
		if len(key) < 2+1+8 || key[len(key)-9] != 0 {
			broke(fmt.Errorf("a key of %d bytes is none of an index", len(key)))
			continue
		}
		seq := uint64(0)
		if len(value) == 8 {
			seq = layout.LastUint64(value)
		}
		do(events.Stream(key[2:len(key)-9]), events.Revision(layout.LastUint64(key)), seq, value)
	}
	if err := it.Close(); err != nil {
		broke(err)
	}
	return nil
}

// indexToRecords checks the record of each index entry.
func (k *check) indexToRecords(ctx context.Context) error {
	return k.eachIndex(ctx, func(stream events.Stream, revision events.Revision, seq uint64, value []byte) {
		at := Finding{Position: events.NewPosition(seq, seq), Stream: stream, Revision: revision}
		switch e, err := k.get(seq); {
		case len(value) != 8:
			at.Position, at.Detail = events.Position{}, fmt.Sprintf("its entry in the index has %d bytes", len(value))
		case k.holes[seq]:
			at.Detail = "the record is this one, by the index"
		case err != nil:
			at.Detail = "the index names a record that is not there"
		case e.Stream != stream || e.Revision != revision:
			at.Detail = fmt.Sprintf("the index names a record that is revision %d of %s", e.Revision, e.Stream)
		default:
			return
		}
		k.report(at)
	}, func(err error) { k.report(Finding{Detail: "the index cannot be read: " + err.Error()}) })
}

// recordsToIndex checks the index entry of each record.
func (k *check) recordsToIndex(ctx context.Context) error {
	end, _ := k.End.Parts()
	for seq := uint64(1); seq <= end; seq++ {
		if seq%4096 == 0 {
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		e, err := k.get(seq)
		if err != nil {
			continue // reported already
		}
		value, closer, err := k.db.Get(layout.IndexKey(e.Stream, e.Revision))
		if err == nil {
			right := len(value) == 8 && layout.LastUint64(value) == seq
			_ = closer.Close()
			if right {
				continue
			}
		}
		k.report(Finding{Position: e.Position, Stream: e.Stream, Revision: e.Revision, Detail: "the index does not name the record"})
	}
	return nil
}

// get reads the record with a sequence.
func (k *check) get(seq uint64) (events.Entry, error) {
	value, closer, err := k.db.Get(layout.EntryKey(seq))
	if err != nil {
		return events.Entry{}, err
	}
	e, err := layout.Decode(value, seq)
	return e, errors.Join(err, closer.Close())
}

// checkOthers checks checkpoints, and reports keys that no store has.
func (k *check) checkOthers(ctx context.Context) error {
	for _, bounds := range [][2]string{{"\x00", "c/"}, {"c/", "c0"}, {"c0", "e/"}, {"e0", "s/"}, {"s0", "\xff"}} {
		it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: []byte(bounds[0]), UpperBound: []byte(bounds[1])})
		if err != nil {
			return err
		}
		for ok := it.First(); ok; ok = it.Next() {
			if err := context.Cause(ctx); err != nil {
				return errors.Join(err, it.Close())
			}
			k.checkOther(it, bounds[0] == "c/")
		}
		if err := it.Close(); err != nil {
			k.report(Finding{Detail: "what stands beside the records cannot be read: " + err.Error()})
		}
	}
	return nil
}

// checkOther checks a checkpoint, or reports an unknown key.
func (k *check) checkOther(it *pebble.Iterator, checkpoint bool) {
	value, err := it.ValueAndErr()
	switch {
	case !checkpoint:
		k.report(Finding{Detail: fmt.Sprintf("the key %q is none of a store", it.Key())})
		return
	case err == nil && k.Checkpoint != nil:
		err = k.Checkpoint(string(it.Key()[2:]), value)
	}
	k.Checkpoints++
	if err != nil {
		k.report(Finding{Detail: fmt.Sprintf("checkpoint %q: %v; it is folded again from the records", it.Key()[2:], err)})
	}
}
