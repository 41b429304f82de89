package pebblefiles

import (
	"io"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ReadOnly returns a file system through which nothing is changed. A lock is
// given to everyone: whoever opens a database through it has seen to it that
// nobody writes.
func ReadOnly(storage vfs.FS) vfs.FS { return readOnly{storage} }

type readOnly struct{ vfs.FS }

func refused(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: syscall.EROFS} }

func (readOnly) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refused("create", name)
}

func (readOnly) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, refused("open", name)
}

func (readOnly) ReuseForWrite(_, name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refused("create", name)
}

func (readOnly) Link(_, name string) error                 { return refused("link", name) }
func (readOnly) Rename(_, name string) error               { return refused("rename", name) }
func (readOnly) Remove(name string) error                  { return refused("remove", name) }
func (readOnly) RemoveAll(name string) error               { return refused("remove", name) }
func (readOnly) MkdirAll(name string, _ fs.FileMode) error { return refused("make", name) }
func (readOnly) Lock(string) (io.Closer, error)            { return io.NopCloser(nil), nil }
func (r readOnly) Unwrap() vfs.FS                          { return r.FS }

// Around returns a file system that answers each read of what is damaged with
// the Damage. Files go by their name alone, whatever folder they are in.
func Around(storage vfs.FS, damages []*Damage) vfs.FS {
	a := around{FS: storage, damages: map[string][]*Damage{}}
	for _, d := range damages {
		if KindOf(d.File) == Table && d.Length > 0 {
			a.damages[d.File] = append(a.damages[d.File], d)
		}
	}
	return a
}

type around struct {
	vfs.FS
	damages map[string][]*Damage
}

func (a around) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := a.FS.Open(name, options...)
	if damages := a.damages[a.PathBase(name)]; err == nil && len(damages) > 0 {
		return &holed{file, damages}, nil
	}
	return file, err
}

func (a around) Unwrap() vfs.FS { return a.FS }

// A holed file is one with parts that cannot be read. A table is only ever read
// at offsets.
type holed struct {
	vfs.File
	damages []*Damage
}

func (h *holed) ReadAt(p []byte, at int64) (int, error) {
	for _, d := range h.damages {
		if at < d.Offset+d.Length && d.Offset < at+int64(len(p)) {
			return 0, d
		}
	}
	return h.File.ReadAt(p, at)
}

// Fd hides the file from whoever would read it past ReadAt.
func (h *holed) Fd() uintptr { return vfs.InvalidFd }
