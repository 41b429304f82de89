package outputs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// A Corruption is one damaged place in a store. Fields that do not apply are zero.
type Corruption struct {
	File   string     // in the store's folder
	Offset int64      // in the file, from 1: the first byte is 1
	Ref    domain.Ref // the damaged blob; zero for damage to a file
	Detail string     // description for an operator
}

// A CheckReport counts the files and blobs that a Check read.
type CheckReport struct {
	Files   int
	Bytes   int64 // size of the files
	Outputs int   // stored blobs
	Pruned  int   // pruned blobs
	Kept    int64 // bytes of the stored blobs
	Opened  bool  // the database could be opened; if not, only the files were looked at
	Closed  bool  // the store was closed in order, so the files are complete
}

// Check reads everything in the folder of a store that no process has open, and calls
// report for each damage: it verifies the checksums of all blocks of all files, the
// seal of a store that was closed in order, each header, and the digest of each blob.
// It changes nothing and continues after damage. It calls progress, if not nil, with
// the number of bytes read so far and in total.
//
// Check returns an error only if it could not read: the context ended, the folder
// cannot be listed, or a process has the store open (an [ErrInUse]). If there is no
// folder, the report is zero.
func Check(ctx context.Context, dir string, storage vfs.FS, report func(Corruption), progress func(bytes, total int64)) (CheckReport, error) {
	if storage == nil {
		storage = pebblefiles.Disk
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	k := &checker{fs: storage, dir: dir, report: report, progress: progress}
	if err := k.run(ctx); err != nil {
		return k.CheckReport, fmt.Errorf("check outputs in %s: %w", dir, err)
	}
	return k.CheckReport, nil
}

// Inventory returns the metadata of each blob, pruned ones included, in the folder of
// a store that no process has open. It skips damaged headers. It reads no chunk and
// changes no file.
func Inventory(ctx context.Context, dir string, storage vfs.FS) (map[domain.Ref]domain.Retained, error) {
	k := &checker{fs: cmp.Or[vfs.FS](storage, pebblefiles.Disk), dir: dir}
	if err := k.open(); err != nil {
		return nil, fmt.Errorf("list the outputs in %s: %w", dir, err)
	}
	known := map[domain.Ref]domain.Retained{}
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: []byte{headerKind}, UpperBound: []byte{headerKind + 1}})
	if err != nil {
		return nil, errors.Join(err, k.db.Close())
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		if h, broke := headerAt(it); broke == nil {
			known[h.retained.Ref] = h.retained
		}
		err = context.Cause(ctx)
	}
	if err = errors.Join(err, it.Close(), k.db.Close()); err != nil {
		return nil, fmt.Errorf("list the outputs in %s: %w", dir, err)
	}
	return known, nil
}

// A checker is one run of Check. It belongs to one goroutine.
type checker struct {
	CheckReport
	fs       vfs.FS
	dir      string
	report   func(Corruption) // of Check
	progress func(bytes, total int64)
	damages  []*pebblefiles.Damage // of the files, found before the database is opened
	db       *pebble.DB            // set by open
}

// run checks the files, then opens the database read-only and checks its contents. It
// holds the shared lock of the folder, so no writer changes the files. If the database
// cannot be opened, run reports this as a damage and returns nil.
func (k *checker) run(ctx context.Context) error {
	list, err := pebblefiles.List(k.fs, k.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lock, err := pebblefiles.LockShared(k.fs, k.fs.PathJoin(k.dir, "LOCK"))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	if lock != nil {
		defer lock.Close()
	}
	if err := k.checkFiles(ctx, list); err != nil {
		return err
	}
	if err := k.open(); err != nil {
		if len(list) > 1 {
			k.report(Corruption{Detail: "the database cannot be opened: " + err.Error()})
		}
		return nil
	}
	k.Opened = true
	err = k.checkHeaders(ctx)
	if closing := k.db.Close(); closing != nil && err == nil {
		k.report(Corruption{Detail: closing.Error()})
	}
	return err
}

// checkFiles verifies the checksums in all files and the seal. It reports each
// damage. It also keeps the damages, so that the database is then opened without the
// damaged blocks.
func (k *checker) checkFiles(ctx context.Context, list []pebblefiles.File) error {
	total := int64(0)
	for _, f := range list {
		total += f.Bytes
	}
	_, k.Closed = pebblefiles.Sealed(k.fs, k.dir)
	fileDone := func(bytes int64) {
		k.Files++
		k.Bytes += bytes
		k.progress(k.Bytes, total)
	}
	for d, err := range pebblefiles.Check(ctx, k.fs, k.dir, fileDone) {
		if err != nil {
			return err
		}
		k.damages = append(k.damages, d)
		k.report(Corruption{File: d.File, Offset: d.Offset + 1, Detail: d.Why})
	}
	return nil
}

// open opens the database read-only, with damaged blocks replaced by errors, and sets
// k.db. The caller closes it.
func (k *checker) open() (err error) {
	k.db, err = pebble.Open(k.dir, &pebble.Options{
		FS: pebblefiles.ReportDamages(pebblefiles.ReadOnly(k.fs), k.damages), ReadOnly: true, ErrorIfNotExists: true, Logger: pebblefiles.NewFailStopFS(k.fs, pebblefiles.FailStopOptions{}),
		FormatMajorVersion: pebblefiles.FormatVersion,
		EventListener:      &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	})
	return err
}

// checkHeaders verifies the format of the store, each header, and the blob of each
// header. It reports an unreadable header and continues with the next one. It returns an
// error only if ctx ends: the cause of ctx.
func (k *checker) checkHeaders(ctx context.Context) error {
	value, closer, err := k.db.Get(formatKey)
	switch {
	case err != nil:
		k.report(Corruption{Detail: "the format cannot be read: " + err.Error()})
	case len(value) != 1 || value[0] != format:
		k.report(Corruption{Detail: fmt.Sprintf("the format is %x, and this program knows %d", value, format)})
	}
	if err == nil {
		_ = closer.Close()
	}
	it, err := k.db.NewIter(&pebble.IterOptions{LowerBound: []byte{headerKind}, UpperBound: []byte{headerKind + 1}})
	if err != nil {
		k.report(Corruption{Detail: "the outputs cannot be listed: " + err.Error()})
		return nil
	}
	for ok := it.First(); ok; ok = it.Next() {
		if ctx.Err() != nil {
			return errors.Join(context.Cause(ctx), it.Close())
		}
		h, err := headerAt(it)
		if err != nil {
			ref, _ := parseHeaderKey(it.Key()) // zero for an invalid key
			k.report(Corruption{Ref: ref, Detail: err.Error()})
			continue
		}
		if h.state == pruned {
			k.Pruned++
			continue
		}
		k.Outputs++
		if err := k.checkContent(ctx, h); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	if err := it.Close(); err != nil {
		k.report(Corruption{Detail: "the outputs cannot be listed further: " + err.Error()})
	}
	return nil
}

// checkContent reads a blob and reports each unreadable chunk. If all chunks are
// readable, it compares their digest with the header and reports a difference.
func (k *checker) checkContent(ctx context.Context, h blobHeader) error {
	count, complete, chunk := NewDigester(), true, []byte(nil)
	for index := int64(0); index == 0 || index*int64(h.chunk) < h.retained.Bytes; index++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		if chunk, err = chunkIn(k.db, h, index, chunk[:0]); err != nil {
			complete = false
			k.report(Corruption{Ref: h.retained.Ref, Detail: errorText(err)})
			continue
		}
		_, _ = count.Write(chunk) // it takes everything
	}
	k.Kept += count.bytes
	if got := count.Retained(h.retained.Ref, h.retained.MIME); complete && got != h.retained {
		k.report(Corruption{Ref: h.retained.Ref, Detail: fmt.Sprintf("it is %d bytes, %d lines, SHA-256 %s, and %d, %d, %s were kept",
			got.Bytes, got.Lines, got.SHA256, h.retained.Bytes, h.retained.Lines, h.retained.SHA256)})
	}
	return nil
}

// errorText returns the text of an error for an operator. It adds the name of the
// damaged file, which redact hides from other readers.
func errorText(err error) string {
	text := err.Error()
	if d, ok := errors.AsType[*pebblefiles.Damage](err); ok {
		return text + ": " + d.Error()
	}
	return text
}
