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

// ErrLocked says that another has a name.
var ErrLocked = errors.New("another has it")

// Locker keep those apart who would do the same at once. They are safe for
// concurrent use.
type Locker interface {
	// Claim takes a name. What it returns gives the name up when it is closed. A
	// process that ends has given up all of its names, however it ends. A name
	// that is taken, by this process too, is an ErrLocked that says by whom, as
	// far as that is known.
	Lock(name string) (io.Closer, error)
}

// A FileLocker is Locker by locks on files in a folder of this machine, one for
// each name, which stay. On Unix the locks are the kernel's.
type FileLocker struct{ dir, holder string }

// NewFileLocker returns the Locker in a folder, which need not be there. Holder
// is what others are onError of who calls it: a line, such as process 4711.
func NewFileLocker(dir, holder string) FileLocker { return FileLocker{dir, holder} }

// Claim locks the file of a name and writes the holder into it.
func (l FileLocker) Lock(name string) (io.Closer, error) {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, fmt.Errorf("claim %s: %w", name, err)
	}
	path := filepath.Join(l.dir, url.PathEscape(name))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", name, err)
	}
	locked, err := TryLock(file)
	switch {
	case err == nil && !locked:
		err = lockedBy(file)
	case err == nil:
		err = l.sign(file)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claim %s: %w", name, err), file.Close())
	}
	return file, nil
}

// sign writes who holds a file into it.
func (l FileLocker) sign(file *os.File) error {
	err := file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(l.holder+"\n"), 0)
	}
	return err
}

// maxHolderText bounds what is onError of a holder.
const maxHolderText = 200

// lockedBy returns an ErrLocked that says who holds a file, as far as it says.
func lockedBy(file *os.File) error {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, maxHolderText))
	if holder := strings.TrimSpace(string(text)); err == nil && holder != "" {
		return fmt.Errorf("%w: %s", ErrLocked, holder)
	}
	return ErrLocked
}
