package pebblefiles

import (
	"errors"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Opening a database again writes the records of its logs into tables and begins
// new logs, so this is the room that it needs besides the size of its logs.
const (
	roomBytes = 4 << 20
	roomFiles = 16
)

// Exhausted reports whether an error says that the disk is full, a quota is used up
// or no more files may be opened: that is over once there is room.
func Exhausted(err error) bool {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// The pauses between two looks for room.
const (
	firstLook = 20 * time.Millisecond
	laterLook = 5 * time.Second
)

// AwaitRoom calls room, with growing pauses, until it returns nil, and then resume,
// until that returns true. It returns true then, and false as soon as lost or closing
// is closed.
func AwaitRoom(lost, closing <-chan struct{}, room func() error, resume func() bool) bool {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = firstLook, laterLook
	for {
		select {
		case <-lost:
			return false
		case <-closing:
			return false
		case <-time.After(waits.NextBackOff()):
		}
		if room() == nil && resume() {
			return true
		}
	}
}

// Room returns nil if a file system has room to open the database in a folder
// again: for as many bytes as its logs have, and for some open files. It tries that
// with a file of the name, which it removes. A kill can leave that file.
func Room(storage vfs.FS, dir, name string) (err error) {
	list, err := List(storage, dir)
	if err != nil {
		return err
	}
	wanted := int64(roomBytes)
	for _, f := range list {
		if f.Kind != Log {
			continue
		}
		info, err := storage.Stat(storage.PathJoin(dir, f.Name))
		if err != nil {
			return err
		}
		wanted += info.Size()
	}
	file, err := storage.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	open := []vfs.File{file}
	defer func() {
		for _, f := range open {
			err = errors.Join(err, f.Close())
		}
		err = errors.Join(err, storage.Remove(name))
	}()
	for range roomFiles {
		f, err := storage.Open(name)
		if err != nil {
			return err
		}
		open = append(open, f)
	}
	for zeros := make([]byte, 1<<20); wanted > 0; wanted -= int64(len(zeros)) {
		if _, err := file.Write(zeros[:min(wanted, int64(len(zeros)))]); err != nil {
			return err
		}
	}
	return file.Sync()
}
