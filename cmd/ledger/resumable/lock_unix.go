//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package resumable

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file until it is closed. It returns false without waiting if another
// descriptor holds the lock.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
