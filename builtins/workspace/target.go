package workspace

import "io/fs"

// The methods of a Target acquire a Handle, use it and close it. Where somebody
// is asked in between, acquire the Handle first.

// Stat returns what there is at the target.
func (t ResolvedPath) Stat() (fs.FileInfo, error) {
	h, err := t.Acquire()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.Stat()
}

// ReadAll returns the content of the target. It returns an ErrTooLarge if that
// is longer than limit, and an ErrNotRegular if it is anything but a regular
// file. It does not wait for the other end of a pipe.
func (t ResolvedPath) ReadAll(limit int64) ([]byte, error) {
	h, err := t.Acquire()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	return h.ReadAll(limit)
}

// Write is the Write of a Handle that is acquired when it is the target's turn
// to be written.
func (t ResolvedPath) Write(peek int, make func(before []byte) []byte) (existed bool, err error) {
	defer t.root.locks.acquire(t.Path)()
	h, err := t.Acquire()
	if err != nil {
		return false, err
	}
	defer h.Close()
	return h.write(peek, make)
}

// Replace is the Replace of a Handle that is acquired when it is the target's
// turn to be written.
func (t ResolvedPath) Replace(before, after []byte) error {
	defer t.root.locks.acquire(t.Path)()
	h, err := t.Acquire()
	if err != nil {
		return err
	}
	defer h.Close()
	return h.replace(before, after)
}

// Remove removes the target, a file, and reports whether it existed.
func (t ResolvedPath) Remove() (existed bool, err error) {
	defer t.root.locks.acquire(t.Path)()
	h, err := t.Acquire()
	if err != nil {
		return false, err
	}
	defer h.Close()
	return h.remove()
}
