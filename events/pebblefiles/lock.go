package pebblefiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Disk is vfs.Default with locks that readers can share. On Linux a lock belongs to
// the open file and not to the process. A process that locks a folder a second time,
// by any name, gets ErrLocked, and its first lock stays.
var Disk vfs.FS = disk{vfs.Default}

// lockedFolders lists the folders in which this process has a writer's lock on
// [Disk]; its mutex guards the list. The folders are compared by device and inode,
// because a folder can have several names: symbolic links, mounts, letters of another
// case. The list is needed for two cases: on systems where a lock belongs to the
// process, it does not exclude the process itself; and a lock on a file that was then
// removed does not exclude a new file.
var lockedFolders struct {
	sync.Mutex
	folders []fs.FileInfo
}

// Lock locks a file for a writer and creates it if it is missing. Only one file of a
// folder can be locked at a time. It returns ErrLocked or, where the system can tell,
// ErrReading.
func (d disk) Lock(path string) (io.Closer, error) {
	lockedFolders.Lock()
	defer lockedFolders.Unlock()
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(lockedFolders.folders, func(f fs.FileInfo) bool { return os.SameFile(f, folder) }) {
		return nil, fmt.Errorf("%w in this process", ErrLocked)
	}
	lock, err := d.lock(path)
	if err != nil {
		return nil, err
	}
	lockedFolders.folders = append(lockedFolders.folders, folder)
	return lockedFolder{lock, folder}, nil
}

// A lockedFolder is a lock whose folder is in lockedFolders.
type lockedFolder struct {
	io.Closer
	folder fs.FileInfo
}

// Close removes the folder from lockedFolders and releases the lock.
func (l lockedFolder) Close() error {
	lockedFolders.Lock()
	defer lockedFolders.Unlock()
	lockedFolders.folders = slices.DeleteFunc(lockedFolders.folders, func(f fs.FileInfo) bool { return os.SameFile(f, l.folder) })
	return l.Closer.Close()
}

// The errors of a lock that another user has. ErrLocked: a writer has it. ErrReading:
// readers share it. An error about the lock file itself is an *fs.PathError.
var (
	ErrLocked  = errors.New("it is open already")
	ErrReading = errors.New("other processes are reading it")
)

// The timing of a writer that waits for readers.
const (
	lockPause  = 5 * time.Millisecond // between two attempts to get the lock
	lockNotice = time.Second          // time after which Lock calls its argument waiting
)

// LockWait is the time that a writer waits for readers.
const LockWait = 20 * time.Second

// Lock locks a file for a writer. It waits up to LockWait for readers, which share the
// lock while they open a database. It does not wait for another writer. While Lock
// waits, it announces the writer, and readers that arrive later let the writer go first,
// for at most a second.
//
// If the function waiting is not nil, Lock calls it once, after a second. Lock returns
// ErrLocked if another writer has the lock, ErrReading if readers keep it for LockWait,
// or the cause of ctx. On a file system other than [Disk] it uses the lock of that file
// system.
func Lock(ctx context.Context, storage vfs.FS, path string, waiting func()) (io.Closer, error) {
	began, told := time.Now(), waiting == nil
	var announced io.Closer
	defer func() {
		if announced != nil {
			_ = announced.Close() // the announcement holds no data
		}
	}()
	for {
		lock, err := storage.Lock(path)
		if err == nil || !errors.Is(err, ErrReading) || time.Since(began) > LockWait {
			return lock, err
		}
		if s, ok := storage.(sharedLocker); ok && announced == nil {
			announced = s.announce(path)
		}
		if !told && time.Since(began) > lockNotice {
			waiting()
			told = true
		}
		timer := time.NewTimer(lockPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// A sharedLocker is a file system whose locks readers can share. disk implements it
// on Linux.
type sharedLocker interface {
	// lockShared locks an existing file for a reader.
	lockShared(path string) (io.Closer, error)
	announce(path string) io.Closer // shows readers that a writer waits, until closed; nil: it failed
}

// LockShared locks an existing file for a reader, without a change to the file. It
// returns ErrLocked if a writer has the lock. If the file is missing, unreadable or
// cannot be locked, it returns a nil lock and no error. Then no lock excludes a writer,
// and the caller must itself detect changes of the files. On a file system other than
// [Disk], and on systems other than Linux, only one reader at a time gets the lock.
func LockShared(storage vfs.FS, path string) (lock io.Closer, err error) {
	if s, ok := storage.(sharedLocker); ok {
		lock, err = s.lockShared(path)
	} else if _, err = storage.Stat(path); err == nil {
		if lock, err = storage.Lock(path); err != nil {
			err = lockedOr(err)
		}
	}
	if _, aboutFile := errors.AsType[*fs.PathError](err); aboutFile || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lock, err
}

// lockedOr converts an error of locking. An *fs.PathError is about the lock file
// itself, and lockedOr returns it unchanged. Any other error means that the lock is
// held, and lockedOr returns an ErrLocked.
func lockedOr(err error) error {
	if _, aboutFile := errors.AsType[*fs.PathError](err); aboutFile {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLocked, err)
}
