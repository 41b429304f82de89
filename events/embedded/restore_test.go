package embedded

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/backup"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// backedUp makes a store with 25 records and a backup of it with a component, in the
// folder root. It returns the manifest.
func backedUp(t testing.TB, storage vfs.FS, root string) backup.Manifest {
	t.Helper()
	s, err := Open(t.Context(), storage.PathJoin(root, "store"), Config{FS: storage})
	must(t, err)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(20, 500)...))
	must(t, s.Compact(t.Context()))
	must(t, s.Append(t.Context(), "s-1", 20, newRecordWriter(2).records(5, 50)...))
	made, _, err := s.Backup(t.Context(), storage.PathJoin(root, "backup"), backup.NamedComponent{Name: "outputs", Component: thing(storage)})
	must(t, err)
	must(t, s.Close())
	return made
}

// thing returns a component with one file, named thing.
func thing(storage vfs.FS) backup.Component {
	return partFunc(func(_ context.Context, dir string, before func() error) error {
		return errors.Join(before(), storage.MkdirAll(dir, 0o755), writeFile(storage, storage.PathJoin(dir, "thing"), "kept"))
	})
}

// wantRestored fails the test unless a folder has exactly the restored files and
// opens as a store with the records of the backup.
func wantRestored(t testing.TB, storage vfs.FS, dir string, made backup.Manifest) {
	t.Helper()
	if text, err := readFile(storage, storage.PathJoin(dir, "outputs", "thing")); err != nil || text != "kept" {
		t.Errorf("the part holds %q, %v", text, err)
	}
	s, err := Open(t.Context(), dir, Config{FS: storage})
	must(t, err)
	if got := digestThrough(t, s, s.Head()); got != made.Digest || s.Head() != made.Position {
		t.Errorf("restored to %s with digest %s, want %s with %s", s.Head(), got, made.Position, made.Digest)
	}
	must(t, s.Close())
	names, err := storage.List(dir)
	must(t, err)
	if slices.Sort(names); !slices.Equal(names, []string{storedir.FormatName, storedir.LockName, storedir.LogName, "outputs"}) {
		t.Errorf("the folder holds %v, want a store and a part alone", names)
	}
}

// Of several concurrent restores into one folder, one makes the store. The others do
// not change it.
func TestOneOfConcurrentRestoresSucceeds(t *testing.T) {
	t.Parallel()
	for name, storage := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": pebblefiles.Disk} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := "root"
			if storage == pebblefiles.Disk {
				root = t.TempDir()
			}
			made := backedUp(t, storage, root)
			ends := make([]error, 6)
			var restoreRun sync.WaitGroup
			for i := range ends {
				restoreRun.Go(func() {
					_, ends[i] = backup.Restore(t.Context(), storage.PathJoin(root, "backup"), storage.PathJoin(root, "again"), storage)
				})
			}
			restoreRun.Wait()
			succeeded := 0
			for _, err := range ends {
				switch {
				case err == nil:
					succeeded++
				case !errors.Is(err, events.ErrInUse) && !errors.Is(err, backup.ErrNotEmpty):
					t.Errorf("Restore beside another = %v, want %v or %v", err, events.ErrInUse, backup.ErrNotEmpty)
				}
			}
			if succeeded != 1 {
				t.Errorf("%d restores of %d succeeded, want 1", succeeded, len(ends))
			}
			wantRestored(t, storage, storage.PathJoin(root, "again"), made)
		})
	}
}

// A folder with other files stays unchanged: a file, a folder, an open store, a link,
// a RESTORING file of another format.
func TestARestoreLeavesAFolderOfSomethingElseAsItIs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	backedUp(t, pebblefiles.Disk, root)
	elsewhere := filepath.Join(root, "elsewhere")
	must(t, os.Mkdir(elsewhere, 0o700))
	must(t, os.WriteFile(filepath.Join(elsewhere, "MANIFEST-000001"), []byte("mine"), 0o600))
	list := restoringTitle + "\"log/MANIFEST-000001\"\n\"FORMAT\"\n"
	for name, fill := range map[string]func(dir string) error{
		"a file":            func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("mine"), 0o600) },
		"a folder":          func(dir string) error { return os.Mkdir(filepath.Join(dir, "photos"), 0o700) },
		"a log of its own":  func(dir string) error { return os.MkdirAll(filepath.Join(dir, "log", "x"), 0o700) },
		"a link to nothing": func(dir string) error { return os.Symlink("nowhere", filepath.Join(dir, "link")) },
		"a list not of ours": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, storedir.RestoringName), []byte("mine"), 0o600)
		},
		"a list of elsewhere": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, storedir.RestoringName), []byte(restoringTitle+"\"../x\"\n"), 0o600)
		},
		"a linked log": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, storedir.RestoringName), []byte(list), 0o600), os.Symlink(elsewhere, filepath.Join(dir, "log")))
		},
		"a file beside leavings": func(dir string) error {
			return errors.Join(os.WriteFile(filepath.Join(dir, storedir.RestoringName), []byte(list), 0o600), os.Mkdir(filepath.Join(dir, "log"), 0o700),
				os.WriteFile(filepath.Join(dir, "log", "MANIFEST-000001"), []byte("ours"), 0o600), os.WriteFile(filepath.Join(dir, "log", "notes.txt"), []byte("mine"), 0o600))
		},
	} {
		dir := filepath.Join(root, strings.ReplaceAll(name, " ", "-"))
		must(t, os.Mkdir(dir, 0o700))
		must(t, fill(dir))
		before := tree(t, root)
		if _, err := backup.Restore(t.Context(), filepath.Join(root, "backup"), dir, nil); !errors.Is(err, backup.ErrNotEmpty) {
			t.Errorf("Restore into a folder with %s = %v, want %v", name, err, backup.ErrNotEmpty)
		}
		if after := tree(t, root); !maps.Equal(before, after) {
			t.Errorf("Restore into a folder with %s changed %v to %v", name, before, after)
		}
	}
	s, err := Open(t.Context(), filepath.Join(root, "open"), Config{})
	must(t, err)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(3).records(3, 10)...))
	if _, err := backup.Restore(t.Context(), filepath.Join(root, "backup"), filepath.Join(root, "open"), nil); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("Restore over a store that is open = %v, want %v", err, backup.ErrNotEmpty)
	}
	must(t, s.Append(t.Context(), "s-1", 3, newRecordWriter(4).records(3, 10)...))
	must(t, s.Close())
	for _, pair := range [][2]string{{"backup", "backup"}, {"backup", "backup/within"}, {"backup", "."}} {
		dst := filepath.Join(root, pair[1])
		before := tree(t, root)
		if _, err := backup.Restore(t.Context(), filepath.Join(root, pair[0]), dst, nil); err == nil || !maps.Equal(before, tree(t, root)) {
			t.Errorf("Restore of %s into %s = %v, want a refusal that changes nothing", pair[0], pair[1], err)
		}
	}
}

// tree returns the files below a folder of the disk, by path.
func tree(t testing.TB, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	must(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text := []byte(d.Type().String())
		if d.Type().IsRegular() {
			text, err = os.ReadFile(path)
		}
		found[path] = string(text)
		return err
	}))
	return found
}

// A folder in which another process creates or restores a store is in use.
func TestARestoreIntoALockedFolderIsInUse(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	backedUp(t, storage, "root")
	must(t, storage.MkdirAll("root/again", 0o755))
	lock, err := storage.Lock("root/again/lock")
	must(t, err)
	if _, err := backup.Restore(t.Context(), "root/backup", "root/again", storage); !errors.Is(err, events.ErrInUse) {
		t.Errorf("Restore into a locked folder = %v, want %v", err, events.ErrInUse)
	}
	must(t, lock.Close())
	if _, err := backup.Restore(t.Context(), "root/backup", "root/again", storage); err != nil {
		t.Errorf("Restore into a folder that was unlocked = %v", err)
	}
}

// A restore of a backup that another one replaces reports that, and not damage.
func TestABackupMadeDuringARestoreIsReported(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	s := open(t, storage)
	must(t, s.Append(t.Context(), "s-1", 0, newRecordWriter(1).records(5, 500)...))
	_, _, err := s.Backup(t.Context(), "backup")
	must(t, err)
	meanwhile := sync.OnceFunc(func() {
		must(t, s.Append(t.Context(), "s-1", 5, newRecordWriter(2).records(5, 500)...))
		must(t, s.Compact(t.Context()))
		_, _, err := s.Backup(t.Context(), "backup")
		must(t, err)
	})
	slow := errorfs.Wrap(storage, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, "again/log/") {
			meanwhile()
		}
		return nil
	}))
	if _, err := backup.Restore(t.Context(), "backup", "again", slow); !errors.Is(err, events.ErrInUse) {
		t.Errorf("Restore during a backup = %v, want %v", err, events.ErrInUse)
	}
	if _, err := backup.Restore(t.Context(), "backup", "again", storage); err != nil {
		t.Errorf("Restore afterwards = %v", err)
	}
}

// A restore that a kill or a power cut ended at any write left no store or a complete
// one. It can be repeated, and removes only its own remains.
func TestARestoreThatWasCutOffCanBeDoneAgain(t *testing.T) {
	t.Parallel()
	storage := vfs.NewCrashableMem()
	made := backedUp(t, storage, "root")
	rng := rand.New(rand.NewPCG(1, 1))
	writes, every := 0, repeats(6, 1)
	var cuts []*vfs.MemFS
	_, err := backup.Restore(t.Context(), "root/backup", "root/again", errorfs.Wrap(storage, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			if writes++; writes%every == 0 {
				for _, percent := range []int{0, 50, 100} {
					cuts = append(cuts, storage.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}))
				}
			}
		}
		return nil
	})))
	must(t, err)
	if writes < 30 {
		t.Errorf("a restore is %d writes, want some", writes)
	}
	for i, after := range cuts {
		name := fmt.Sprintf("cut %d of %d", i, len(cuts))
		_, err := Open(t.Context(), "root/again", Config{FS: pebblefiles.ReadOnly(after)})
		if err == nil {
			t.Fatalf("%s: a store was opened that cannot be written to", name)
		}
		dirty := after.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		if info, err := dirty.Stat("root/again"); err == nil && info.IsDir() {
			must(t, writeFile(dirty, "root/again/notes.txt", "mine"))
			before := contents(t, dirty, "root/again")
			if _, err := backup.Restore(t.Context(), "root/backup", "root/again", dirty); !errors.Is(err, backup.ErrNotEmpty) {
				t.Errorf("%s: Restore beside a file of somebody else = %v, want %v", name, err, backup.ErrNotEmpty)
			}
			if now := contents(t, dirty, "root/again"); !maps.Equal(before, now) {
				t.Errorf("%s: Restore beside a file of somebody else changed the folder", name)
			}
		}
		_, err = backup.Restore(t.Context(), "root/backup", "root/again", after)
		if errors.Is(err, backup.ErrNotEmpty) { // it was whole
			s, err := Open(t.Context(), "root/again", Config{FS: after})
			must(t, err)
			must(t, s.Close())
		} else if err != nil {
			t.Fatalf("%s: Restore again = %v", name, err)
		}
		wantRestored(t, after, "root/again", made)
	}
}

// A restore that meets a full disk at any write leaves no store, and can be repeated.
func TestARestoreOntoAFullDiskLeavesNoStore(t *testing.T) {
	t.Parallel()
	storage := vfs.NewMem()
	made := backedUp(t, storage, "root")
	disk := &fullDisk{left: 1 << 30}
	filled := errorfs.Wrap(storage, disk)
	must(t, storage.MkdirAll("root/again", 0o755))
	failed := 0
	for left := 0; ; left += repeats(3, 1) {
		disk.set(left, false)
		_, failure := backup.Restore(t.Context(), "root/backup", "root/again", filled)
		if failure == nil {
			break
		}
		failed++
		if !errors.Is(failure, syscall.ENOSPC) {
			t.Errorf("Restore with %d writes left = %v, want %v", left, failure, syscall.ENOSPC)
		}
		if names, err := storage.List("root/again"); len(names) > 0 || err != nil {
			// A folder that cannot be synced keeps its files, which the next Restore removes.
			if _, err := Open(t.Context(), "root/again", Config{FS: storage}); !errors.Is(err, events.ErrNotAStore) {
				t.Fatalf("Restore with %d writes left leaves %v, and Open = %v (%v)", left, names, err, failure)
			}
		}
	}
	if failed < 5 {
		t.Errorf("%d restores failed, want one at each write", failed)
	}
	wantRestored(t, storage, "root/again", made)
}
