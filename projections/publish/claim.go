package publish

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// ErrClaimed says that another has a name.
var ErrClaimed = errors.New("another has it")

// Claims keep those apart who would do the same at once. They are safe for
// concurrent use.
type Claims interface {
	// Claim takes a name. What it returns gives the name up when it is closed. A
	// process that ends has given up all of its names, however it ends. A name
	// that is taken, by this process too, is an ErrClaimed that says by whom, as
	// far as that is known.
	Claim(name string) (io.Closer, error)
}

// A LockFolder is Claims by locks on files in a folder of this machine, one for
// each name, which stay. On Unix the locks are the kernel's.
type LockFolder struct{ dir, holder string }

// NewLockFolder returns the Claims in a folder, which need not be there. Holder
// is what others are told of who calls it: a line, such as process 4711.
func NewLockFolder(dir, holder string) LockFolder { return LockFolder{dir, holder} }

// Claim locks the file of a name and writes the holder into it.
func (l LockFolder) Claim(name string) (io.Closer, error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("claim %s: %w", name, err)
	}
	path := filepath.Join(l.dir, url.PathEscape(name))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", name, err)
	}
	locked, err := Lock(file)
	switch {
	case err == nil && !locked:
		err = claimed(file)
	case err == nil:
		err = l.sign(file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claim %s: %w", name, err), file.Close())
	}
	return file, nil
}

// sign writes who holds a file into it.
func (l LockFolder) sign(file *os.File) error {
	err := file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(l.holder+"\n"), 0)
	}
	return err
}

// mostHolder bounds what is told of a holder.
const mostHolder = 200

// claimed returns an ErrClaimed that says who holds a file, as far as it says.
func claimed(file *os.File) error {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, mostHolder))
	if holder := strings.TrimSpace(string(text)); err == nil && holder != "" {
		return fmt.Errorf("%w: %s", ErrClaimed, holder)
	}
	return ErrClaimed
}
