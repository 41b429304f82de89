//go:build !linux

package promptline

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
	// disabledKey is the value of a key without an effect: _POSIX_VDISABLE.
	disabledKey = 0xff
)
