package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Handle is an open path. [ResolvedPath.Acquire] makes it, without following a
// symbolic link in the canonical path. A permission that is given while the Handle is
// open applies to the opened file: if a link, another directory or another file is at
// the path later, the methods return ErrChanged. A Handle belongs to one goroutine at a
// time. The caller closes it.
type Handle struct {
	resolved ResolvedPath
	dirInfos []fs.FileInfo // of each existing directory from the base down to dir
	dir      *os.File      // the last existing directory above the path
	missing  []string      // names of the directories between dir and the path that do not exist
	node     *os.File      // the file or directory, opened without reading it; nil if it does not exist
	info     fs.FileInfo   // of node
	readable *os.File      // the file open for reading; nil unless it is regular and may be read
	readErr  error         // why readable is nil although the file is regular
}

// Acquire opens the path and reads no content. It also returns a Handle for a path
// that does not exist. It returns ErrChanged if the path leads through a symbolic
// link now, or if the directory of the Root was replaced. The caller closes the
// Handle.
func (t ResolvedPath) Acquire() (*Handle, error) {
	base, err := t.root.openBase(t)
	if err != nil {
		return nil, err
	}
	h := &Handle{resolved: t, dir: base}
	if err := h.descend(); err != nil {
		h.Close()
		return nil, fmt.Errorf("open %s: %w", t.Resource, err)
	}
	return h, nil
}

// openBase returns a new descriptor of the directory from which a path is opened: the
// directory of the Root or, for an external path, "/". It returns ErrChanged if the
// directory of the Root was moved or replaced.
func (r *Root) openBase(t ResolvedPath) (*os.File, error) {
	if t.External != "" {
		return openAt(nil, "/", pathFlags|unix.O_DIRECTORY)
	}
	held, err := r.dir.Stat()
	if err != nil {
		return nil, err
	}
	now, err := os.Lstat(r.path)
	if err != nil || !os.SameFile(held, now) {
		return nil, fmt.Errorf("open %s: %w: the directory of the workspace was moved or replaced", r.path, ErrChanged)
	}
	return openAt(r.dir, ".", pathFlags|unix.O_DIRECTORY)
}

// descend opens each directory from h.dir down to the path, and the path itself.
func (h *Handle) descend() error {
	start := h.resolved.root.path
	if h.resolved.External != "" {
		start = "/"
	}
	names := splitPath(relativeTo(start, h.resolved.Path))
	if len(names) == 0 {
		names = []string{"."}
	}
	if err := h.recordDir(); err != nil {
		return err
	}
	last := len(names) - 1
	for i, name := range names[:last] {
		next, err := openAt(h.dir, name, pathFlags|unix.O_DIRECTORY)
		if errors.Is(err, fs.ErrNotExist) {
			h.missing = names[i:last]
			return nil
		}
		if err != nil {
			return err
		}
		h.dir.Close()
		h.dir = next
		if err := h.recordDir(); err != nil {
			return err
		}
	}
	return h.openLast(names[last])
}

// recordDir appends the identity of h.dir to h.dirInfos.
func (h *Handle) recordDir() error {
	info, err := h.dir.Stat()
	h.dirInfos = append(h.dirInfos, info)
	return err
}

// maxOpens is how often openLast opens a file that is replaced again and again.
const maxOpens = 100

// openLast opens name, the last name of the path, in h.dir. It returns nil if no such
// file exists. If the file is replaced while openLast opens it, openLast opens the new
// one.
func (h *Handle) openLast(name string) error {
	for range maxOpens {
		err := h.openNode(name)
		if err != nil || !errors.Is(h.readErr, ErrChanged) {
			return err
		}
		h.node.Close()
		h.node, h.info = nil, nil
	}
	return h.readErr
}

// openNode opens name in h.dir once, as openLast does. It sets h.readErr to an ErrChanged
// if the file was replaced meanwhile.
func (h *Handle) openNode(name string) (err error) {
	h.readErr = nil
	if h.node, err = openAt(h.dir, name, pathFlags); errors.Is(err, fs.ErrNotExist) {
		h.node = nil
		return nil
	}
	if err != nil {
		return err
	}
	if h.info, err = h.node.Stat(); err != nil {
		return err
	}
	switch {
	case h.info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%w: %s was replaced by a symbolic link", ErrChanged, name)
	case h.info.Mode().IsRegular():
		h.readable, h.readErr = h.reopen(unix.O_RDONLY)
	}
	return nil
}

// reopen opens the file again with other flags. It returns ErrChanged if another file
// now has its name.
func (h *Handle) reopen(flags int) (*os.File, error) {
	f, err := openAt(h.dir, path.Base(h.resolved.Path), flags|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(info, h.info) {
		err = fmt.Errorf("%w: it was replaced by another file", ErrChanged)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close closes all files of the Handle.
func (h *Handle) Close() {
	for _, f := range []*os.File{h.dir, h.node, h.readable} {
		if f != nil {
			f.Close()
		}
	}
}

// Resolved returns the path of the Handle.
func (h *Handle) Resolved() ResolvedPath { return h.resolved }

// Stat returns the file information from the time of Acquire. It returns an
// fs.ErrNotExist for a path that did not exist.
func (h *Handle) Stat() (fs.FileInfo, error) {
	if h.info == nil {
		return nil, &fs.PathError{Op: "stat", Path: h.resolved.Resource, Err: unix.ENOENT}
	}
	return h.info, nil
}

// Existing returns the deepest directory on the path that existed at Acquire, and the
// names below it that did not. For a path that existed it returns the path and no names.
func (h *Handle) Existing() (dir ResolvedPath, missing []string) {
	if h.info != nil {
		return h.resolved, nil
	}
	missing = append(slices.Clone(h.missing), path.Base(h.resolved.Path))
	dir = h.resolved
	for range missing {
		dir.Path = path.Dir(dir.Path)
	}
	dir.Resource = dir.Path
	if dir.External == "" {
		dir.Resource = relativeTo(dir.root.path, dir.Path)
	}
	return dir, missing
}

// Directory returns the opened directory, which the Handle closes. It returns
// ErrNotDirectory for a file. On Linux a process can be started in it, but it cannot be
// listed.
func (h *Handle) Directory() (*os.File, error) {
	info, err := h.Stat()
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("open %s: %w", h.resolved.Resource, ErrNotDirectory)
	}
	return h.node, nil
}

// LinkCount returns the number of hard links of the file, or 0 if there is no regular
// file.
func (h *Handle) LinkCount() int {
	if h.info == nil || !h.info.Mode().IsRegular() {
		return 0
	}
	stat, ok := h.info.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return int(stat.Nlink)
}

// readTimeout is how long a read waits for a file without data, such as the log of the
// kernel.
const readTimeout = 2 * time.Second

// Open returns the opened file, at its beginning. The Handle closes it. It returns
// ErrNotRegular for anything but a regular file.
func (h *Handle) Open() (*os.File, error) {
	info, err := h.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("open %s: %w: %s", h.resolved.Resource, ErrNotRegular, info.Mode().Type())
	case h.readErr != nil:
		return nil, h.readErr
	}
	_ = h.readable.SetReadDeadline(time.Now().Add(readTimeout)) // an error for a file on a disk, which does not wait
	_, err = h.readable.Seek(0, io.SeekStart)
	return h.readable, err
}

// ReadAll returns the content of the file. It returns ErrTooLarge if the file has more
// than limit bytes.
func (h *Handle) ReadAll(limit int64) ([]byte, error) {
	f, err := h.Open()
	if err != nil {
		return nil, err
	}
	if h.info.Size() > limit {
		return nil, fmt.Errorf("read %s: %w: over %d bytes", h.resolved.Resource, ErrTooLarge, limit)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may grow meanwhile
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("read %s: %w: over %d bytes", h.resolved.Resource, ErrTooLarge, limit)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Verify returns ErrChanged unless the path still leads through the same directories,
// without a symbolic link, to the same file, or is still missing. Missing directories
// may have been created.
func (h *Handle) Verify() error {
	now, err := h.reacquire()
	if err != nil {
		return err
	}
	now.Close()
	return nil
}

// reacquire acquires the path again. It returns ErrChanged if the new Handle differs
// from h. The caller closes the result.
func (h *Handle) reacquire() (*Handle, error) {
	now, err := h.resolved.Acquire()
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNotDirectory) {
		err = fmt.Errorf("%w: %w", ErrChanged, err)
	}
	if err != nil {
		return nil, err
	}
	if why := now.differenceFrom(h); why != "" {
		now.Close()
		return nil, fmt.Errorf("open %s: %w: %s", h.resolved.Resource, ErrChanged, why)
	}
	return now, nil
}

// differenceFrom returns a text that states how h differs from was, an earlier Handle
// of the same path. The text is empty if the two do not differ.
func (h *Handle) differenceFrom(was *Handle) string {
	switch {
	case len(h.dirInfos) < len(was.dirInfos):
		return "a directory above it is gone"
	case !slices.EqualFunc(h.dirInfos[:len(was.dirInfos)], was.dirInfos, os.SameFile):
		return "a directory above it was replaced"
	case was.info == nil && h.info != nil:
		return "it did not exist before"
	case was.info != nil && (h.info == nil || !os.SameFile(h.info, was.info)):
		return "it was moved or replaced"
	}
	return ""
}

// openAt opens a name in a directory, or an absolute path if dir is nil, without
// following a symbolic link in its last part. It returns ErrChanged for a symbolic link
// and ErrNotDirectory for a file that O_DIRECTORY requires to be a directory.
func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	at := unix.AT_FDCWD
	if dir != nil {
		at = int(dir.Fd())
	}
	var fd int
	err := retryInterrupted(func() (err error) {
		fd, err = unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), name), nil
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EMLINK), errors.Is(err, unix.ENOTDIR) && isLink(at, name):
		return nil, fmt.Errorf("%w: %s was replaced by a symbolic link", ErrChanged, name)
	case errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("%w: %s", ErrNotDirectory, name)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: err}
}

// isLink reports whether a name in a directory is a symbolic link.
func isLink(at int, name string) bool {
	var stat unix.Stat_t
	err := retryInterrupted(func() error { return unix.Fstatat(at, name, &stat, unix.AT_SYMLINK_NOFOLLOW) })
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK
}

// maxRetries bounds how often a system call is repeated after EINTR.
const maxRetries = 1000

// retryInterrupted repeats f while it returns EINTR.
func retryInterrupted(f func() error) (err error) {
	for range maxRetries {
		if err = f(); err != unix.EINTR {
			return err
		}
	}
	return err
}

// ReadDir returns the entries of a directory, sorted by name. For a symbolic link it
// returns the information of the target under the name of the link. It omits a link to
// a missing file, and a link to a target outside the workspace or, for an external
// directory, outside that directory. It returns ErrTooLarge if there are more than
// limit entries.
func (h *Handle) ReadDir(limit int) ([]fs.FileInfo, error) {
	tree, err := h.Tree()
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	var infos []fs.FileInfo
	for entry, err := range tree.Entries(".") {
		if err != nil {
			return nil, err
		}
		if len(infos) == limit {
			return nil, fmt.Errorf("read %s: %w: it has over %d entries", h.resolved.Resource, ErrTooLarge, limit)
		}
		info, err := h.entry(tree, entry)
		switch {
		case err == nil:
			infos = append(infos, info)
		case entry.Type()&fs.ModeSymlink == 0 && !errors.Is(err, fs.ErrNotExist): // it went away meanwhile
			return nil, err
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return strings.Compare(a.Name(), b.Name()) })
	return infos, nil
}

// entry returns the information of a directory entry. For a symbolic link this is the
// information of the target, under the name of the link.
func (h *Handle) entry(tree *Tree, entry fs.DirEntry) (fs.FileInfo, error) {
	if entry.Type()&fs.ModeSymlink == 0 {
		return tree.Lstat(entry.Name())
	}
	at, err := followLinks(filepath.Join(h.resolved.Path, entry.Name()))
	if err != nil {
		return nil, err
	}
	linked := ResolvedPath{root: h.resolved.root, Path: at.path, Resource: at.path, External: h.resolved.External}
	bound := h.resolved.root.path
	if h.resolved.External != "" {
		bound = h.resolved.Path
	}
	if !within(bound, at.path) {
		return nil, ErrLocationEscape
	}
	found, err := linked.Acquire()
	if err != nil {
		return nil, err
	}
	defer found.Close()
	info, err := found.Stat()
	if err != nil {
		return nil, err
	}
	return renamedInfo{info, entry.Name()}, nil
}

// A renamedInfo is the information of a file under another name.
type renamedInfo struct {
	fs.FileInfo
	name string
}

// Name returns the other name.
func (r renamedInfo) Name() string { return r.name }
