package pebblefiles

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
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

// A lock is released by Close although a copy of the descriptor is still open. A child
// process has such a copy between its fork and its exec.
func TestCloseReleasesALockThatAForkedChildHasOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	must(t, os.WriteFile(path, nil, 0o600))
	for name, lock := range map[string]func() (io.Closer, error){
		"writer": func() (io.Closer, error) { return Disk.Lock(path) },
		"reader": func() (io.Closer, error) { return LockShared(Disk, path) },
		"announcement": func() (io.Closer, error) {
			return Disk.(sharedLocker).announce(path), nil
		},
	} {
		held, err := lock()
		must(t, err)
		inherited := duplicate(t, path)
		must(t, held.Close())
		file, err := os.Open(path)
		must(t, err)
		if writerWaits(file) {
			t.Errorf("%s: a writer still waits after Close", name)
		}
		must(t, file.Close())
		again, err := Disk.Lock(path)
		if err != nil {
			t.Errorf("%s: Lock after Close = %v", name, err)
		} else {
			must(t, again.Close())
		}
		must(t, syscall.Close(inherited))
	}
}

// duplicate returns a copy of the descriptor that this process has of a file.
func duplicate(t *testing.T, path string) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, entry := range open {
		if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && target == path {
			fd, err := strconv.Atoi(entry.Name())
			must(t, err)
			dup, err := syscall.Dup(fd)
			must(t, err)
			return dup
		}
	}
	t.Fatalf("no descriptor of %s is open", path)
	return -1
}
