package publish_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/settlement-ledger/ledger/projections/publish"
)

// Close releases a lock although a copy of the descriptor is open. A child process
// has such a copy between its fork and its exec.
func TestCloseReleasesALockThatAForkedChildHasOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	locker := publish.NewFileLocker(dir, "process 1")
	lock, err := locker.Lock("a")
	if err != nil {
		t.Fatal(err)
	}
	inherited := -1
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range open {
		if target, err := os.Readlink("/proc/self/fd/" + entry.Name()); err == nil && target == filepath.Join(dir, "a") {
			fd, _ := strconv.Atoi(entry.Name()) // the kernel names each entry with a number
			if inherited, err = syscall.Dup(fd); err != nil {
				t.Fatal(err)
			}
		}
	}
	if inherited < 0 {
		t.Fatal("the lock file is not open")
	}
	defer syscall.Close(inherited)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := locker.Lock("a")
	if err != nil {
		t.Fatalf("Lock after Close = %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
