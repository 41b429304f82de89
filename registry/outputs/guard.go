package outputs

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

var errFrozen = errors.New("an earlier write failed")

// A guard is the file system that Pebble sees. Pebble answers a write-ahead log
// that cannot be written with a panic, some of them with locks held and none of
// which it survives. So from the first failed write on, the guard freezes the
// disk: nothing is written, synced or removed, and Pebble is told that it was.
// What lies on the disk then is what a power cut at that moment would have
// left, and Pebble recovers from that when it is opened again. Whoever writes
// asks failed after each commit and believes only that.
//
// When the disk was full or the process could open no more files, the guard can be
// thawed, once Pebble is closed, for another Pebble. After any other failure it is
// lost.
type guard struct {
	vfs.FS
	armed atomic.Bool // set once the database is open; before, errors go to Open
	spell atomic.Pointer[spell]
	left  atomic.Pointer[string]
	lost  context.Context    // ends when the guard is lost
	lose  context.CancelFunc // ends lost
	under sync.WaitGroup     // operations of the disk
	begin sync.Mutex         // held while one begins, and while the first fails
}

// A spell is the time of one Pebble.
type spell struct {
	first    atomic.Pointer[error]
	stopped  context.Context    // ends at the first failed write
	stop     context.CancelFunc // ends stopped
	released chan struct{}      // closed when the database is about to be closed
	release  func()             // closes released, once
}

var _ vfs.FS = (*guard)(nil)

func newGuard(fs vfs.FS) *guard {
	g := &guard{}
	g.lost, g.lose = context.WithCancel(context.Background())
	g.thaw(fs)
	return g
}

// thaw begins a spell. No database uses the guard.
func (g *guard) thaw(fs vfs.FS) {
	g.FS = fs
	g.armed.Store(false)
	now := &spell{released: make(chan struct{})}
	now.stopped, now.stop = context.WithCancel(context.Background())
	now.release = sync.OnceFunc(func() { close(now.released) })
	g.spell.Store(now)
}

// release lets go what waits for the database to be closed.
func (g *guard) release() { g.spell.Load().release() }

// stopped returns a context that ends at the first failed write of the database
// that is open now.
func (g *guard) stopped() context.Context { return g.spell.Load().stopped }

// failed returns the first error of a write, sealed, or nil.
func (g *guard) failed() error {
	if err := g.spell.Load().first.Load(); err != nil {
		return seal(*err)
	}
	return nil
}

// fail freezes the disk. A guard whose failure does not pass is lost.
func (g *guard) fail(err error, passes bool) {
	g.begin.Lock()
	defer g.begin.Unlock()
	now := g.spell.Load()
	now.first.CompareAndSwap(nil, &err)
	now.stop()
	if !passes {
		g.lose()
	}
}

// passes reports whether the disk is as the next opening may find it after an
// operation that failed, once there is room or a file may be opened. It never is
// after a sync: the system may have dropped what it did not write.
func passes(err error) bool {
	return !errors.Is(err, errNotSynced) && pebblefiles.Exhausted(err)
}

func (g *guard) frozen() bool { return g.armed.Load() && g.spell.Load().first.Load() != nil }

// begins reports whether an operation of the disk may begin. The caller then
// calls under.Done.
func (g *guard) begins() bool {
	g.begin.Lock()
	defer g.begin.Unlock()
	if g.frozen() {
		return false
	}
	g.under.Add(1)
	return true
}

func (g *guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open(name, c, func() (vfs.File, error) { return g.FS.Create(name, c) })
}

func (g *guard) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return g.open(name, c, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, o...) })
}

func (g *guard) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.open(to, c, func() (vfs.File, error) { return g.FS.ReuseForWrite(from, to, c) })
}

func (g *guard) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil || g.past(name) {
		return f, err
	}
	return &guarded{File: f, guard: g, trusted: true}, nil
}

// open opens a file to write. Once frozen, a log goes nowhere, and a table is
// refused. One of a flush or a compaction is refused when the database is closed
// and not before: Pebble tries again at once, and would do nothing else. Other
// tables are those of an ingestion, for which a caller waits.
func (g *guard) open(name string, category vfs.DiskWriteCategory, do func() (vfs.File, error)) (vfs.File, error) {
	if g.past(name) {
		return do()
	}
	log := strings.HasSuffix(name, ".log")
	if g.begins() {
		f, err := do()
		g.under.Done()
		if err == nil && log {
			f = newLogFile(f)
		}
		if err == nil {
			return &guarded{File: f, guard: g, trusted: log || strings.Contains(name, "MANIFEST")}, nil
		}
		g.fail(err, passes(err))
		if !g.armed.Load() || !log {
			return nil, err
		}
	}
	if log {
		return &guarded{guard: g, name: name, trusted: true}, nil
	}
	if background(category) {
		<-g.spell.Load().released
	}
	return nil, errFrozen
}

// background reports whether Pebble writes files of a category on a goroutine of
// its own.
func background(category vfs.DiskWriteCategory) bool {
	switch category {
	case "pebble-memtable-flush", "pebble-compaction", "pebble-blob-file-rewrite":
		return true
	}
	return false
}

func (g *guard) Link(from, to string) error {
	if g.frozen() && !g.past(to) {
		return errFrozen
	}
	return g.FS.Link(from, to)
}

func (g *guard) Rename(from, to string) error {
	if g.frozen() {
		return errFrozen
	}
	return g.FS.Rename(from, to)
}

func (g *guard) Remove(name string) error {
	if g.frozen() {
		return nil
	}
	return g.FS.Remove(name)
}

func (g *guard) RemoveAll(name string) error {
	if g.frozen() {
		return nil
	}
	return g.FS.RemoveAll(name)
}

func (g *guard) Unwrap() vfs.FS { return g.FS }

// A guarded file is one that Pebble writes. A trusted one is a log, a manifest
// or a folder: Pebble does not survive an error of these, so gets none.
type guarded struct {
	vfs.File // nil for a log that goes nowhere
	guard    *guard
	name     string // of a log that goes nowhere
	trusted  bool
}

// do runs op unless the disk is frozen, and freezes it if op fails.
func (f *guarded) do(op func() error, passes func(error) bool) error {
	err := errFrozen
	if f.guard.begins() {
		err = op()
		if err != nil {
			f.guard.fail(err, passes(err))
		}
		f.guard.under.Done()
		if err == nil {
			return nil
		}
	}
	if f.trusted && f.guard.armed.Load() {
		return nil
	}
	return err
}

func (f *guarded) Write(p []byte) (int, error) {
	if err := f.do(func() error { _, err := f.File.Write(p); return err }, passes); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *guarded) WriteAt(p []byte, at int64) (int, error) {
	if err := f.do(func() error { _, err := f.File.WriteAt(p, at); return err }, passes); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *guarded) Sync() error     { return f.do(func() error { return f.File.Sync() }, never) }
func (f *guarded) SyncData() error { return f.do(func() error { return f.File.SyncData() }, never) }

func (f *guarded) SyncTo(n int64) (full bool, err error) {
	err = f.do(func() error { full, err = f.File.SyncTo(n); return err }, never)
	return full, err
}

func never(error) bool { return false }

// Preallocate reserves space for what will be written. It is an optimization
// that some file systems do not have (ext2, ramfs, NFS before 4.2) and that a
// nearly full disk refuses, so an error of it does not freeze the disk: whether
// the data fits, the write itself says.
func (f *guarded) Preallocate(offset, length int64) error {
	if f.guard.frozen() {
		return nil
	}
	return f.File.Preallocate(offset, length)
}

func (f *guarded) Close() error {
	if f.File == nil {
		return nil
	}
	return f.File.Close()
}

func (f *guarded) Prefetch(offset, length int64) error {
	if f.File == nil {
		return nil
	}
	return f.File.Prefetch(offset, length)
}

// Stat is asked of a log that is used again, for its size. One that goes nowhere
// answers as its folder does.
func (f *guarded) Stat() (vfs.FileInfo, error) {
	if f.File == nil {
		return f.guard.FS.Stat(f.guard.PathDir(f.name))
	}
	return f.File.Stat()
}

func (f *guarded) Fd() uintptr {
	if f.File == nil {
		return vfs.InvalidFd
	}
	return f.File.Fd()
}

// A silent logger is what Pebble reports to. What it calls fatal freezes the
// disk, and Pebble goes on, to nobody's harm.
type silent struct{ *guard }

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}

func (s silent) Fatalf(string, ...any) { s.fail(errors.New("the database gave up"), false) }
