package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/files"
)

// Restore puts the backup in the folder src into the folder dst, as a store, and
// returns what it holds. The folder is made where there is none; one that is
// not empty is ErrNotEmpty. Each file is held to its sum, and the records, read
// from where they now lie, to their digest: what differs is an ErrBadBackup
// that names it, and leaves no store behind. A src without a backup is
// ErrNotABackup.
func Restore(ctx context.Context, src, dst string, storage vfs.FS) (b Backup, err error) {
	if storage == nil {
		storage = vfs.Default
	}
	b, err = readBackup(storage, src)
	if err != nil {
		return Backup{}, fmt.Errorf("restore %s: %w", src, err)
	}
	if err := restore(ctx, storage, src, dst, b); err != nil {
		return Backup{}, fmt.Errorf("restore %s to %s: %w", src, dst, err)
	}
	return b, nil
}

func restore(ctx context.Context, storage vfs.FS, src, dst string, b Backup) (err error) {
	names, err := storage.List(dst)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("%w: it holds %s; name an empty folder, or one that does not exist", ErrNotEmpty, names[0])
	}
	f := folder{fs: storage, dir: dst}
	if err := f.make(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clearFolder(storage, dst))
		}
	}()
	// FORMAT comes last: until then the folder is no store.
	var last Copy
	for _, c := range b.Files {
		if c.Path == formatName {
			last = c
			continue
		}
		if err := restoreFile(ctx, storage, src, dst, c); err != nil {
			return err
		}
	}
	position, records, digest, err := digestIn(ctx, storage, f.path(logName), nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadBackup, err)
	}
	if position != b.Position || records != b.Records || digest != b.Digest {
		return fmt.Errorf("%w: its %d records to position %s have digest %s, and %d to %s with %s were backed up",
			ErrBadBackup, records, position, digest, b.Records, b.Position, b.Digest)
	}
	if err := restoreFile(ctx, storage, src, dst, last); err != nil {
		return err
	}
	if err := f.inspect(); err != nil {
		return err
	}
	return files.SyncDir(storage, dst)
}

// clearFolder removes what a restoring left that did not come to its end.
func clearFolder(storage vfs.FS, dir string) error {
	names, err := storage.List(dir)
	for _, name := range names {
		err = errors.Join(err, storage.RemoveAll(storage.PathJoin(dir, name)))
	}
	return err
}

// restoreFile puts one file in its place and holds it to its sum.
func restoreFile(ctx context.Context, storage vfs.FS, src, dst string, c Copy) error {
	if c.Path == "" || !fs.ValidPath(c.Path) {
		return fmt.Errorf("%w: it names a file %q", ErrBadBackup, c.Path)
	}
	to := storage.PathJoin(append([]string{dst}, strings.Split(c.Path, "/")...)...)
	dir := storage.PathDir(to)
	if err := storage.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	from := storage.PathJoin(src, poolName, path.Base(c.SHA256))
	sum, err := writeCopy(ctx, storage, from, to)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s is missing, which is %s", ErrBadBackup, from, c.Path)
	case err != nil:
		return err
	case sum != c.SHA256:
		return fmt.Errorf("%w: %s, which is %s, does not match its sum", ErrBadBackup, from, c.Path)
	}
	return files.SyncDir(storage, dir)
}

// digestIn reads all records of a database that nobody writes to, gives each to
// saw if that is not nil, and changes nothing. An error of saw ends it.
func digestIn(ctx context.Context, storage vfs.FS, dir string, saw func(events.Entry) error) (events.Position, uint64, string, error) {
	db, err := openReadOnly(files.ReadOnly(storage), dir)
	if err != nil {
		return events.Position{}, 0, "", translated(err)
	}
	digest, err := digestOf(ctx, db, saw)
	if err = errors.Join(err, db.Close()); err != nil {
		return events.Position{}, 0, "", err
	}
	return events.NewPosition(digest.Count(), digest.Count()), digest.Count(), digest.String(), nil
}

func digestOf(ctx context.Context, db *pebble.DB, saw func(events.Entry) error) (*events.Digest, error) {
	digest := events.NewDigest()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: entryKey(0), UpperBound: entriesEnd()})
	if err != nil {
		return nil, translated(err)
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		if err = context.Cause(ctx); err != nil {
			break
		}
		var e events.Entry
		if e, err = entryAt(it, digest.Count()+1); err == nil {
			digest.Add(e)
			if saw != nil {
				err = saw(e)
			}
		}
	}
	return digest, errors.Join(err, translated(it.Close()))
}

// recordsIn yields the records of a database that nobody writes to.
func recordsIn(ctx context.Context, storage vfs.FS, dir string) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		stopped := errors.New("stopped")
		_, _, _, err := digestIn(ctx, storage, dir, func(e events.Entry) error {
			if !yield(e, nil) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(events.Entry{}, err)
		}
	}
}

// entryAt decodes the record that an iterator stands at, which must be the one
// with a sequence.
func entryAt(it *pebble.Iterator, seq uint64) (events.Entry, error) {
	if found := lastUint64(it.Key()); found != seq {
		return events.Entry{}, damaged(seq, "it is missing")
	}
	value, err := it.ValueAndErr()
	if err != nil {
		return events.Entry{}, translated(err)
	}
	return decode(value, seq)
}

// openReadOnly opens a database to read it as it lies.
func openReadOnly(storage vfs.FS, dir string) (*pebble.DB, error) {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	return pebble.Open(dir, &pebble.Options{
		FS: storage, Cache: cache, ReadOnly: true, ErrorIfNotExists: true, Logger: silent{},
		FormatMajorVersion: pebble.FormatNewest,
		EventListener:      &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	})
}

// A silent logger is for a database whose errors are returned.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
