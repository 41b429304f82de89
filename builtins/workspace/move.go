package workspace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// CheckWrite returns the error with which Replace would fail because the file may not be
// written or is not a regular file. It changes nothing.
func (h *Handle) CheckWrite() error {
	if _, err := h.Stat(); err != nil {
		return err
	}
	f, err := h.openForWrite()
	if err != nil {
		return err
	}
	return f.Close()
}

// Remove removes the file if its content is exactly before, and makes the removal
// durable. Otherwise, or if the path leads to another file than at Acquire, it removes
// nothing and returns ErrChanged.
func (h *Handle) Remove(before []byte) error {
	defer h.resolved.root.locks.acquire(h.resolved.Path)()
	now, err := h.reacquire()
	if err != nil {
		return err
	}
	defer now.Close()
	if err := now.expect(before); err != nil {
		return err
	}
	_, err = now.remove()
	return err
}

// Move moves the file to the path of to, which must not exist, if the content of the file
// is exactly before. The moved file has the content after, and the owner, the mode and
// the attributes of the file. Move creates missing directories and makes the result
// durable. It returns ErrChanged and moves nothing if the content differs, or if one of
// the paths leads to another file than at Acquire. Both Handles belong to one Root and to
// different paths.
//
// If the content changes, the moved file is a new file: other hard links of the file keep
// the old content. A crash can leave both files.
func (h *Handle) Move(to *Handle, before, after []byte) error {
	defer h.resolved.root.locks.acquireTwo(h.resolved.Path, to.resolved.Path)()
	from, err := h.reacquire()
	if err != nil {
		return err
	}
	defer from.Close()
	target, err := to.reacquire()
	if err != nil {
		return err
	}
	defer target.Close()
	if target.info != nil {
		return fmt.Errorf("move to %s: %w", to.resolved.Resource, fs.ErrExist)
	}
	if err := from.expect(before); err != nil {
		return err
	}
	return from.move(target, before, after)
}

// expect returns nil if the file is regular and its content is exactly before, and
// otherwise ErrChanged or ErrNotRegular. The Handle was reacquired.
func (h *Handle) expect(before []byte) error {
	if h.info == nil {
		return fmt.Errorf("open %s: %w: it does not exist", h.resolved.Resource, ErrChanged)
	}
	f, err := h.Open()
	if err != nil {
		return err
	}
	found, err := io.ReadAll(io.LimitReader(f, int64(len(before))+1))
	if err == nil && !bytes.Equal(found, before) {
		err = fmt.Errorf("open %s: %w", h.resolved.Resource, ErrChanged)
	}
	return err
}

// move performs Move on Handles that were reacquired. The caller holds the locks of both
// paths. If the old name cannot be removed, move removes the new one.
func (h *Handle) move(to *Handle, before, after []byte) error {
	if err := to.mkdirs(); err != nil {
		return err
	}
	err := errCannotLink
	if bytes.Equal(before, after) {
		err = h.linkTo(to)
	}
	if errors.Is(err, errCannotLink) {
		err = to.writeAndRename(h.readable, after, false)
	}
	if err != nil {
		return err
	}
	if _, err := h.remove(); err != nil {
		return errors.Join(err, unlink(to.dir, to.name()))
	}
	return nil
}

// errCannotLink says that a file cannot have a second name at a path, so it must be
// copied.
var errCannotLink = errors.New("the file cannot have a hard link there")

// linkTo gives the file the path of to as a second name, and makes it durable. It returns
// errCannotLink if the file system or the permissions do not allow it, and ErrChanged if
// the path exists or the file was replaced.
func (h *Handle) linkTo(to *Handle) error {
	err := retryInterrupted(func() error {
		return unix.Linkat(int(h.dir.Fd()), h.name(), int(to.dir.Fd()), to.name(), 0)
	})
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("move to %s: %w: it did not exist before", to.resolved.Resource, ErrChanged)
	}
	for _, cause := range []error{unix.EPERM, unix.ENOTSUP, unix.ENOSYS, unix.EXDEV, unix.EMLINK} {
		if errors.Is(err, cause) {
			return errCannotLink
		}
	}
	if err != nil {
		return &fs.PathError{Op: "link", Path: to.name(), Err: err}
	}
	linked, err := openAt(to.dir, to.name(), pathFlags)
	if err != nil {
		return err
	}
	defer linked.Close()
	info, err := linked.Stat()
	if err == nil && !os.SameFile(info, h.info) {
		err = fmt.Errorf("move %s: %w: it was replaced by another file", h.resolved.Resource, ErrChanged)
	}
	if err == nil {
		err = syncDir(to.dir)
	}
	if err != nil {
		return errors.Join(err, unlink(to.dir, to.name()))
	}
	return nil
}

// unlink removes a name from a directory and makes the removal durable.
func unlink(dir *os.File, name string) error {
	if err := retryInterrupted(func() error { return unix.Unlinkat(int(dir.Fd()), name, 0) }); err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return syncDir(dir)
}

// acquireTwo waits for the locks of two different paths and returns the function that
// releases both. It takes them in the order of the paths, so that no two calls wait for
// each other.
func (ls *pathLocks) acquireTwo(a, b string) (release func()) {
	first, second := ls.acquire(min(a, b)), ls.acquire(max(a, b))
	return func() {
		second()
		first()
	}
}
