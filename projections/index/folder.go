package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The names in the folder of an index.
const (
	// linkName is a symbolic link to the database. Its target has a name of its own, so
	// that a replaced database and its log never meet the files of the new one.
	linkName = "ledger.db"
	// A database is filePrefix, a number and fileSuffix.
	filePrefix, fileSuffix = "ledger-", ".db"
	// lockName is the file whose lock a writer holds.
	lockName = "lock"
)

// An Index is the index in a folder. It holds no file open between two calls.
type Index struct {
	dir   string
	batch int // the largest number of events in a transaction
}

// New returns the index in a folder. It does not read or make the folder.
func New(dir string) *Index { return &Index{dir, maxBatchEvents} }

// Path returns the path of the symbolic link to the database.
func (x *Index) Path() string { return filepath.Join(x.dir, linkName) }

// current returns the path of the database, or an ErrNoIndex.
func (x *Index) current() (string, error) {
	target, err := os.Readlink(x.Path())
	switch {
	case err == nil:
		return filepath.Join(x.dir, filepath.Base(target)), nil
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w at %s", ErrNoIndex, x.Path())
	}
	if info, statErr := os.Stat(x.Path()); statErr == nil && info.Mode().IsRegular() {
		return x.Path(), nil // a copy of the folder that followed the link
	}
	return "", err
}

// fresh returns the path of a database that does not exist yet.
func (x *Index) fresh() (string, error) {
	entries, err := os.ReadDir(x.dir)
	if err != nil {
		return "", err
	}
	highest := 0
	for _, e := range entries {
		number, _, _ := strings.Cut(strings.TrimPrefix(e.Name(), filePrefix), ".")
		if n, err := strconv.Atoi(number); err == nil {
			highest = max(highest, n)
		}
	}
	return filepath.Join(x.dir, filePrefix+strconv.Itoa(highest+1)+fileSuffix), nil
}

// link makes the database at path the one that the link names, and removes the others.
// The name is durable when it returns.
func (x *Index) link(path string) error {
	next := x.Path() + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(path), next); err != nil {
		return err
	}
	if err := os.Rename(next, x.Path()); err != nil {
		return err
	}
	folder, err := os.Open(x.dir)
	if err != nil {
		return err
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return err
	}
	return x.tidy(path)
}

// tidy removes all databases but the one at path, with their logs: the replaced one, and
// those that a killed process left.
func (x *Index) tidy(path string) error {
	entries, err := os.ReadDir(x.dir)
	if err != nil {
		return err
	}
	kept := filepath.Base(path)
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, filePrefix) || !strings.Contains(name, fileSuffix) || name == kept || strings.HasPrefix(name, kept+"-") {
			continue
		}
		if err := os.Remove(filepath.Join(x.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// syncFile makes a file durable.
func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// removeDatabase removes a database with its logs.
func removeDatabase(path string) error {
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// lockInterval is the time between two attempts to lock the folder.
const lockInterval = 20 * time.Millisecond

// acquire makes the folder and waits for its lock. It returns the function that releases
// it, or the cause of ctx.
func (x *Index) acquire(ctx context.Context) (func() error, error) {
	if err := os.MkdirAll(x.dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(x.dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		locked, err := tryLock(file)
		if locked {
			return func() error { return unlock(file) }, nil
		}
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), file.Close())
		case <-time.After(lockInterval):
		}
	}
}
