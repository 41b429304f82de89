package layout

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// ReadDigest reads all records of a database that no process writes to. It returns the
// position of the last record, the number of records and their digest. If the function
// saw is not nil, ReadDigest calls it with each record in order. If saw returns an
// error, ReadDigest stops and returns the error. A damaged or missing record is an
// events.ErrDamaged. ReadDigest changes no file.
func ReadDigest(ctx context.Context, storage vfs.FS, dir string, saw func(events.Entry) error) (events.Position, uint64, string, error) {
	db, err := OpenReadOnly(pebblefiles.ReadOnly(storage), dir)
	if err != nil {
		return events.Position{}, 0, "", AsDamaged(err)
	}
	digest, err := digestOf(ctx, db, saw)
	if err = errors.Join(err, db.Close()); err != nil {
		return events.Position{}, 0, "", err
	}
	return events.NewPosition(digest.Count(), digest.Count()), digest.Count(), digest.String(), nil
}

// digestOf reads all records of an open database and calls saw with each, as
// ReadDigest does.
func digestOf(ctx context.Context, db *pebble.DB, saw func(events.Entry) error) (*events.Digest, error) {
	digest := events.NewDigest()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: EntryKey(0), UpperBound: EntriesEnd()})
	if err != nil {
		return nil, AsDamaged(err)
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
	return digest, errors.Join(err, AsDamaged(it.Close()))
}

// Records yields the records of a database that no process writes to, in order. It
// ends with an error at a damaged or missing record.
func Records(ctx context.Context, storage vfs.FS, dir string) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		stopped := errors.New("stopped")
		_, _, _, err := ReadDigest(ctx, storage, dir, func(e events.Entry) error {
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

// readCacheSize is the size in bytes of the block cache of a database that
// OpenReadOnly opened.
const readCacheSize = 24 << 20

// OpenReadOnly opens a database for reading. The caller passes a storage that refuses
// changes, because Pebble may write to the folder even in a read-only database.
// OpenReadOnly returns a pebblefiles.ErrNewerVersion if a newer program wrote the
// files. The caller closes the database.
func OpenReadOnly(storage vfs.FS, dir string) (*pebble.DB, error) {
	if err := pebblefiles.CheckVersion(storage, dir); err != nil {
		return nil, err
	}
	cache := pebble.NewCache(readCacheSize)
	defer cache.Unref()
	return pebble.Open(dir, &pebble.Options{
		FS: storage, Cache: cache, ReadOnly: true, ErrorIfNotExists: true, Logger: panicLogger{},
		FormatMajorVersion: pebblefiles.FormatVersion,
		EventListener:      &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	})
}

// A panicLogger is a logger for a database that is open read-only. It discards all
// messages. At a fatal error Pebble expects its logger to end the process; a
// panicLogger panics.
type panicLogger struct{}

// Infof discards a message.
func (panicLogger) Infof(string, ...any) {}

// Errorf discards a message.
func (panicLogger) Errorf(string, ...any) {}

// Fatalf panics with the message.
func (panicLogger) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
