package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Enter returns the directory of the target, opened, for the caller to close.
// Nothing outside it can be reached through it.
func (t Target) Enter() (*os.Root, error) {
	outer, done, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer done()
	return outer.OpenRoot(t.name())
}

// enter returns the directory that the target is worked through, and how to
// let go of it.
func (t Target) enter() (*os.Root, func(), error) {
	if t.External == "" {
		return t.root.root, func() {}, nil
	}
	outer, err := os.OpenRoot(t.base)
	if err != nil {
		return nil, nil, err
	}
	return outer, func() { outer.Close() }, nil
}

// name returns the path of the target as seen from where it is worked through.
func (t Target) name() string { return relative(t.base, t.Path) }

// Stat returns what there is at the target.
func (t Target) Stat() (fs.FileInfo, error) {
	outer, done, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer done()
	return outer.Stat(t.name())
}

// Open opens the target for reading. It returns an ErrNotRegular if it is
// anything but a regular file, and does not wait for the other end of a pipe.
func (t Target) Open() (*os.File, error) {
	outer, done, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer done()
	return openRegular(outer, t.name(), os.O_RDONLY)
}

// openRegular opens a regular file of a directory.
func openRegular(in *os.Root, name string, flag int) (*os.File, error) {
	f, err := in.OpenFile(name, flag|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: %w: %s", name, ErrNotRegular, info.Mode().Type())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadAll returns the content of the target. It returns an ErrTooLarge if that
// is longer than limit.
func (t Target) ReadAll(limit int64) ([]byte, error) {
	f, err := t.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("read %s: %w: over %d bytes", t.Resource, ErrTooLarge, limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// ReadDir returns the entries of the target, a directory, in the order of
// their names. An entry that is a symbolic link is what the link leads to;
// one that leads out of the workspace, or nowhere, is not among them.
func (t Target) ReadDir() ([]fs.FileInfo, error) {
	outer, done, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer done()
	entries, err := fs.ReadDir(outer.FS(), t.name())
	if err != nil {
		return nil, err
	}
	infos := make([]fs.FileInfo, 0, len(entries))
	for _, entry := range entries {
		info, err := t.entry(outer, entry)
		switch {
		case err == nil:
			infos = append(infos, info)
		case entry.Type()&fs.ModeSymlink == 0 && !errors.Is(err, fs.ErrNotExist): // it went away meanwhile
			return nil, err
		}
	}
	return infos, nil
}

// entry returns what an entry leads to, under the entry's own name.
func (t Target) entry(outer *os.Root, entry fs.DirEntry) (fs.FileInfo, error) {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.Info()
	}
	at, err := canonical(filepath.Join(t.Path, entry.Name()))
	if err != nil {
		return nil, err
	}
	if !within(t.base, at.path) {
		return nil, ErrLocationEscape
	}
	info, err := outer.Stat(relative(t.base, at.path))
	if err != nil {
		return nil, err
	}
	return renamed{info, entry.Name()}, nil
}

// renamed is what a file is, under another name.
type renamed struct {
	fs.FileInfo
	name string
}

func (r renamed) Name() string { return r.name }
