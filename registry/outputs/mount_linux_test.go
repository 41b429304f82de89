package outputs

import (
	"syscall"
	"testing"
)

// mountRAMFS mounts a ramfs, which cannot reserve space, and returns its folder. It
// skips the test if this process may not mount.
func mountRAMFS(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "ramfs", 0, ""); err != nil {
		t.Skipf("mounting a ramfs needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
