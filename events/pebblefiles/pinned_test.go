package pebblefiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Readers share a lock, and the error of a writer distinguishes readers from another
// writer. A process that closes one use of the lock file keeps its other locks.
func TestReadersShareALockAndAWriterHasItAlone(t *testing.T) {
	t.Parallel()
	if _, ok := Disk.(sharedLocker); !ok {
		t.Skip("locks are not shared on this system")
	}
	path := filepath.Join(t.TempDir(), "lock")
	if lock, err := LockShared(Disk, path); lock != nil || err != nil {
		t.Fatalf("LockShared without a lock file = %v, %v; want nothing", lock, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("LockShared made a lock file")
	}
	writer, err := Disk.Lock(path)
	must(t, err)
	for range 3 {
		if _, err := LockShared(Disk, path); !errors.Is(err, ErrLocked) {
			t.Errorf("LockShared beside a writer = %v, want %v", err, ErrLocked)
		}
		if _, err := Disk.Lock(path); !errors.Is(err, ErrLocked) {
			t.Errorf("Lock beside a writer = %v, want %v", err, ErrLocked)
		}
	}
	must(t, writer.Close())
	first, err := LockShared(Disk, path)
	must(t, err)
	second, err := LockShared(Disk, path)
	must(t, err)
	must(t, first.Close())
	if _, err := Disk.Lock(path); !errors.Is(err, ErrReading) {
		t.Errorf("Lock beside a reader = %v, want %v", err, ErrReading)
	}
	must(t, second.Close())
	writer, err = Disk.Lock(path)
	must(t, err)
	must(t, writer.Close())
}

// A lock of another program, which belongs to its process, is met as one of ours.
func TestLocksOfOlderProgramsCount(t *testing.T) {
	t.Parallel()
	if _, ok := Disk.(sharedLocker); !ok {
		t.Skip("locks are not shared on this system")
	}
	path := filepath.Join(t.TempDir(), "lock")
	older, err := vfs.Default.Lock(path)
	must(t, err)
	if _, err := Disk.Lock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("Lock beside an older program = %v, want %v", err, ErrLocked)
	}
	must(t, older.Close())
}

// A database of more tables than this process may hold open keeps its lock until
// it is closed.
func TestTooManyTablesKeepTheLock(t *testing.T) {
	t.Parallel()
	n := maxOpenTables() + 1
	if n > 20_000 {
		t.Skipf("this process may hold %d tables open", n-1)
	}
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	must(t, os.WriteFile(lock, nil, 0o600))
	released := func(p *Pinned) bool {
		must(t, p.Release())
		writer, err := Disk.Lock(lock)
		if err == nil {
			must(t, writer.Close())
		}
		must(t, p.Close())
		return err == nil
	}
	p, err := Pin(Disk, lock, dir)
	must(t, err)
	if !released(p) {
		t.Error("Release keeps the lock where all tables are held")
	}
	table := filepath.Join(dir, "000000.sst")
	must(t, os.WriteFile(table, nil, 0o600))
	for i := 1; i < n; i++ {
		must(t, os.Link(table, filepath.Join(dir, fmt.Sprintf("%06d.sst", i))))
	}
	p, err = Pin(Disk, lock, dir)
	must(t, err)
	if released(p) {
		t.Error("Release gives up the lock where not all tables are held")
	}
}

// Where no lock keeps a writer out, a folder that changes while it is read is read
// again.
func TestAChangeWhileReadingWithoutALockIsSeen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "000001.sst")
	must(t, os.WriteFile(name, []byte("x"), 0o600))
	tries := 0
	file, p, err := ReadPinned(t.Context(), Disk, filepath.Join(dir, "lock"), dir, func(p *Pinned) (vfs.File, error) {
		if tries++; tries < 3 {
			must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("00001%d.log", tries)), nil, 0o600))
		}
		return p.Open(name)
	})
	must(t, err)
	if tries != 3 {
		t.Errorf("the folder was read %d times, want 3", tries)
	}
	must(t, file.Close())
	must(t, p.Close())
}

// A table that a writer removes is still there for a reader, as often as it opens it.
func TestPinnedTablesOutliveTheirNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "000001.sst")
	must(t, os.WriteFile(name, []byte("table"), 0o600))
	p, err := Pin(Disk, filepath.Join(dir, "lock"), dir)
	must(t, err)
	must(t, os.Remove(name))
	for range 2 {
		file, err := p.Open(name)
		must(t, err)
		got := make([]byte, 5)
		_, err = file.ReadAt(got, 0)
		must(t, errors.Join(err, file.Close()))
		if string(got) != "table" {
			t.Errorf("a removed table reads %q, want table", got)
		}
	}
	must(t, p.Close())
}
