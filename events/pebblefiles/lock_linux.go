package pebblefiles

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The fcntl commands for locks of an open file description, which package syscall lacks.
const (
	setLock = 37 // F_OFD_SETLK
	getLock = 36 // F_OFD_GETLK
)

type disk struct{ vfs.FS }

// lock locks a file for a writer. It retries if the previous owner removed the file.
func (d disk) lock(path string) (io.Closer, error) {
	for range lockTries {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		err = lockFile(file, syscall.F_WRLCK)
		if err == nil && isAt(file, path) {
			return descriptorLock{file}, nil
		}
		if err = errors.Join(err, file.Close()); errors.Is(err, errors.ErrUnsupported) {
			return d.FS.Lock(path) // a lock of the process, which readers do not share
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, ErrLocked
}

// isAt reports whether path still names the open file: the previous owner of the lock
// may have removed it.
func isAt(file *os.File, path string) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

// lockTries bounds the attempts to get a lock that is released meanwhile.
const lockTries = 100

// lockYield is the time for which a reader lets a waiting writer go first.
const lockYield = time.Second

// lockShared locks a file for a reader.
func (disk) lockShared(path string) (io.Closer, error) {
	// Without O_NONBLOCK a named pipe in place of the file would block.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	for began := time.Now(); time.Since(began) < lockYield && writerWaits(file); {
		if err := readersOrWriter(file); errors.Is(err, ErrLocked) {
			return nil, errors.Join(err, file.Close())
		}
		time.Sleep(lockPause)
	}
	for range lockTries {
		if err = lockFile(file, syscall.F_RDLCK); err == nil {
			return descriptorLock{file}, nil
		}
		if !errors.Is(err, ErrReading) {
			break
		}
	}
	return nil, errors.Join(err, file.Close())
}

// waitingByte is the byte that a waiting writer locks, so that later readers let it go
// first. The lock proper covers all bytes before it.
const waitingByte = 1 << 40

// announce tells readers that a writer waits, until the result is closed. A second
// waiting writer shares the announcement of the first.
func (disk) announce(path string) io.Closer {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	_ = syscall.FcntlFlock(file.Fd(), setLock, &syscall.Flock_t{Type: syscall.F_WRLCK, Start: waitingByte, Len: 1})
	return descriptorLock{file}
}

// writerWaits reports whether a writer has announced itself.
func writerWaits(file *os.File) bool {
	found := syscall.Flock_t{Type: syscall.F_RDLCK, Start: waitingByte, Len: 1}
	return syscall.FcntlFlock(file.Fd(), getLock, &found) == nil && found.Type == syscall.F_WRLCK
}

func (d disk) Unwrap() vfs.FS { return d.FS }

// A descriptorLock is a file with a lock of its open file description.
type descriptorLock struct{ *os.File }

// Close releases the lock and closes the file. To close the file alone would not release
// the lock while a forked child, which inherits the description, has not called exec.
func (l descriptorLock) Close() error {
	err := syscall.FcntlFlock(l.Fd(), setLock, &syscall.Flock_t{Type: syscall.F_UNLCK})
	return errors.Join(err, l.File.Close())
}

// lockFile locks a file until it is closed.
func lockFile(file *os.File, kind int16) error {
	err := syscall.FcntlFlock(file.Fd(), setLock, &syscall.Flock_t{Type: kind, Len: waitingByte})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EACCES):
		return readersOrWriter(file)
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.EOPNOTSUPP):
		return errors.ErrUnsupported
	}
	return &os.PathError{Op: "lock", Path: file.Name(), Err: err}
}

// readersOrWriter returns ErrLocked if a writer has the lock and ErrReading otherwise,
// also if the lock was just released: a retry then costs one pause.
func readersOrWriter(file *os.File) error {
	found := syscall.Flock_t{Type: syscall.F_RDLCK, Len: waitingByte}
	if err := syscall.FcntlFlock(file.Fd(), getLock, &found); err == nil && found.Type != syscall.F_WRLCK {
		return ErrReading
	}
	return ErrLocked
}

// Users returns the other processes that have a file open, of which this process may
// read the descriptors.
func Users(path string) []int {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil
	}
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is valid
	var found []int
	for _, name := range open {
		target, err := os.Readlink(name)
		if err != nil || target != real {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(name, "/")[2])
		if err == nil && pid != os.Getpid() && !slices.Contains(found, pid) {
			found = append(found, pid)
		}
	}
	return found
}
