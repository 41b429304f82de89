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

// Disk is vfs.Default with locks that readers can share. On Linux a lock belongs to the
// open file and not to the process: a process that opens a folder a second time, by any
// name, is refused and does not lose its first lock.
var Disk vfs.FS = disk{vfs.Default}

// lockedFolders are the folders in which this process holds a lock on [Disk]. They are
// compared by device and inode, because a folder can have several names: symbolic links,
// mounts, letters of another case. The list is needed where locks belong to the process,
// which such locks do not exclude from itself, and where a lock file was removed.
var lockedFolders struct {
	sync.Mutex
	folders []fs.FileInfo
}

// Lock locks a file for a writer and creates it if it is missing. Only one file of a
// folder can be locked at a time.
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

// The errors of a lock that is taken. An error about the lock file itself is an
// *fs.PathError.
var (
	ErrLocked  = errors.New("it is open already")
	ErrReading = errors.New("other processes are reading it")
)

// The timing of a writer that waits for readers.
const (
	lockPause  = 5 * time.Millisecond
	lockNotice = time.Second // delay until a waiting writer calls waiting
)

// LockWait is the time that a writer waits for readers.
const LockWait = 20 * time.Second

// Lock locks a file for a writer. It waits up to LockWait for readers, which share the
// lock while they open a database, but not for another writer. A reader that arrives
// meanwhile lets the writer go first, for a second. Lock calls waiting, if not nil, once
// after a second. It returns ErrLocked, ErrReading or the cause of the context. On a file
// system other than [Disk] it uses that file system's lock.
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

// A sharedLocker is a file system whose locks readers can share.
type sharedLocker interface {
	lockShared(path string) (io.Closer, error)
	announce(path string) io.Closer // tells readers that a writer waits, until closed; nil: it cannot
}

// LockShared locks an existing file for a reader and changes nothing. It returns
// ErrLocked if a writer has the lock. If the file is missing, unreadable or cannot be
// locked, it returns nil and no error: then no lock excludes a writer. On a file system
// other than [Disk], and on systems other than Linux, only one reader at a time gets the
// lock.
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

// lockedOr wraps an error of locking as ErrLocked, unless it is about the file.
func lockedOr(err error) error {
	if _, aboutFile := errors.AsType[*fs.PathError](err); aboutFile {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLocked, err)
}
