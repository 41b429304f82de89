//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package index

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks a file until unlock, or until the process ends. It returns false without
// waiting if another descriptor holds the lock.
func tryLock(file *os.File) (bool, error) {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// unlock releases the lock of tryLock and closes the file. A forked child that has not
// called exec yet may hold the descriptor too, so closing alone would not release it.
func unlock(file *os.File) error {
	return errors.Join(syscall.Flock(int(file.Fd()), syscall.LOCK_UN), file.Close())
}
