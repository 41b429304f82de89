package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events/embedded/files"
)

// errStopped says why a store refuses what it is asked to write.
var errStopped = errors.New("the store stopped at a failed write; opening it again tells what was kept")

// A guard stands between Pebble and its file system, and stops at the first
// write that fails. From then on nothing reaches the storage: Pebble is told
// that all is well, and what it writes is kept in memory and dropped with it.
// Pebble itself would end the process, or try again on top of a sync that
// failed. Whoever had something written looks at failure afterwards.
// Opening a database is no different.
type guard struct {
	vfs.FS
	logger  *slog.Logger
	scratch *vfs.MemFS    // what was created since the failure
	stopped chan struct{} // closed at the failure
	ending  chan struct{} // closed when the store begins to close
	vitals  *vitals       // is told how long syncs of the log take
	mu      struct {
		sync.Mutex
		cause  error // what failed
		opened bool  // the database is open
	}
}

func newGuard(storage vfs.FS, logger *slog.Logger, vitals *vitals) *guard {
	return &guard{FS: storage, logger: logger, vitals: vitals, scratch: vfs.NewMem(), stopped: make(chan struct{}), ending: make(chan struct{})}
}

// failure returns the error that stopped the guard, or nil.
func (g *guard) failure() error {
	if cause := g.cause(); cause != nil {
		return fmt.Errorf("%w: %w", errStopped, cause)
	}
	return nil
}

// cause returns what failed, or nil.
func (g *guard) cause() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.cause
}

// fail stops the guard.
func (g *guard) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.cause == nil {
		g.mu.cause = err
		close(g.stopped)
	}
}

// opened says that the database is open.
func (g *guard) opened() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.opened = true
}

// park waits until the store begins to close, as Pebble would try again at
// once. A database that is being opened waits for what fails here, and does not
// try again.
func (g *guard) park() {
	g.mu.Lock()
	opened := g.mu.opened
	g.mu.Unlock()
	if opened {
		<-g.ending
	}
}

// open returns a file for writing: the one that open opens or, once the guard
// has stopped, one in memory.
func (g *guard) open(op, name string, category vfs.DiskWriteCategory, open func() (vfs.File, error)) (vfs.File, error) {
	if g.cause() == nil {
		file, err := open()
		if err == nil {
			return &guardedFile{File: file, guard: g, name: name, table: isTable(category), log: category == "pebble-wal"}, nil
		}
		g.fail(fmt.Errorf("%s %s: %w", op, name, err))
	}
	if isTable(category) && category != "pebble-memtable-flush" { // needless, and as large as the store
		g.park()
		return nil, g.failure()
	}
	if err := g.scratch.MkdirAll(g.PathDir(name), 0o755); err != nil {
		return nil, err
	}
	return g.scratch.Create(name, category)
}

// write does something to the storage that yields no file, unless the guard
// has stopped. Pebble is not told if it fails.
func (g *guard) write(op, name string, do func() error) {
	if g.cause() != nil {
		return
	}
	if err := do(); err != nil {
		g.fail(fmt.Errorf("%s %s: %w", op, name, err))
	}
}

// Create makes the entries of a folder durable before it creates a marker,
// which names one of them.
func (g *guard) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(g.PathBase(name), "marker.") {
		g.write("sync", g.PathDir(name), func() error { return files.SyncDir(g.FS, g.PathDir(name)) })
	}
	return g.open("create", name, category, func() (vfs.File, error) { return g.FS.Create(name, category) })
}

func (g *guard) ReuseForWrite(from, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open("reuse", name, category, func() (vfs.File, error) { return g.FS.ReuseForWrite(from, name, category) })
}

func (g *guard) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return g.open("open", name, category, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, category, options...) })
}

func (g *guard) OpenDir(name string) (vfs.File, error) {
	dir, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &guardedFile{File: dir, guard: g, name: name}, nil
}

// Open and Stat find what was created since the failure as well.
func (g *guard) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if g.cause() != nil {
		if file, err := g.scratch.Open(name, options...); err == nil {
			return file, nil
		}
	}
	return g.FS.Open(name, options...)
}

func (g *guard) Stat(name string) (vfs.FileInfo, error) {
	if g.cause() != nil {
		if info, err := g.scratch.Stat(name); err == nil {
			return info, nil
		}
	}
	return g.FS.Stat(name)
}

func (g *guard) Link(from, name string) error {
	g.write("link", name, func() error { return g.FS.Link(from, name) })
	return nil
}

func (g *guard) Rename(from, name string) error {
	g.write("rename", name, func() error { return g.FS.Rename(from, name) })
	return nil
}

// Remove returns its errors, as a file that stays does no harm.
func (g *guard) Remove(name string) error {
	if g.cause() != nil {
		return nil
	}
	return g.FS.Remove(name)
}

func (g *guard) RemoveAll(name string) error {
	if g.cause() != nil {
		return nil
	}
	return g.FS.RemoveAll(name)
}

func (g *guard) Unwrap() vfs.FS { return g.FS }

// isTable reports whether files of a category are read back while the database
// is open, so that half of one is no good even to a database that is given up.
func isTable(category vfs.DiskWriteCategory) bool {
	switch category {
	case "pebble-memtable-flush", "pebble-compaction", "pebble-blob-file-rewrite":
		return true
	}
	return false
}

// A guardedFile writes until its guard stops. Pebble is told so if the file is
// a table, and makes another, which the guard keeps in memory.
type guardedFile struct {
	vfs.File
	guard *guard
	name  string
	table bool
	log   bool
}

func (f *guardedFile) write(op string, do func() error) error {
	f.guard.write(op, f.name, do)
	if f.table {
		return f.guard.failure()
	}
	return nil
}

// Write lets appends go first if the file is a table: whoever writes one is at
// work for a tenth of a second, and with all processors taken the committer
// would wait for its turn as long as the scheduler lets it.
func (f *guardedFile) Write(p []byte) (int, error) {
	if f.table {
		runtime.Gosched()
	}
	err := f.write("write", func() error {
		_, err := f.File.Write(p)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *guardedFile) WriteAt(p []byte, at int64) (int, error) {
	err := f.write("write", func() error {
		_, err := f.File.WriteAt(p, at)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Preallocate reserves space for what will be written. It is an optimization
// that some file systems do not have (ext2, ramfs, NFS before 4.2) and that a
// nearly full disk refuses, so an error of it does not stop the store: whether
// the data fits, the write itself says.
func (f *guardedFile) Preallocate(at, length int64) error {
	if f.guard.cause() != nil {
		return nil
	}
	return f.File.Preallocate(at, length)
}

func (f *guardedFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *guardedFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *guardedFile) sync(do func() error) error {
	begun := time.Now()
	err := f.write("sync", do)
	if f.log {
		f.guard.vitals.synced(time.Since(begun))
	}
	return err
}

func (f *guardedFile) SyncTo(length int64) (full bool, err error) {
	err = f.write("sync", func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Close closes the file even if the guard has stopped.
func (f *guardedFile) Close() error {
	err := f.File.Close()
	return f.write("close", func() error { return err })
}

// Infof, Errorf and Fatalf are Pebble's logger. What is fatal to Pebble stops
// the store and not the process.
func (g *guard) Infof(string, ...any) {}

func (g *guard) Errorf(format string, args ...any) {
	g.log(slog.LevelWarn, fmt.Sprintf(format, args...))
}

func (g *guard) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	g.log(slog.LevelError, text)
	g.fail(errors.New(strings.TrimPrefix(text, "pebble: ")))
}

func (g *guard) log(level slog.Level, text string) {
	if g.logger != nil {
		g.logger.Log(context.Background(), level, text, "from", "pebble")
	}
}
