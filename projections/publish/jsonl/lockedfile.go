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

// isAtPath reports whether the open file is the file at path. It returns false if one
// of the two cannot be examined.
func (h lockedFile) isAtPath(path string) bool {
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	here, err := h.file.Stat()
	return err == nil && os.SameFile(there, here)
}

// acquire opens or creates the file at path, locks it and repairs it. It syncs the
// folder, so that a new name is durable. If current is the file at path, acquire repairs
// and returns it instead of opening the file again; current is a file that the caller has
// locked, or nil. After an error current stays open.
//
// at is the position of the consumer. acquire returns the IDs of records in the file that
// the consumer may publish again: at least those of all records after at.
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

// lockAndRepair locks a regular file and repairs it. It returns the results of
// repair. The error is an ErrForeign if the file is not regular, and an ErrInUse if
// another process has locked it.
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

// repair truncates a partial line at the end of a file and syncs the file. It returns
// the size of the file and the IDs of records in it. They include all records after
// the position of the consumer, which may be published again.
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
