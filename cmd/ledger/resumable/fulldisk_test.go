//go:build linux

package resumable

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A full disk is an error that names the path and the bytes written. There is no file with the
// final name, and the partial file is continued once there is space.
func TestAFullDiskKeepsThePartialFile(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mount a file system of 256 KiB: %v; only root may do it", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(disk, "f")
	segment := []byte(strings.Repeat("0123456789abcde\n", 3000))
	fill := func() (from int, err error) {
		f, err := Open(path, content{"all"}, Options{})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		_, states, ok := f.Resumed()
		if !ok {
			err = f.Begin(1)
		}
		for n := len(states); n < 10 && err == nil; n++ {
			if _, err = f.Write(segment); err == nil {
				err = f.Checkpoint(n)
			}
		}
		if err != nil {
			return len(states), err
		}
		return len(states), f.Finish()
	}
	_, err := fill()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), path+partialSuffix) || !strings.Contains(err.Error(), " bytes: no space left") {
		t.Errorf("on a full disk = %v, want the path, the bytes and ENOSPC", err)
	}
	noFile(t, path)
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	from, err := fill()
	info, stat := os.Stat(path)
	if err != nil || from == 0 || stat != nil || info.Size() != int64(10*len(segment)) {
		t.Errorf("with space again: resumed at %d, %v, %v", from, err, info)
	}
}
