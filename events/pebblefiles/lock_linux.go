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

// A disk is vfs.Default with locks of open file descriptions, which readers can
// share.
type disk struct{ vfs.FS }

// lock locks a file for a writer. It opens the file again if the previous owner
// removed it between the open and the lock. On a file system without such locks it
// uses the lock of vfs.Default.
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

// lockTries bounds the attempts to get a lock that is released at the same time.
const lockTries = 100

// lockYield is the time for which a reader lets a waiting writer go first.
const lockYield = time.Second

// lockShared locks an existing file for a reader. If a writer has announced itself,
// lockShared lets the writer go first: it waits for up to lockYield, and returns
// ErrLocked if the writer gets the lock.
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

// waitingByte is the offset of a byte in the lock file. A waiting writer locks this
// byte to announce itself to readers. The lock of the folder covers all bytes before
// it. Locks may cover bytes beyond the end of a file.
const waitingByte = 1 << 40

// announce shows readers that a writer waits, until the caller closes the result. If
// another writer has announced itself, that announcement serves both writers. If the
// file cannot be opened, announce returns nil.
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

// Unwrap returns the file system below.
func (d disk) Unwrap() vfs.FS { return d.FS }

// A descriptorLock is a file with a lock of its open file description.
type descriptorLock struct{ *os.File }

// Close releases the lock and closes the file. It releases the lock explicitly,
// because a forked child that has not called exec yet shares the description and
// would keep the lock.
func (l descriptorLock) Close() error {
	err := syscall.FcntlFlock(l.Fd(), setLock, &syscall.Flock_t{Type: syscall.F_UNLCK})
	return errors.Join(err, l.File.Close())
}

// lockFile locks a file without waiting; the lock lasts until the description is
// closed. It returns ErrLocked or ErrReading if another description has a lock,
// ErrUnsupported if the file system has no such locks, and otherwise an
// *os.PathError.
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

// readersOrWriter returns ErrLocked if a writer has the lock and ErrReading
// otherwise. It also returns ErrReading if the lock was just released, which costs
// the caller one retry.
func readersOrWriter(file *os.File) error {
	found := syscall.Flock_t{Type: syscall.F_RDLCK, Len: waitingByte}
	if err := syscall.FcntlFlock(file.Fd(), getLock, &found); err == nil && found.Type != syscall.F_WRLCK {
		return ErrReading
	}
	return ErrLocked
}

// Users returns the IDs of the other processes that have a file open. It finds only
// the processes whose descriptors this process may read in /proc.
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
