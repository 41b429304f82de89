package pebblefiles

import (
	"io"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ReadOnly returns a file system that refuses every change with EROFS. Its locks
// always succeed and exclude no process: the caller ensures that no process writes.
func ReadOnly(storage vfs.FS) vfs.FS { return readOnlyFS{storage} }

// A readOnlyFS is the file system of ReadOnly.
type readOnlyFS struct{ vfs.FS }

// errReadOnly returns the error of a refused change.
func errReadOnly(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: syscall.EROFS} }

// Create is refused. So are all other methods that change a file or a folder.
func (readOnlyFS) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly("create", name)
}

func (readOnlyFS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnly("open", name)
}

func (readOnlyFS) ReuseForWrite(_, name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly("create", name)
}

func (readOnlyFS) Link(_, name string) error                 { return errReadOnly("link", name) }
func (readOnlyFS) Rename(_, name string) error               { return errReadOnly("rename", name) }
func (readOnlyFS) Remove(name string) error                  { return errReadOnly("remove", name) }
func (readOnlyFS) RemoveAll(name string) error               { return errReadOnly("remove", name) }
func (readOnlyFS) MkdirAll(name string, _ fs.FileMode) error { return errReadOnly("make", name) }
func (readOnlyFS) Lock(string) (io.Closer, error)            { return io.NopCloser(nil), nil }
func (r readOnlyFS) Unwrap() vfs.FS                          { return r.FS }

// ReportDamages returns a file system over storage. A read of damaged bytes of a
// table returns the Damage and no bytes; Pebble then skips the block. It matches
// files by name, in any folder. It ignores damages without a length.
func ReportDamages(storage vfs.FS, damages []*Damage) vfs.FS {
	a := damagedFS{FS: storage, damages: map[string][]*Damage{}}
	for _, d := range damages {
		if KindOf(d.File) == Table && d.Length > 0 {
			a.damages[d.File] = append(a.damages[d.File], d)
		}
	}
	return a
}

// A damagedFS is the file system of ReportDamages.
type damagedFS struct {
	vfs.FS
	damages map[string][]*Damage // by name of the table
}

// Open opens a file. A table with damages is opened as a damagedFile.
func (a damagedFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	file, err := a.FS.Open(name, options...)
	if damages := a.damages[a.PathBase(name)]; err == nil && len(damages) > 0 {
		return &damagedFile{file, damages}, nil
	}
	return file, err
}

// Unwrap returns the file system below.
func (a damagedFS) Unwrap() vfs.FS { return a.FS }

// A damagedFile is a table with damaged bytes. Pebble reads tables only with ReadAt.
type damagedFile struct {
	vfs.File
	damages []*Damage
}

// ReadAt reads like the table, unless the bytes overlap a Damage. It then returns the
// first such Damage as its error, and no bytes.
func (h *damagedFile) ReadAt(p []byte, at int64) (int, error) {
	for _, d := range h.damages {
		if at < d.Offset+d.Length && d.Offset < at+int64(len(p)) {
			return 0, d
		}
	}
	return h.File.ReadAt(p, at)
}

// Fd returns no descriptor, so that every read uses ReadAt.
func (h *damagedFile) Fd() uintptr { return vfs.InvalidFd }
