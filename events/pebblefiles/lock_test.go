package pebblefiles

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A folder can be locked once in a process, under any of its names.
func TestAFolderIsLockedOnceByWhateverName(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "dir")
	link, copied := filepath.Join(root, "link"), filepath.Join(root, "copied")
	for _, err := range []error{os.Mkdir(dir, 0o700), os.Symlink(dir, link), os.Mkdir(copied, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	lock, err := Disk.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "lock"), filepath.Join(copied, "lock")); err != nil {
		t.Fatal(err)
	}
	errReadOnly := func(path, name string) {
		t.Helper()
		if second, err := Disk.Lock(path); !errors.Is(err, ErrLocked) {
			t.Errorf("Lock through %s = %v, %v; want %v", name, second, err, ErrLocked)
		}
	}
	errReadOnly(filepath.Join(dir, "lock"), "its name")
	errReadOnly(filepath.Join(link, "lock"), "a symbolic link")
	errReadOnly(filepath.Join(dir, "..", "link", ".", "lock"), "another path")
	if here, err := os.Getwd(); err == nil {
		if relative, err := filepath.Rel(here, dir); err == nil {
			errReadOnly(filepath.Join(relative, "lock"), "a relative path")
		}
	}
	errReadOnly(filepath.Join(copied, "lock"), "a hard link of the lock")
	if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	errReadOnly(filepath.Join(dir, "lock"), "a lock file made anew")
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Disk.Lock(filepath.Join(link, "lock"))
	if err != nil {
		t.Fatalf("Lock after Close = %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
