//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package publish

import (
	"errors"
	"os"
	"syscall"
)

// TryLock locks a file until the file is closed or the process ends. The boolean
// reports whether the file is now locked. If another descriptor, in this process or
// another, holds the lock, TryLock returns false without waiting.
func TryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// CloseLocked releases the lock of TryLock and closes the file. To close the
// file alone would not release the lock while a forked child, which inherits the
// descriptor, has not called exec.
func CloseLocked(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}
