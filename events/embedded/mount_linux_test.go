package embedded

import (
	"syscall"
	"testing"
)

// mountRAM mounts a ramfs, which cannot reserve space, and returns its folder.
// It skips the test where this process may not mount.
func mountRAM(t *testing.T) string {
	t.Helper()
	return mount(t, "ramfs", "")
}

// mountSmall mounts a file system of 64 MiB, as mountRAM does.
func mountSmall(t *testing.T) string {
	t.Helper()
	return mount(t, "tmpfs", "size=64m")
}

func mount(t *testing.T, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, kind, 0, options); err != nil {
		t.Skipf("mounting a %s needs root: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
