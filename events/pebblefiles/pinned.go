package pebblefiles

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Pinned is a read-only file system with an unchanging view of the folder of a
// database. It holds an open handle of each table: Pebble opens a table when it first
// reads it, and a writer may have removed or replaced the file by then. Pebble reads
// logs and manifests only while it opens the database, so the Pinned does not hold
// them. A Pinned writes no file: it needs no space, and a killed reader leaves no
// files behind.
type Pinned struct {
	vfs.FS                       // read-only
	path     string              // the folder
	tables   map[string]vfs.File // open tables, by path
	lock     io.Closer           // the shared lock; nil: no lock excludes a writer
	found    []fileStamp         // the files that Pin found in the folder
	complete bool                // tables has every table
}

// Pin locks a database for a reader and opens its tables. The lock file may be in
// another folder, and dir need not exist. Pin returns ErrLocked if a writer has the
// lock.
//
// The caller opens the database through the Pinned and then calls Release, so that
// writers can continue. It calls Close after it has closed the database.
func Pin(storage vfs.FS, lock, dir string) (*Pinned, error) {
	p := &Pinned{FS: ReadOnly(storage), path: dir, tables: map[string]vfs.File{}}
	var err error
	if p.lock, err = LockShared(storage, lock); err != nil {
		return nil, err
	}
	if err := p.openTables(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// openTables opens the tables, unless there are more than maxOpenTables. It skips a
// table that was removed since the folder was listed: the table is not part of the
// database, or Settled reports the change.
func (p *Pinned) openTables() error {
	var err error
	if p.found, err = fileStamps(p.FS, p.path); err != nil {
		return err
	}
	names := slices.DeleteFunc(slices.Clone(p.found), func(f fileStamp) bool { return KindOf(f.name) != Table && KindOf(f.name) != Blob })
	if len(names) > maxOpenTables() {
		return nil
	}
	for _, f := range names {
		path := p.PathJoin(p.path, f.name)
		file, err := p.FS.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		p.tables[path] = file
	}
	p.complete = true
	return nil
}

// Release releases the lock, so that a writer can open the folder. If the process
// cannot hold all tables open, the lock stays until Close.
func (p *Pinned) Release() error {
	if p.lock == nil || !p.complete {
		return nil
	}
	err := p.lock.Close()
	p.lock = nil
	return err
}

// Settled reports whether the folder has not changed since Pin. While the Pinned holds
// the lock, the folder cannot change. Without a lock Settled compares the names, sizes
// and times of the files. The caller calls Settled after it has opened the database.
func (p *Pinned) Settled() bool {
	if p.lock != nil {
		return true
	}
	found, err := fileStamps(p.FS, p.path)
	return err == nil && slices.Equal(found, p.found)
}

// Holds reports whether the folder had a file of a database when Pin listed it.
func (p *Pinned) Holds() bool {
	return slices.ContainsFunc(p.found, func(f fileStamp) bool { return KindOf(f.name) != Other })
}

// A fileStamp identifies a version of a file by its name, size and time of the last
// write.
type fileStamp struct {
	name  string
	bytes int64
	time  int64 // of the last write, in nanoseconds
}

// fileStamps returns the stamps of the files in a folder, sorted by name. It returns no
// stamps if the folder is missing.
func fileStamps(storage vfs.FS, dir string) ([]fileStamp, error) {
	names, err := storage.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	found := make([]fileStamp, 0, len(names))
	for _, name := range names {
		info, err := storage.Stat(storage.PathJoin(dir, name))
		if err == nil && !info.IsDir() {
			found = append(found, fileStamp{name, info.Size(), info.ModTime().UnixNano()})
		}
	}
	return found, nil
}

// Open opens a file for reading. For a pinned table it returns the handle that is
// open.
func (p *Pinned) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if file, ok := p.tables[name]; ok {
		return sharedFile{file}, nil
	}
	return p.FS.Open(name, options...)
}

// Close closes the tables and releases the lock. The database must be closed before.
func (p *Pinned) Close() error {
	var errs []error
	for _, file := range p.tables {
		errs = append(errs, file.Close())
	}
	p.tables = nil
	if p.lock != nil {
		errs = append(errs, p.lock.Close())
		p.lock = nil
	}
	return errors.Join(errs...)
}

// Unwrap returns the file system beneath.
func (p *Pinned) Unwrap() vfs.FS { return p.FS }

// A sharedFile is a table whose handle stays open. Pebble reads tables at offsets, so
// all uses share the handle.
type sharedFile struct{ vfs.File }

// Close keeps the handle open; Pinned.Close closes it.
func (sharedFile) Close() error { return nil }

// The timing of a reader without a lock.
const (
	unsettledTries = 20                    // attempts
	unsettledPause = 50 * time.Millisecond // between two attempts
)

// ReadPinned pins a database, opens it with the function open, and releases the lock. If
// no lock excludes writers and the folder changes during open, ReadPinned closes the
// opened value and retries, for a second; then it returns ErrLocked. The caller first
// closes the value that open returned and then the Pinned.
func ReadPinned[T io.Closer](ctx context.Context, storage vfs.FS, lock, dir string, open func(*Pinned) (T, error)) (opened T, p *Pinned, err error) {
	var none T
	for range unsettledTries {
		if p, err = Pin(storage, lock, dir); err != nil {
			return none, nil, err
		}
		opened, err = open(p)
		if p.Settled() {
			if err != nil {
				return none, nil, errors.Join(err, p.Close())
			}
			if err = p.Release(); err != nil {
				return none, nil, errors.Join(err, opened.Close(), p.Close())
			}
			return opened, p, nil
		}
		if err == nil {
			err = opened.Close()
		}
		if err = errors.Join(err, p.Close()); ctx.Err() != nil {
			return none, nil, context.Cause(ctx)
		}
		timer := time.NewTimer(unsettledPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return none, nil, errors.Join(ErrLocked, err)
}
