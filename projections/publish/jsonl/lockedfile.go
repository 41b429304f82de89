package jsonl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/publish"
)

// A lockedFile is an open file that this process has locked.
type lockedFile struct {
	file *os.File
	// size is the number of durable bytes, all in whole lines.
	size int64
}

// isAtPath reports whether the open file is the one at path. It returns false if
// either cannot be examined.
func (h lockedFile) isAtPath(path string) bool {
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	here, err := h.file.Stat()
	return err == nil && os.SameFile(there, here)
}

// acquire opens or creates, locks and repairs the file at path, and syncs its folder
// so that a new name is durable. It returns the IDs of the records in it that may be
// published again. It reuses current, which is locked already, if that is the file at
// path. After an error it leaves current open.
func acquire(path string, at events.Position, current *os.File) (lockedFile, map[string]bool, error) {
	if current != nil && (lockedFile{file: current}).isAtPath(path) {
		size, ids, err := repair(current, at)
		return lockedFile{current, size}, ids, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return lockedFile{}, nil, err
	}
	size, ids, err := lockAndRepair(file, at)
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	if err != nil {
		return lockedFile{}, nil, errors.Join(fmt.Errorf("open %s: %w", path, err), publish.CloseLocked(file))
	}
	return lockedFile{file, size}, ids, nil
}

// lockAndRepair locks a regular file and repairs it. It returns an ErrForeign for any
// other file and an ErrInUse for a locked one.
func lockAndRepair(file *os.File, at events.Position) (int64, map[string]bool, error) {
	about, err := file.Stat()
	if err != nil {
		return 0, nil, err
	}
	if !about.Mode().IsRegular() {
		return 0, nil, fmt.Errorf("%w: it is no regular file", ErrForeign)
	}
	locked, err := publish.TryLock(file)
	if err == nil && !locked {
		err = ErrInUse
	}
	if err != nil {
		return 0, nil, err
	}
	return repair(file, at)
}

// repair truncates a partial line at the end of a file, syncs the file, and returns
// its size and the IDs of the records that may be published again.
func repair(file *os.File, at events.Position) (int64, map[string]bool, error) {
	about, err := file.Stat()
	if err != nil {
		return 0, nil, err
	}
	found, err := tail(file, about.Size(), at)
	if err == nil && found.size < about.Size() {
		err = file.Truncate(found.size)
	}
	if err != nil {
		return 0, nil, err
	}
	// An earlier process may have written lines that it did not sync.
	return found.size, found.ids, file.Sync()
}

// syncFolder syncs a folder, so that a new name in it is durable.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
