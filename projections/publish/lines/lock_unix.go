//go:build unix

package lines

import (
	"errors"
	"os"
	"syscall"
)

// lock locks a file until it is closed.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}
