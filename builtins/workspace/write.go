package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"
)

// Write replaces the content of the file with the result of make. If the file does not
// exist, it creates the file and its missing directories. It calls make once, with the
// file open for reading at its beginning, or with nil for a new file. make must neither
// keep nor close the file. If make returns an error, Write returns that error and writes
// nothing. existed reports whether the file existed. Write returns ErrChanged and writes
// nothing if the path leads to another file than at Acquire, or if the size or the
// modification time of the file changed since then.
func (h *Handle) Write(make func(before *os.File) ([]byte, error)) (existed bool, err error) {
	defer h.resolved.root.locks.acquire(h.resolved.Path)()
	now, err := h.reacquire()
	if err != nil {
		return h.info != nil, err
	}
	defer now.Close()
	if h.info != nil && !sameContent(h.info, now.info) {
		return true, fmt.Errorf("write %s: %w", h.resolved.Resource, ErrChanged)
	}
	return now.write(make)
}

// sameContent reports whether a and b, two informations of one file, have the same size
// and modification time.
func sameContent(a, b fs.FileInfo) bool {
	return a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Replace writes the content after if the content of the file is exactly before.
// Otherwise, or if the path leads to another file than at Acquire, it writes nothing
// and returns ErrChanged.
func (h *Handle) Replace(before, after []byte) error {
	defer h.resolved.root.locks.acquire(h.resolved.Path)()
	now, err := h.reacquire()
	if err != nil {
		return err
	}
	defer now.Close()
	return now.replace(before, after)
}

// write performs Write on a Handle that was reacquired. It returns ErrChanged if another
// process changed the file while make ran. The caller holds the lock of the path.
func (h *Handle) write(make func(before *os.File) ([]byte, error)) (existed bool, err error) {
	if h.info == nil {
		content, err := make(nil)
		if err == nil {
			err = h.mkdirs()
		}
		if err != nil {
			return false, err
		}
		return false, h.writeContent(nil, content)
	}
	f, err := h.openForWrite()
	if err != nil {
		return true, err
	}
	defer f.Close()
	content, err := make(f)
	if err != nil {
		return true, err
	}
	if now, err := f.Stat(); err != nil || !sameContent(h.info, now) {
		return true, errors.Join(fmt.Errorf("write %s: %w", h.resolved.Resource, ErrChanged), err)
	}
	return true, h.writeContent(f, content)
}

// replace performs Replace on a Handle that was reacquired. The caller holds the lock
// of the path.
func (h *Handle) replace(before, after []byte) error {
	if h.info == nil {
		return fmt.Errorf("replace %s: %w: it does not exist", h.resolved.Resource, ErrChanged)
	}
	f, err := h.openForWrite()
	if err != nil {
		return err
	}
	defer f.Close()
	found, err := io.ReadAll(io.LimitReader(f, int64(len(before))+1))
	if err != nil {
		return err
	}
	if !bytes.Equal(found, before) {
		return fmt.Errorf("replace %s: %w", h.resolved.Resource, ErrChanged)
	}
	return h.writeContent(f, after)
}

// remove removes the file, which must be regular, makes the removal durable and reports
// whether the file existed. The caller holds the lock of the path.
func (h *Handle) remove() (existed bool, err error) {
	if h.info == nil {
		return false, nil
	}
	if !h.info.Mode().IsRegular() {
		return true, fmt.Errorf("remove %s: %w: %s", h.resolved.Resource, ErrNotRegular, h.info.Mode().Type())
	}
	return true, unlink(h.dir, h.name())
}

// name returns the last part of the path.
func (h *Handle) name() string { return path.Base(h.resolved.Path) }

// openForWrite opens a regular file for reading and writing. It needs the write
// permission of the file, because replacing a read-only file would circumvent its mode.
// The caller closes the file.
func (h *Handle) openForWrite() (*os.File, error) {
	if !h.info.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: %w: %s", h.resolved.Resource, ErrNotRegular, h.info.Mode().Type())
	}
	return h.reopen(unix.O_RDWR)
}

// mkdirs creates the missing directories and makes each durable. It continues in a
// directory that another process created in the meantime.
func (h *Handle) mkdirs() error {
	for len(h.missing) > 0 {
		name := h.missing[0]
		err := retryInterrupted(func() error { return unix.Mkdirat(int(h.dir.Fd()), name, 0o777) })
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return &fs.PathError{Op: "mkdir", Path: name, Err: err}
		}
		if err == nil {
			if err := syncDir(h.dir); err != nil {
				return err
			}
		}
		next, err := openAt(h.dir, name, pathFlags|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		h.dir.Close()
		h.dir, h.missing = next, h.missing[1:]
	}
	return nil
}

// errCannotReplace says that a new file cannot be put in the place of the old one with
// its owner, mode and attributes, so the old file must be overwritten.
var errCannotReplace = errors.New("a new file cannot take the place of this one")

// writeContent writes the content of the file. old is the existing file, or nil.
// writeContent replaces old atomically with a new file of the same owner, mode and
// attributes. If that is impossible, or old has several hard links, it overwrites old
// in place.
func (h *Handle) writeContent(old *os.File, content []byte) error {
	if old == nil {
		return h.writeAndRename(nil, content, false)
	}
	var stat unix.Stat_t
	if err := retryInterrupted(func() error { return unix.Fstat(int(old.Fd()), &stat) }); err != nil {
		return err
	}
	if stat.Nlink == 1 {
		if err := h.writeAndRename(old, content, true); !errors.Is(err, errCannotReplace) {
			return err
		}
	}
	return overwrite(old, stat, content)
}

// writeAndRename writes content to a temporary file in the directory, renames it to the
// path and makes the directory durable. The file gets the owner, the mode and the
// attributes of old unless old is nil. If replace is false, no file may exist at the
// path. writeAndRename removes the temporary file after an error.
func (h *Handle) writeAndRename(old *os.File, content []byte, replace bool) error {
	dir := int(h.dir.Fd())
	temp, f, err := h.createTemp(old)
	if err != nil {
		return err
	}
	err = fillTemp(f, old, content)
	if err == nil {
		err = h.installTemp(dir, temp, replace)
	}
	if err != nil {
		_ = unix.Unlinkat(dir, temp, 0) // the first error says why
		return err
	}
	return syncDir(h.dir)
}

// installTemp moves the temporary file temp to the path. If replace is true, it renames
// the file. Otherwise no file may exist at the path: installTemp creates a hard link,
// which fails with ErrChanged if the path exists, and removes temp. On a file system
// without hard links it renames the file.
func (h *Handle) installTemp(dir int, temp string, replace bool) error {
	if !replace {
		err := retryInterrupted(func() error { return unix.Linkat(dir, temp, dir, h.name(), 0) })
		switch {
		case err == nil:
			return unix.Unlinkat(dir, temp, 0)
		case errors.Is(err, fs.ErrExist):
			return fmt.Errorf("write %s: %w: it did not exist before", h.resolved.Resource, ErrChanged)
		case !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.ENOSYS): // no hard links there
			return &fs.PathError{Op: "link", Path: h.name(), Err: err}
		}
	}
	err := retryInterrupted(func() error { return unix.Renameat(dir, temp, dir, h.name()) })
	if err != nil {
		return asCannotReplace(replace, &fs.PathError{Op: "rename", Path: h.name(), Err: err})
	}
	return nil
}

// asCannotReplace wraps err, the error of replacing a file by a new one, in
// errCannotReplace if exists is true (the file exists) and err is one after which the
// file can still be overwritten in place. Otherwise it returns err.
func asCannotReplace(exists bool, err error) error {
	for _, cause := range []error{unix.EPERM, unix.EACCES, unix.EBUSY, unix.ENOTSUP, unix.EINVAL} {
		if exists && errors.Is(err, cause) {
			return fmt.Errorf("%w: %w", errCannotReplace, err)
		}
	}
	return err
}

// fillTemp writes content to f, makes f durable and closes it. If old is not nil, it
// copies the owner, the mode and the attributes of old to f.
func fillTemp(f, old *os.File, content []byte) error {
	_, err := f.Write(content)
	if err == nil && old != nil {
		err = asCannotReplace(true, copyOwnerAndMode(f, old))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// copyOwnerAndMode copies the owner, the extended attributes and the mode of old to f.
// The mode comes last, because a change of the owner clears setuid and setgid.
func copyOwnerAndMode(f, old *os.File) error {
	var was, is unix.Stat_t
	err := errors.Join(unix.Fstat(int(old.Fd()), &was), unix.Fstat(int(f.Fd()), &is))
	if err == nil && (was.Uid != is.Uid || was.Gid != is.Gid) {
		err = unix.Fchown(int(f.Fd()), int(was.Uid), int(was.Gid))
	}
	if err == nil {
		err = copyAttributes(f, old)
	}
	if err == nil {
		err = unix.Fchmod(int(f.Fd()), uint32(was.Mode)&modeBits)
	}
	return err
}

// modeBits are the permission bits with setuid, setgid and sticky.
const modeBits = 0o7777

// overwrite writes content over a file in place. It first writes the part of content
// beyond the present size of the file, so that a full disk leaves the old content. The
// kernel clears setuid and setgid on a write; overwrite restores them.
func overwrite(f *os.File, was unix.Stat_t, content []byte) error {
	size := min(was.Size, int64(len(content)))
	if _, err := f.WriteAt(content[size:], size); err != nil {
		return errors.Join(err, f.Truncate(was.Size))
	}
	if _, err := f.WriteAt(content[:size], 0); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(content))); err != nil {
		return err
	}
	var is unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &is)
	if err == nil && is.Mode != was.Mode {
		err = unix.Fchmod(int(f.Fd()), uint32(was.Mode)&modeBits)
	}
	if err != nil {
		return fmt.Errorf("the content was written and the mode was not kept: %w", err)
	}
	return f.Sync()
}

// maxTempFiles is the number of names that createTemp tries. A crash can leave a
// temporary file behind, whose name is then taken.
const maxTempFiles = 10_000

// createTemp creates a temporary file in the directory and returns its name and the
// open file. If it will replace old, only its owner can read it until it has the mode
// of old.
func (h *Handle) createTemp(old *os.File) (string, *os.File, error) {
	mode := uint32(0o666)
	if old != nil {
		mode = 0o600
	}
	for n := range maxTempFiles {
		name := fmt.Sprintf(".ledger-write-%d", n)
		var fd int
		err := retryInterrupted(func() (err error) {
			fd, err = unix.Openat(int(h.dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
			return err
		})
		if err == nil {
			return name, os.NewFile(uintptr(fd), name), nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", nil, asCannotReplace(old != nil, &fs.PathError{Op: "create", Path: name, Err: err})
		}
	}
	return "", nil, fmt.Errorf("create a file beside %s: %d files .ledger-write-N are left there by crashes: remove them", h.resolved.Resource, maxTempFiles)
}

// syncDir makes the entries of a directory durable, on file systems that support it.
func syncDir(dir *os.File) error {
	d, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if errors.Is(err, fs.ErrPermission) { // it may be written and not be read
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// pathLocks holds one lock for each path that is being written. The zero pathLocks is
// ready for use.
type pathLocks struct {
	mu struct {
		sync.Mutex
		held map[string]*pathLock
	}
}

// A pathLock is the lock of one path.
type pathLock struct {
	sync.Mutex
	users int // goroutines that hold it or wait for it; guarded by pathLocks.mu
}

// acquire waits for the lock of a path and returns the function that releases it.
func (ls *pathLocks) acquire(path string) (release func()) {
	ls.mu.Lock()
	l := ls.mu.held[path]
	if l == nil {
		l = new(pathLock)
		if ls.mu.held == nil {
			ls.mu.held = map[string]*pathLock{}
		}
		ls.mu.held[path] = l
	}
	l.users++
	ls.mu.Unlock()
	l.Lock()
	return func() {
		l.Unlock()
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(ls.mu.held, path)
		}
	}
}
