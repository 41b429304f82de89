package permission

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
	flushInput = 1 // FREAD
)

// flush drops the input that a terminal holds. It fails only where the terminal
// is gone, which the next read reports.
func flush(fd int) { _ = unix.IoctlSetPointerInt(fd, unix.TIOCFLUSH, flushInput) }
