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

// A Pinned is the folder of a database as it was at one moment, and a read-only
// file system for it. It holds an open handle of each table, as Pebble opens those
// only when it reads them: a writer that removes or replaces files afterwards
// takes nothing from the reader. Logs and manifests are not tables, since Pebble
// reads them while it opens the database and never again. Nothing is written, so
// that it needs no space and a reader that is killed leaves nothing behind.
type Pinned struct {
	vfs.FS   // read-only
	path     string
	tables   map[string]vfs.File // by path
	lock     io.Closer           // nil: nothing keeps a writer out
	found    []fileStamp         // what lay in the folder
	complete bool                // tables has every table
}

// Pin takes the lock of a database for a reader and opens its tables. The path
// of the lock may be another folder's; dir need not exist. Pin returns an ErrLocked
// where a writer has the lock. Once the caller has opened the database through
// the Pinned it calls Release, and Close when it has closed it.
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

// openTables opens the tables, unless there are too many. Those that are gone before
// they are opened are not of the database, or Settled finds it.
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

// Release gives the lock up, so that a writer can have the folder. Where there are
// more tables than this process can hold open, the lock is kept until Close.
func (p *Pinned) Release() error {
	if p.lock == nil || !p.complete {
		return nil
	}
	err := p.lock.Close()
	p.lock = nil
	return err
}

// Settled reports whether what was read since Pin is of one moment: the lock was
// tables, or there was none and no file came, went or was written to.
func (p *Pinned) Settled() bool {
	if p.lock != nil {
		return true
	}
	found, err := fileStamps(p.FS, p.path)
	return err == nil && slices.Equal(found, p.found)
}

// Holds reports whether there was a file of a database in the folder.
func (p *Pinned) Holds() bool {
	return slices.ContainsFunc(p.found, func(f fileStamp) bool { return KindOf(f.name) != Other })
}

// A stamp tells whether a file was changed.
type fileStamp struct {
	name  string
	bytes int64
	time  int64 // of the last write, in nanoseconds
}

// stamps returns the stamps of the files in a folder, which need not exist, by
// name.
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

// Open opens a file, a table from what is tables.
func (p *Pinned) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if file, ok := p.tables[name]; ok {
		return sharedFile{file}, nil
	}
	return p.FS.Open(name, options...)
}

// Close gives up the lock and the files.
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

// A sharedFile is a use of a table that stays open. Tables are read at offsets
// alone, so that all uses share one handle.
type sharedFile struct{ vfs.File }

// Close ends the use.
func (sharedFile) Close() error { return nil }

// The timing of a reader without a lock.
const (
	unsettledTries = 20
	unsettledPause = 50 * time.Millisecond
)

// ReadPinned pins a database and calls open, which opens it through the Pinned,
// and then Release. If no lock keeps writers out and the folder changes during open,
// ReadPinned closes the value of open and tries again, for a second. The caller closes
// that value first and then the Pinned.
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
