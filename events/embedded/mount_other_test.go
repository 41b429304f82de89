//go:build !linux

package embedded

import "testing"

func mountRAM(t *testing.T) string {
	t.Helper()
	t.Skip("this test mounts a ramfs, which Linux has")
	return ""
}

func mountSmall(t *testing.T) string {
	t.Helper()
	t.Skip("this test mounts a tmpfs, which Linux has")
	return ""
}
