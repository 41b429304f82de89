package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// A Tree is an open directory. It opens files below it by relative paths with slashes
// and never follows a symbolic link. It is safe for concurrent use. The caller closes
// it.
type Tree struct{ dir *os.File }

// Tree returns the opened directory as a Tree, which the caller closes. It returns an
// error for a file.
func (h *Handle) Tree() (*Tree, error) {
	info, err := h.Stat()
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: h.resolved.Resource, Err: unix.ENOTDIR}
	}
	dir, err := openAt(h.node, ".", pathFlags|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	return &Tree{dir}, nil
}

// Close closes the directory.
func (t *Tree) Close() error { return t.dir.Close() }

// openParent opens the directory that contains name.
func (t *Tree) openParent(name string) (*os.File, error) {
	dir, err := openAt(t.dir, ".", pathFlags|unix.O_DIRECTORY)
	for _, part := range splitPath(path.Dir(name)) {
		if err != nil {
			return nil, err
		}
		above := dir
		dir, err = openAt(above, part, pathFlags|unix.O_DIRECTORY)
		above.Close()
	}
	return dir, err
}

// open opens name with the given flags. It returns fs.ErrInvalid for a path that is not
// valid in the sense of fs.ValidPath.
func (t *Tree) open(name string, flags int) (*os.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	dir, err := t.openParent(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return openAt(dir, path.Base(name), flags)
}

// Lstat returns the information of name, which may be a symbolic link.
func (t *Tree) Lstat(name string) (fs.FileInfo, error) {
	f, err := t.open(name, pathFlags)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return renamedInfo{info, path.Base(name)}, nil
}

// Open opens a regular file for reading. It returns ErrNotRegular for any other file,
// and ErrChanged if the file was replaced while it was opened. It does not wait for the
// writer of a pipe. The caller closes the file.
func (t *Tree) Open(name string) (*os.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	dir, err := t.openParent(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	node, err := openAt(dir, path.Base(name), pathFlags) // to open a device for reading can have an effect
	if err != nil {
		return nil, err
	}
	defer node.Close()
	info, err := node.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w: %s", name, ErrNotRegular, info.Mode().Type())
	}
	if err != nil {
		return nil, err
	}
	f, err := openAt(dir, path.Base(name), unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(info, now) {
		err = fmt.Errorf("open %s: %w: it was replaced by another file", name, ErrChanged)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	_ = f.SetReadDeadline(time.Now().Add(readTimeout)) // an error for a file on a disk, which does not wait
	return f, nil
}

// readDirBatch is the number of directory entries that are read at once.
const readDirBatch = 1024

// Entries yields the entries of a directory in the order of the file system. It yields
// an error last.
func (t *Tree) Entries(name string) iter.Seq2[fs.DirEntry, error] {
	return func(yield func(fs.DirEntry, error) bool) {
		dir, err := t.openDir(name)
		if err != nil {
			yield(nil, err)
			return
		}
		defer dir.Close()
		for {
			entries, err := dir.ReadDir(readDirBatch)
			for _, entry := range entries {
				if !yield(entry, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// openDir opens a directory for reading its entries. The name of the returned file is a
// path under /dev/fd. For an entry whose type the file system does not report, package
// os calls lstat on a path below that name.
func (t *Tree) openDir(name string) (*os.File, error) {
	dir, err := t.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("/dev/fd/%d", fd)), nil
}
