package workspace

import (
	"io/fs"
	"os"
)

// Stat returns the information of the file, as [Handle.Stat] does.
func (t ResolvedPath) Stat() (fs.FileInfo, error) {
	h, err := t.Acquire()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.Stat()
}

// ReadAll returns the content of the file. It returns ErrTooLarge if the file has more
// than limit bytes, and ErrNotRegular for anything but a regular file. It does not wait
// for the writer of a pipe.
func (t ResolvedPath) ReadAll(limit int64) ([]byte, error) {
	h, err := t.Acquire()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.ReadAll(limit)
}

// Write waits for other writes to the path, acquires a Handle and writes as
// [Handle.Write] does.
func (t ResolvedPath) Write(make func(before *os.File) ([]byte, error)) (existed bool, err error) {
	defer t.root.locks.acquire(t.Path)()
	h, err := t.Acquire()
	if err != nil {
		return false, err
	}
	defer h.Close()
	return h.write(make)
}

// Replace waits for other writes to the path, acquires a Handle and replaces as
// [Handle.Replace] does.
func (t ResolvedPath) Replace(before, after []byte) error {
	defer t.root.locks.acquire(t.Path)()
	h, err := t.Acquire()
	if err != nil {
		return err
	}
	defer h.Close()
	return h.replace(before, after)
}

// Remove removes the file and reports whether it existed. It returns ErrNotRegular for
// anything but a regular file.
func (t ResolvedPath) Remove() (existed bool, err error) {
	defer t.root.locks.acquire(t.Path)()
	h, err := t.Acquire()
	if err != nil {
		return false, err
	}
	defer h.Close()
	return h.remove()
}
