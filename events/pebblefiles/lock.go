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

// Disk is the file system of this machine: vfs.Default, with locks that readers
// can share. On Linux a lock belongs to the file that was opened for it and not to
// the process, so that a process which opens a folder a second time is refused
// too, by whatever name, and does not lose the lock of the first.
var Disk vfs.FS = disk{vfs.Default}

// locked are the folders in which this process holds a lock on [Disk]. Whatever
// name a folder is opened by, through a symbolic link, a mount or letters of
// another case, it is the same device and inode. A lock that belongs to the
// process does not keep the process itself out, and is lost when any handle of
// the file is closed; and a lock file that was removed keeps nobody out.
var lockedFolders struct {
	sync.Mutex
	folders []fs.FileInfo
}

// Lock locks a file for a writer, and makes it if it is not there. Two files of one
// folder are not locked at once.
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

// A lockedFolder is a lock in a folder that is in locked.
type lockedFolder struct {
	io.Closer
	folder fs.FileInfo
}

func (l lockedFolder) Close() error {
	lockedFolders.Lock()
	defer lockedFolders.Unlock()
	lockedFolders.folders = slices.DeleteFunc(lockedFolders.folders, func(f fs.FileInfo) bool { return os.SameFile(f, l.folder) })
	return l.Closer.Close()
}

// The errors of a lock that cannot be had now. Neither is about the lock file
// itself; an error that is, is an *fs.PathError.
var (
	ErrLocked  = errors.New("it is open already")
	ErrReading = errors.New("other processes are reading it")
)

// The timing of a writer that waits for readers.
const (
	lockPause  = 5 * time.Millisecond
	lockNotice = time.Second // after which waiting is announced
)

// LockWait is how long a writer waits for readers.
const LockWait = 20 * time.Second

// Lock locks a file for a writer. It waits up to 20 seconds for readers, which
// share the lock while they open a database. A reader that arrives while a writer
// waits lets the writer go first, for a second. Lock calls waiting once if that takes longer than a second;
// waiting may be nil. It does not wait for another writer. A file system other than [Disk] locks as it does.
func Lock(ctx context.Context, storage vfs.FS, path string, waiting func()) (io.Closer, error) {
	began, told := time.Now(), waiting == nil
	var announced io.Closer
	defer func() {
		if announced != nil {
			_ = announced.Close() // of a lock that was held to wait
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

// A sharer is a file system whose locks readers can share.
type sharedLocker interface {
	lockShared(path string) (io.Closer, error)
	announce(path string) io.Closer // of a writer that waits; nil: it cannot
}

// LockShared locks a file that is there for a reader. It changes nothing. An
// ErrLocked says that a writer has it. Where the file is not there, may not be read
// or cannot be locked, LockShared returns nil and no error: nothing keeps a writer
// out then. A file system other than [Disk], and Disk on other systems than Linux,
// gives the lock to one reader at a time.
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

// lockedOr returns an error of locking a file as an ErrLocked, unless it is about
// the file.
func lockedOr(err error) error {
	if _, aboutFile := errors.AsType[*fs.PathError](err); aboutFile {
		return err
	}
	return fmt.Errorf("%w: %w", ErrLocked, err)
}
