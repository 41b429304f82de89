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

// A Handle is a Target that is open: its directory was reached without
// following a symbolic link, and so was the file, if there is one. Whoever
// decides about a path while a Handle of it is held decides about these files:
// a link, file or directory that takes their place afterwards is an ErrChanged.
// It comes from [ResolvedPath.Acquire], is used by one goroutine at a time and is
// closed by the caller.
type Handle struct {
	resolved ResolvedPath
	dirInfos []fs.FileInfo // of each existing directory from the base down
	dir      *os.File      // the last of chain
	missing  []string      // names of the directories between dir and the target that do not exist
	node     *os.File      // the target as found; nil if it does not exist
	info     fs.FileInfo   // of self
	readable *os.File      // self, open for reading; nil unless it is a regular file that can be read
	readErr  error         // why content is nil although self is a regular file
}

// Acquire opens the place of the target and reads nothing. It returns an
// ErrChanged if the path leads through a symbolic link by now, or if the
// directory of the workspace was replaced. A target that does not exist has a
// Handle too.
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

// openBase returns the directory that the way to a target starts from, opened anew.
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

// descend walks from h.dir to the target.
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

// recordDir adds h.dir to the chain.
func (h *Handle) recordDir() error {
	info, err := h.dir.Stat()
	h.dirInfos = append(h.dirInfos, info)
	return err
}

// openLast opens the target in its directory.
func (h *Handle) openLast(name string) (err error) {
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
		return fmt.Errorf("%w: %s is a symbolic link by now", ErrChanged, name)
	case h.info.Mode().IsRegular():
		h.readable, h.readErr = h.reopen(unix.O_RDONLY)
	}
	return nil
}

// reopen opens the file that was found, and returns an ErrChanged if another
// one has its name.
func (h *Handle) reopen(flags int) (*os.File, error) {
	f, err := openAt(h.dir, path.Base(h.resolved.Path), flags|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(info, h.info) {
		err = fmt.Errorf("%w: another file was put in its place", ErrChanged)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Close lets go of the files.
func (h *Handle) Close() {
	for _, f := range []*os.File{h.dir, h.node, h.readable} {
		if f != nil {
			f.Close()
		}
	}
}

// Resolved returns the target that was acquired.
func (h *Handle) Resolved() ResolvedPath { return h.resolved }

// Stat returns what was found at the target, or an error that is fs.ErrNotExist.
func (h *Handle) Stat() (fs.FileInfo, error) {
	if h.info == nil {
		return nil, &fs.PathError{Op: "stat", Path: h.resolved.Resource, Err: unix.ENOENT}
	}
	return h.info, nil
}

// Directory returns the directory that was found, which the Handle closes. It
// returns an ErrNotDirectory for anything else. On Linux it is open for looking
// only: a process can be started in it, and it cannot be listed.
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

// LinkCount returns how many names (hard links) the file that was found has. It is
// 0 if there is none.
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

// readTimeout is how long a read waits for a file that says it has no data yet,
// such as the log of the kernel.
const readTimeout = 2 * time.Second

// Open returns the file that was found, for reading from its beginning. The
// Handle closes it. It returns an ErrNotRegular for anything but a regular file.
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

// ReadAll returns the content of the file. It returns an ErrTooLarge if that is
// longer than limit.
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

// Verify returns an ErrChanged unless the path still leads, without a symbolic
// link, through the directories that were found to the file that was found, or
// still to nothing. Missing directories may have been created meanwhile.
func (h *Handle) Verify() error {
	now, err := h.reacquire()
	if err != nil {
		return err
	}
	now.Close()
	return nil
}

// reacquire acquires the target anew and returns an ErrChanged if that is another
// place than h.
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

// differenceFrom returns in what h is another place than it was, or the empty text.
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

// openAt opens a name in a directory, or a path of one name where the directory
// is nil. It does not follow a symbolic link: with O_DIRECTORY one is an
// ErrChanged, and any other file that is no directory an ErrNotDirectory.
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
		return nil, fmt.Errorf("%w: %s is a symbolic link by now", ErrChanged, name)
	case errors.Is(err, unix.ENOTDIR):
		return nil, fmt.Errorf("%w: %s", ErrNotDirectory, name)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: err}
}

func isLink(at int, name string) bool {
	var stat unix.Stat_t
	err := retryInterrupted(func() error { return unix.Fstatat(at, name, &stat, unix.AT_SYMLINK_NOFOLLOW) })
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFLNK
}

// maxRetries bounds how often a system call is repeated that a signal
// interrupted.
const maxRetries = 1000

// retryInterrupted calls f again while a signal interrupts it.
func retryInterrupted(f func() error) (err error) {
	for range maxRetries {
		if err = f(); err != unix.EINTR {
			return err
		}
	}
	return err
}

// ReadDir returns the entries of a directory, in the order of their names. An
// entry that is a symbolic link is what the link leads to; one that leads out of
// the workspace, or to nothing, is not among them. It returns an ErrTooLarge if
// there are more than limit entries.
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

// entry returns what an entry leads to, under the entry's own name.
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

// renamedInfo is a file under another name.
type renamedInfo struct {
	fs.FileInfo
	name string
}

func (r renamedInfo) Name() string { return r.name }
