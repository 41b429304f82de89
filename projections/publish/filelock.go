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

// ErrLocked reports that a name is locked, by this process or another.
var ErrLocked = errors.New("file is locked by another process")

// A Locker grants exclusive use of names. It is safe for concurrent use.
type Locker interface {
	// Lock acquires the lock of a name without waiting. Closing the result
	// releases it, and so does the end of the process, however it ends. If the
	// name is locked, by this process too, the error is an ErrLocked that
	// names the holder if the holder is known.
	Lock(name string) (io.Closer, error)
}

// A FileLocker is a Locker that locks one file for each name, in a folder of this
// machine. It never removes the files, because removing a file that another process
// opens at that moment would let two processes lock different files of one name. On
// Unix it uses flock; on other systems it excludes no process.
type FileLocker struct{ dir, holder string }

// NewFileLocker returns the Locker of a folder, which Lock creates. Holder is
// a line that describes this process to others, such as "process 4711".
func NewFileLocker(dir, holder string) FileLocker { return FileLocker{dir, holder} }

// Lock locks the file of a name, creating folder and file, and writes the holder into
// it. A locked name is an ErrLocked that quotes the holder. Other errors come from
// the file system.
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
		return nil, errors.Join(fmt.Errorf("claim %s: %w", name, err), CloseLocked(file))
	}
	return fileLock{file}, nil
}

// A fileLock is a locked file.
type fileLock struct{ file *os.File }

// Close releases the lock. The file stays.
func (l fileLock) Close() error { return CloseLocked(l.file) }

// sign writes the holder into a locked file, in place of its contents. Another
// process that finds the file locked quotes the holder in its error. If it reads the
// file before sign has written, it cannot name the holder.
func (l FileLocker) sign(file *os.File) error {
	err := file.Truncate(0)
	if err == nil {
		_, err = file.WriteAt([]byte(l.holder+"\n"), 0)
	}
	return err
}

// maxHolderText bounds the bytes of a holder that an error quotes.
const maxHolderText = 200

// lockedBy returns an ErrLocked that quotes the holder in a lock file, if the
// file has one.
func lockedBy(file *os.File) error {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, maxHolderText))
	if holder := strings.TrimSpace(string(text)); err == nil && holder != "" {
		return fmt.Errorf("%w: %s", ErrLocked, holder)
	}
	return ErrLocked
}
