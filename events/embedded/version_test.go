package embedded

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// versionOf returns the version of the files of a store that is closed.
func versionOf(t testing.TB, storage vfs.FS) pebble.FormatMajorVersion {
	t.Helper()
	desc, err := pebble.Peek("store/log", storage)
	must(t, err)
	return desc.FormatMajorVersion
}

// A new store has the version that is named, and not the newest that the Pebble of
// this build knows. Another number here raises every store that is opened, for good.
func TestANewStoreHasTheNamedVersion(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	must(t, open(t, storage).Close())
	if got := versionOf(t, storage); got != pebblefiles.FormatVersion || uint64(got) != 24 {
		t.Errorf("a new store has version %d, want %d, which is 24", got, pebblefiles.FormatVersion)
	}
}

// A store of any older version that Pebble reads opens with its records, and is
// raised. A reader leaves it as it is.
func TestAStoreOfAnOlderVersionIsRaised(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	truth := writeSampleStore(t, storage)
	type pair struct{ key, value []byte }
	var pairs []pair
	surgery(t, storage, func(db *pebble.DB) error {
		it, err := db.NewIter(nil)
		if err != nil {
			return err
		}
		for ok := it.First(); ok; ok = it.Next() {
			pairs = append(pairs, pair{bytes.Clone(it.Key()), bytes.Clone(it.Value())})
		}
		return it.Close()
	})
	for version := pebble.FormatFlushableIngest; version < pebblefiles.FormatVersion; version += pebble.FormatMajorVersion(repeats(3, 1)) {
		older := vfs.NewMem()
		must(t, older.MkdirAll("store", 0o755))
		must(t, writeFile(older, "store/"+storedir.FormatName, storedir.FormatTitle+"1\n"))
		db, err := pebble.Open("store/log", &pebble.Options{FS: older, FormatMajorVersion: version, Logger: quietLogger(older)})
		must(t, err)
		for i, p := range pairs {
			must(t, db.Set(p.key, p.value, pebble.NoSync))
			if i == len(pairs)/2 {
				must(t, db.Flush())
			}
		}
		must(t, errors.Join(db.LogData(nil, pebble.Sync), db.Close()))
		reader, err := OpenReader(t.Context(), "store", Config{FS: older})
		must(t, err)
		if got := digestOfEntries(all(t, reader)...); got != digestOfEntries(truth...) {
			t.Errorf("version %d: a reader finds other records", version)
		}
		must(t, reader.Close())
		if got := versionOf(t, older); got != version {
			t.Errorf("a reader raised version %d to %d", version, got)
		}
		s := open(t, older)
		if got := digestOfEntries(all(t, s)...); got != digestOfEntries(truth...) {
			t.Errorf("version %d: the store has other records", version)
		}
		must(t, s.Append(t.Context(), "new", 0, newRecordWriter(9).records(1, 10)...))
		must(t, s.Close())
		if got := versionOf(t, older); got != pebblefiles.FormatVersion {
			t.Errorf("version %d was raised to %d, want %d", version, got, pebblefiles.FormatVersion)
		}
	}
}

// A store of a newer version is refused with both numbers, and left as it is.
func TestAStoreOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	writeSampleStore(t, storage)
	must(t, writeFile(storage, "store/log/marker.format-version.000099.025", ""))
	before := contents(t, storage, "store/log")
	_, opening := Open(t.Context(), "store", Config{FS: storage})
	_, reading := OpenReader(t.Context(), "store", Config{FS: storage})
	for name, err := range map[string]error{"Open": opening, "OpenReader": reading} {
		if !errors.Is(err, events.ErrNewerFormat) || !strings.Contains(err.Error(), "25") || !strings.Contains(err.Error(), "24") {
			t.Errorf("%s of a newer version = %v, want %v with 25 and 24", name, err, events.ErrNewerFormat)
		}
	}
	after := contents(t, storage, "store/log")
	for name, text := range before {
		if after[name] != text {
			t.Errorf("a store of a newer version was opened: %s changed", name)
		}
	}
}
