//go:build unix && !linux

package workspace

import (
	"os"

	"golang.org/x/sys/unix"
)

// pathFlags open a file or directory to identify it. Nothing is read.
const pathFlags = unix.O_RDONLY | unix.O_NONBLOCK

// copyAttributes does nothing: extended attributes are kept on Linux only.
func copyAttributes(_, _ *os.File) error { return nil }
