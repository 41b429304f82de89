package pebblefiles

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// A writer that waits for readers gets the lock before readers who come later, so
// that readers who overlap do not keep it out.
func TestWaitingWriterGoesBeforeLaterReaders(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	must(t, os.WriteFile(path, nil, 0o600))
	first, err := LockShared(Disk, path)
	must(t, err)
	written := make(chan error)
	go func() {
		lock, err := Lock(t.Context(), Disk, path, nil)
		written <- err // and keeps the lock
		if err == nil {
			<-written
			_ = lock.Close()
		}
	}()
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	for !writerWaits(file) {
		runtime.Gosched()
	}
	later := make(chan error)
	go func() {
		_, err := LockShared(Disk, path)
		later <- err
	}()
	must(t, first.Close())
	must(t, <-written)
	if err := <-later; !errors.Is(err, ErrLocked) {
		t.Errorf("LockShared behind a writer that waited = %v, want %v", err, ErrLocked)
	}
	close(written)
}

// A writer that waits and does not get the lock, as it was stopped perhaps, keeps
// no reader out for long.
func TestWaitingWriterDelaysReadersOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	must(t, os.WriteFile(path, nil, 0o600))
	announced := disk{}.announce(path)
	reader, err := LockShared(Disk, path)
	must(t, err)
	must(t, errors.Join(reader.Close(), announced.Close()))
}

// The processes that have a lock file open are known.
func TestUsersOfALockAreKnown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	must(t, os.WriteFile(path, nil, 0o600))
	reader := exec.CommandContext(t.Context(), "sleep", "60")
	lock, err := os.Open(path)
	must(t, err)
	defer lock.Close()
	reader.ExtraFiles = []*os.File{lock}
	must(t, reader.Start())
	if got := Users(path); !slices.Equal(got, []int{reader.Process.Pid}) {
		t.Errorf("Users = %v, want %d", got, reader.Process.Pid)
	}
	must(t, reader.Process.Kill())
	_ = reader.Wait() // it was killed
}
