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

// A Tree is an open directory. Files below it are reached by their path from
// there, with slashes, and never through a symbolic link. It is used by several
// goroutines at once and closed by the caller.
type Tree struct{ dir *os.File }

// Tree returns the directory that was found.
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

// Close lets go of the directory.
func (t *Tree) Close() error { return t.dir.Close() }

// openParent returns the directory that a path lies in, opened.
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

// open opens a path.
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

// Lstat returns what is at a path, which may be a symbolic link.
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

// Open opens a file for reading. It returns an ErrNotRegular if the path is
// anything but a regular file, and does not wait for the other end of a pipe.
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
		err = fmt.Errorf("open %s: %w: another file was put in its place", name, ErrChanged)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	_ = f.SetReadDeadline(time.Now().Add(readTimeout)) // an error for a file on a disk, which does not wait
	return f, nil
}

// readDirBatch is how many entries of a directory are read at once.
const readDirBatch = 1024

// Entries yields the entries of a directory, in the order in which the system
// has them. An error is the last thing it yields.
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

// openDir opens a directory for reading its entries. Its name is one by which
// the system finds it: where a file system does not say what kind an entry is,
// package os looks below that name.
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
