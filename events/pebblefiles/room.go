package pebblefiles

import (
	"errors"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The room that reopening a database needs besides the size of its logs. Pebble
// writes the records of the logs to tables and starts new logs.
const (
	roomBytes = 4 << 20 // bytes
	roomFiles = 16      // open files
)

// Exhausted reports whether an error means a full disk, an exceeded quota or too many
// open files. These conditions end when there is room again; a caller may then retry.
func Exhausted(err error) bool {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// Room returns nil if a file system has room to reopen the database in a folder: as
// many bytes as its logs have and 4 MiB more, and 16 open files. It tests that with a
// temporary file of the given name, which it writes, syncs and removes. A kill may
// leave the file.
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
