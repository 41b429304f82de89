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

// The commands of fcntl for locks of an open file description. Package syscall
// does not name them.
const (
	setLock = 37 // F_OFD_SETLK
	getLock = 36 // F_OFD_GETLK
)

type disk struct{ vfs.FS }

func (d disk) lock(path string) (io.Closer, error) {
	for range lockTries {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil, err
		}
		err = lockFile(file, syscall.F_WRLCK)
		if err == nil && isAt(file, path) {
			return file, nil
		}
		if err = errors.Join(err, file.Close()); errors.Is(err, errors.ErrUnsupported) {
			return d.FS.Lock(path) // of the process; no reader shares it
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, ErrLocked
}

// isAt reports whether a file is the one that a path names. Whoever had it locked
// before may have removed it.
func isAt(file *os.File, path string) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

// lockTries is how often a reader looks again at a lock that was given up while
// it looked.
const lockTries = 100

// lockYield is how long a reader lets a writer go first that waits for other
// readers.
const lockYield = time.Second

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
			return file, nil
		}
		if !errors.Is(err, ErrReading) {
			break
		}
	}
	return nil, errors.Join(err, file.Close())
}

// A lock is on all bytes before waitingByte. A writer that waits for readers locks
// that byte, so that readers who come later let it go first.
const waitingByte = 1 << 40

// announce tells readers that a writer waits, until what it returns is closed. A
// second writer that waits need not tell them too.
func (disk) announce(path string) io.Closer {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	_ = syscall.FcntlFlock(file.Fd(), setLock, &syscall.Flock_t{Type: syscall.F_WRLCK, Start: waitingByte, Len: 1})
	return file
}

// writerWaits reports whether a writer has announced itself.
func writerWaits(file *os.File) bool {
	found := syscall.Flock_t{Type: syscall.F_RDLCK, Start: waitingByte, Len: 1}
	return syscall.FcntlFlock(file.Fd(), getLock, &found) == nil && found.Type == syscall.F_WRLCK
}

func (d disk) Unwrap() vfs.FS { return d.FS }

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

// readersOrWriter tells readers from a writer. A lock that was given up meanwhile may
// have been that of a reader: to wait for it costs one pause.
func readersOrWriter(file *os.File) error {
	found := syscall.Flock_t{Type: syscall.F_RDLCK, Len: waitingByte}
	if err := syscall.FcntlFlock(file.Fd(), getLock, &found); err == nil && found.Type != syscall.F_WRLCK {
		return ErrReading
	}
	return ErrLocked
}

// Users returns the other processes that have a file open, as far as this one may
// know.
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
