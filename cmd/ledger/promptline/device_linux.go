package promptline

import "golang.org/x/sys/unix"

const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
	// disabledKey is the value of a key without an effect: _POSIX_VDISABLE.
	disabledKey = 0
)
