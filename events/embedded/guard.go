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
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// errStopped says why a store refuses what it is asked to write.
var errStopped = errors.New("the store stopped at a failed write; opening it again tells what was kept")

// ErrPaused is the answer to a write while the disk is full or the process may
// open no more files. The store goes on by itself when that is over: see [Open].
// An append that ends with it is open, as after any other error: the same records,
// appended again later, are added once.
var ErrPaused = errors.New("the store takes no writes while the disk is full or too many files are open, and goes on by itself afterwards")

// A guard stands between Pebble and its file system, and stops at the first
// write that fails. From then on nothing reaches the storage: Pebble is told
// that all is well, and what it writes is kept in memory and dropped with it.
// Pebble itself would end the process, or try again on top of a sync that
// failed. Whoever had something written looks at failure afterwards.
// Opening a database is no different.
//
// A guard whose storage is full, or that may open no more files, is paused: when
// Pebble is closed, it can be resumed for another Pebble. After any other failure
// it is lost.
type guard struct {
	vfs.FS
	logger *slog.Logger
	lost   chan struct{}  // closed when the guard is lost
	vitals *vitals        // is told how long syncs of the log take
	under  sync.WaitGroup // operations of the storage
	mu     struct {
		sync.Mutex
		cause   error         // what failed
		lasting error         // why the guard is lost
		opened  bool          // the database is open
		scratch *vfs.MemFS    // what was created since the failure
		stopped chan struct{} // closed at the failure
		ending  chan struct{} // closed when the database begins to close
	}
}

func newGuard(storage vfs.FS, logger *slog.Logger, vitals *vitals) *guard {
	g := &guard{logger: logger, vitals: vitals, lost: make(chan struct{})}
	g.resume(storage)
	return g
}

// resume begins anew with a storage. No database uses the guard.
func (g *guard) resume(storage vfs.FS) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.FS = storage
	g.mu.cause, g.mu.opened = nil, false
	g.mu.scratch, g.mu.stopped, g.mu.ending = vfs.NewMem(), make(chan struct{}), make(chan struct{})
}

// failure returns the error that stopped the guard, or nil.
func (g *guard) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.mu.lasting != nil:
		return fmt.Errorf("%w: %w", errStopped, g.mu.lasting)
	case g.mu.cause != nil:
		return fmt.Errorf("%w: %w", ErrPaused, g.mu.cause)
	}
	return nil
}

// cause returns what failed, or nil.
func (g *guard) cause() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.cause
}

// stopped returns a channel that is closed at the next failure, or that was at the
// last.
func (g *guard) stopped() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.stopped
}

// fail stops the guard, which is lost.
func (g *guard) fail(err error) { g.stop(err, false) }

// stop stops the guard. One that does not pass is lost, whatever failed before.
func (g *guard) stop(err error, passes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.cause == nil {
		g.mu.cause = err
		close(g.mu.stopped)
	}
	if !passes && g.mu.lasting == nil {
		g.mu.lasting = err
		close(g.lost)
	}
}

// passes reports whether the storage is as the next opening may find it after an
// operation that failed, once there is room or a file may be opened. A sync that
// failed never is: the system may have dropped what it did not write. Of a file
// that failed to close the same is true on network file systems.
func passes(op string, err error) bool {
	if op == "sync" || op == "close" {
		return false
	}
	return pebblefiles.Exhausted(err)
}

// begin reports whether an operation of the storage may begin. The caller then
// ends it.
func (g *guard) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.cause != nil {
		return false
	}
	g.under.Add(1)
	return true
}

// end ends an operation, which stops the guard if it failed.
func (g *guard) end(op, name string, err error) {
	if err != nil {
		g.stop(fmt.Errorf("%s %s: %w", op, name, err), passes(op, err))
	}
	g.under.Done()
}

// opened says that the database is open.
func (g *guard) opened() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.opened = true
}

// close says that the database begins to close.
func (g *guard) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !isClosed(g.mu.ending) {
		close(g.mu.ending)
	}
}

// memory returns the file system of what was created since the failure.
func (g *guard) memory() *vfs.MemFS {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.scratch
}

// park waits until the store begins to close, as Pebble would try again at
// once. A database that is being opened waits for what fails here, and does not
// try again.
func (g *guard) park() {
	g.mu.Lock()
	opened, ending := g.mu.opened, g.mu.ending
	g.mu.Unlock()
	if opened {
		<-ending
	}
}

// open returns a file for writing: the one that open opens or, once the guard
// has stopped, one in memory.
func (g *guard) open(op, name string, category vfs.DiskWriteCategory, open func() (vfs.File, error)) (vfs.File, error) {
	if g.begin() {
		file, err := open()
		g.end(op, name, err)
		if err == nil {
			return &guardedFile{File: file, guard: g, name: name, table: isTable(category), log: category == "pebble-wal"}, nil
		}
	}
	if isTable(category) && category != "pebble-memtable-flush" { // needless, and as large as the store
		g.park()
		return nil, g.failure()
	}
	scratch := g.memory()
	if err := scratch.MkdirAll(g.PathDir(name), 0o755); err != nil {
		return nil, err
	}
	return scratch.Create(name, category)
}

// write does something to the storage that yields no file, unless the guard
// has stopped. Pebble is not told if it fails.
func (g *guard) write(op, name string, do func() error) {
	if g.begin() {
		g.end(op, name, do())
	}
}

// Create makes the entries of a folder durable before it creates a marker,
// which names one of them.
func (g *guard) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(g.PathBase(name), "marker.") {
		g.write("sync", g.PathDir(name), func() error { return pebblefiles.SyncDir(g.FS, g.PathDir(name)) })
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
		if file, err := g.memory().Open(name, options...); err == nil {
			return file, nil
		}
	}
	return g.FS.Open(name, options...)
}

func (g *guard) Stat(name string) (vfs.FileInfo, error) {
	if g.cause() != nil {
		if info, err := g.memory().Stat(name); err == nil {
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
