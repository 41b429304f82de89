package frontmatter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// The errors of a Directory. Callers match them with errors.Is.
var (
	ErrOutside = errors.New("a symbolic link leads out of the project")
	ErrNotFile = errors.New("it has another type of file than is needed here")
	ErrTooLong = errors.New("the file is too long")
)

// A Directory gives access to the files of agents or skills. [OpenInside] and
// [OpenTrusted] make it. It is safe for concurrent use. The caller closes it.
type Directory struct {
	path string
	// root confines the names to a project. Nil: links may lead anywhere.
	root *os.Root
	sub  string // the directory, relative to root
}

// OpenInside returns the directory sub of the project folder base. A symbolic link on
// the path to a file must be relative and must not lead out of base. The directory need
// not exist. The caller closes the Directory.
func OpenInside(base, sub string) (*Directory, error) {
	root, err := os.OpenRoot(base)
	if err != nil {
		return nil, err
	}
	return &Directory{path: filepath.Join(base, sub), root: root, sub: sub}, nil
}

// OpenTrusted returns a directory in which symbolic links may lead anywhere. The
// directory need not exist.
func OpenTrusted(dir string) *Directory { return &Directory{path: dir} }

// Close releases the Directory.
func (d *Directory) Close() {
	if d.root != nil {
		d.root.Close()
	}
}

// Path returns the path of a name in the directory, for texts. An empty name stands for
// the directory itself.
func (d *Directory) Path(name string) string { return filepath.Join(d.path, name) }

// Stat describes the file of a name and follows symbolic links. It returns ErrOutside
// for a link that leads out of the project.
func (d *Directory) Stat(name string) (fs.FileInfo, error) {
	if d.root == nil {
		return os.Stat(d.Path(name))
	}
	info, err := d.root.Stat(filepath.Join(d.sub, name))
	return info, confined(err)
}

// List returns at most limit entries of the directory of a name, sorted by name, and
// whether there are more. An empty name stands for the directory itself. List returns
// ErrNotFile if the name is not a directory.
func (d *Directory) List(name string, limit int) (entries []fs.DirEntry, more bool, err error) {
	f, err := d.open(name, fs.FileMode.IsDir)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	entries, err = f.ReadDir(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	more = len(entries) > limit
	entries = entries[:min(len(entries), limit)]
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, more, nil
}

// Read returns the content of a file. It returns ErrTooLong for a file of more than
// limit bytes, and ErrNotFile for anything but a regular file.
func (d *Directory) Read(name string, limit int64) ([]byte, error) {
	f, err := d.open(name, fs.FileMode.IsRegular)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w: more than %d bytes: shorten it", ErrTooLong, limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// open opens the file of a name. It checks the mode with accepts before it opens the file,
// so that it never opens a device, and again after. A pipe that replaces the file between
// the two checks does not block it.
func (d *Directory) open(name string, accepts func(fs.FileMode) bool) (*os.File, error) {
	info, err := d.Stat(name)
	if err != nil {
		return nil, err
	}
	if !accepts(info.Mode()) {
		return nil, fmt.Errorf("%w: %s", ErrNotFile, fileType(info))
	}
	const flags = os.O_RDONLY | syscall.O_NONBLOCK
	var f *os.File
	if d.root == nil {
		f, err = os.OpenFile(d.Path(name), flags, 0)
	} else {
		f, err = d.root.OpenFile(filepath.Join(d.sub, name), flags, 0)
	}
	if err != nil {
		return nil, confined(err)
	}
	if info, err = f.Stat(); err == nil && !accepts(info.Mode()) {
		err = fmt.Errorf("%w: %s", ErrNotFile, fileType(info))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// fileType returns the type of a file as a text.
func fileType(info fs.FileInfo) string {
	switch mode := info.Mode(); {
	case mode.IsDir():
		return "a directory"
	case mode.IsRegular():
		return "a regular file"
	default:
		return "a pipe, a socket or a device"
	}
}

// confined returns ErrOutside for the error with which an os.Root refuses a link, and any
// other error unchanged. The error of os.Root has no sentinel. confined recognizes it
// because every other error of an os.Root wraps a syscall.Errno.
func confined(err error) error {
	if err == nil {
		return nil
	}
	if _, system := errors.AsType[syscall.Errno](err); system {
		return err
	}
	return fmt.Errorf("%w: replace the link by the file, or by a relative link to a file in the project", ErrOutside)
}
