package pebblefiles

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// filesOf returns the files in a folder with their content.
func filesOf(t testing.TB, storage vfs.FS, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	list, err := List(storage, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		text, err := readFile(storage, storage.PathJoin(dir, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	return files
}

// After the failure no write reaches the storage. Writes of a log, a manifest and a
// folder succeed; writes of a table return the failure.
func TestStoppedFileSystemChangesNothing(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := NewFailStopFS(storage, FailStopOptions{})
	create := func(name string, category vfs.DiskWriteCategory) vfs.File {
		file, err := s.Create(name, category)
		if err != nil {
			t.Fatalf("Create(%s) = %v", name, err)
		}
		return file
	}
	log, table := create("1.log", "pebble-wal"), create("2.sst", "pebble-memtable-flush")
	dir, err := s.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	before := filesOf(t, storage, "")
	died := errors.New("disk died")
	s.Fail(died)
	for name, file := range map[string]vfs.File{
		"log": log, "new log": create("3.log", "pebble-wal"), "new manifest": create("MANIFEST-4", "pebble-manifest"), "new flushed table": create("5.sst", "pebble-memtable-flush"),
	} {
		if n, err := file.Write([]byte("lost")); n != 4 || err != nil {
			t.Errorf("Write of a %s = %d, %v, want 4, nil", name, n, err)
		}
		if err := errors.Join(file.Sync(), file.Close()); err != nil {
			t.Errorf("Sync and Close of a %s = %v, want nil", name, err)
		}
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		t.Errorf("Sync of a folder = %v, want nil", err)
	}
	if _, err := table.Write([]byte("lost")); !errors.Is(err, ErrFailStop) || !errors.Is(err, died) {
		t.Errorf("Write of a table = %v, want %v and %v", err, ErrFailStop, died)
	}
	_ = table.Close()
	for _, category := range []vfs.DiskWriteCategory{"pebble-compaction", vfs.WriteCategoryUnspecified} {
		if _, err := s.Create("6.sst", category); !errors.Is(err, ErrFailStop) {
			t.Errorf("Create of a table of category %s = %v, want %v", category, err, ErrFailStop)
		}
	}
	if err := s.Link("1.log", "7.sst"); !errors.Is(err, ErrFailStop) {
		t.Errorf("Link = %v, want %v", err, ErrFailStop)
	}
	if err := errors.Join(s.Rename("1.log", "8.log"), s.Remove("1.log"), s.RemoveAll("2.sst")); err != nil {
		t.Errorf("Rename and Remove = %v, want nil", err)
	}
	if file, err := s.Open("5.sst"); err != nil {
		t.Errorf("Open of a table written since = %v", err)
	} else if text, err := io.ReadAll(file); string(text) != "lost" || errors.Join(err, file.Close()) != nil {
		t.Errorf("a table written since holds %q, %v", text, err)
	}
	if after := filesOf(t, storage, ""); !maps.Equal(after, before) {
		t.Errorf("the storage holds %q, want %q", after, before)
	}
	if err := s.Err(); err != died {
		t.Errorf("Err() = %v, want %v", err, died)
	}
}

// A failure passes if the disk was full or too many files were open, but not if a sync
// failed.
func TestFailedSyncNeverPasses(t *testing.T) {
	t.Parallel()
	hidden := fmt.Errorf("%w: %w", ErrSyncFailed, syscall.ENOSPC)
	for _, c := range []struct {
		kind   errorfs.OpKind
		err    error
		passes bool
	}{
		{errorfs.OpCreate, syscall.EMFILE, true},
		{errorfs.OpFileWrite, syscall.ENOSPC, true},
		{errorfs.OpFileWrite, syscall.EIO, false},
		{errorfs.OpFileWrite, hidden, false},
		{errorfs.OpFileSync, syscall.ENOSPC, false},
		{errorfs.OpRename, syscall.EDQUOT, true},
	} {
		storage := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == c.kind {
				return c.err
			}
			return nil
		}))
		s := NewFailStopFS(storage, FailStopOptions{})
		file, err := s.Create("1.log", "pebble-wal")
		if err == nil {
			_, err = file.Write([]byte("text"))
			err = errors.Join(err, file.Sync(), file.Close(), s.Rename("1.log", "2.log"))
		}
		if err != nil {
			t.Errorf("%v: a write of a log = %v, want nil", c.kind, err)
		}
		if err, lost := s.Failure(); !errors.Is(err, c.err) || lost == c.passes {
			t.Errorf("%v of %v: Failure() = %v, %t, want lost %t", c.kind, c.err, err, lost, !c.passes)
		}
		s.Pause(syscall.ENOSPC)
		if _, lost := s.Failure(); lost == c.passes {
			t.Errorf("%v of %v: a later failure that passes made it lost = %t", c.kind, c.err, lost)
		}
	}
}

// Files in the excluded folder are written directly to the storage. Their failures do
// not stop the file system, and they can be written after a failure.
func TestExcludedFolderStopsNothing(t *testing.T) {
	t.Parallel()
	full := func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "refused") {
			return syscall.ENOSPC
		}
		return nil
	}
	s := NewFailStopFS(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(full)), FailStopOptions{})
	s.Exclude("db/snapshot")
	if err := s.MkdirAll("db/snapshot/log", 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create("db/snapshot/log/refused", ""); !errors.Is(err, syscall.ENOSPC) || s.Err() != nil {
		t.Errorf("Create in the excluded folder = %v, and Err() = %v, want %v and nil", err, s.Err(), syscall.ENOSPC)
	}
	s.Fail(syscall.EIO)
	file, err := s.Create("db/snapshot/log/1.sst", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write([]byte("text")); errors.Join(err, file.Close()) != nil {
		t.Errorf("Write in the excluded folder after a failure = %v", err)
	}
	if _, err := s.FS.Stat("db/snapshot/log/1.sst"); err != nil {
		t.Error(err)
	}
	if _, err := s.Create("db/snapshots.sst", ""); !errors.Is(err, ErrFailStop) {
		t.Errorf("Create beside the excluded folder = %v, want %v", err, ErrFailStop)
	}
}

// TestFailureAtAnyWriteIsLikeAPowerCut fails each of the first writes of a database,
// with an error that passes and with one that does not. The database opens again after
// a power cut, and has each key whose write was acknowledged.
func TestFailureAtAnyWriteIsLikeAPowerCut(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 5))
	for at := int64(1); ; at++ {
		var left atomic.Int64
		left.Store(at)
		cause := []error{syscall.ENOSPC, syscall.EIO}[at%2]
		disk := vfs.NewCrashableMem()
		s := NewFailStopFS(errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpCreate, errorfs.OpReuseForWrite, errorfs.OpRename, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
				if left.Add(-1) == 0 {
					return cause
				}
			}
			return nil
		})), FailStopOptions{})
		acknowledged := 0
		db, err := pebble.Open("db", &pebble.Options{FS: s, Logger: s, FormatMajorVersion: FormatVersion, MemTableSize: 64 << 10})
		if err == nil {
			s.Opened()
			for i := range 12 {
				if err := db.Set(fmt.Appendf(nil, "%02d", i), make([]byte, 2000), pebble.Sync); err != nil || s.Err() != nil {
					break
				}
				if acknowledged++; i%5 == 4 {
					_ = db.Flush() // of a failure, Err knows
				}
			}
			s.Closing()
			err = db.Close()
		}
		if err != nil {
			t.Errorf("failure at write %d: %v, want that Pebble does not learn of it", at, err)
		}
		failed := s.Err() != nil
		after := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		use(t, after, func(db *pebble.DB) error {
			for i := range acknowledged {
				_, closer, err := db.Get(fmt.Appendf(nil, "%02d", i))
				if err != nil {
					return fmt.Errorf("failure at write %d: key %d of %d: %w", at, i, acknowledged, err)
				}
				_ = closer.Close()
			}
			return nil
		})
		if !failed {
			t.Logf("%d writes", at-1)
			return
		}
	}
}
