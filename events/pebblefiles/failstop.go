package pebblefiles

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrFailStop is the error of an operation that a [FailStopFS] refuses, because an
// earlier one failed.
var ErrFailStop = errors.New("the file system stopped at a failed write")

// ErrSyncFailed marks a failed sync that a file reports as the error of another
// operation, such as a write that syncs.
var ErrSyncFailed = errors.New("sync failed")

// A FailStopFS is the file system that a Pebble database is opened with. It stops at the
// first failed write, also while the database opens: from then on nothing reaches the
// storage, which stays as a power cut would have left it. Pebble itself would end the
// process, or retry after a failed sync. Instead, writes of logs, manifests and folders
// succeed without effect, and new files are kept in memory until Reset. Pebble does not
// learn of the failure, so the caller checks Err after each write.
//
// After a failure that passes (a full disk, too many open files), the caller can close
// the database and Reset the file system for a new one. After any other failure, and
// after every failed sync, the failure is permanent.
//
// A FailStopFS is safe for concurrent use. It is also a logger for Pebble.
type FailStopFS struct {
	vfs.FS
	options  FailStopOptions
	lost     chan struct{}          // closed at a failure that does not pass
	running  sync.WaitGroup         // running operations of the storage
	excluded atomic.Pointer[string] // folder whose files are written directly to the storage
	mu       struct {
		sync.Mutex
		failure error         // the first since Reset
		lasting error         // the first that does not pass
		opened  bool          // the database is open
		scratch *vfs.MemFS    // files created since the failure
		stopped chan struct{} // closed at the failure
		closing chan struct{} // closed when the database begins to close
	}
}

// FailStopOptions are the optional parts of a FailStopFS.
type FailStopOptions struct {
	Logger    *slog.Logger        // gets Pebble's warnings and errors; nil: nothing is logged
	LogSynced func(time.Duration) // is called with the duration of each sync of a log; nil: it is not measured
}

// NewFailStopFS returns a FailStopFS over a storage.
func NewFailStopFS(storage vfs.FS, options FailStopOptions) *FailStopFS {
	s := &FailStopFS{options: options, lost: make(chan struct{})}
	s.Reset(storage)
	return s
}

// Reset forgets a failure that passes and continues with a storage. No database may
// use the file system.
func (s *FailStopFS) Reset(storage vfs.FS) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.FS = storage
	s.mu.failure, s.mu.opened = nil, false
	s.mu.scratch, s.mu.stopped, s.mu.closing = vfs.NewMem(), make(chan struct{}), make(chan struct{})
}

// Exclude excludes a folder, such as that of a snapshot: files in it are written directly
// to the storage, before and after a failure, and their errors are returned and stop
// nothing. Only one folder is excluded at a time; the empty name excludes no folder.
func (s *FailStopFS) Exclude(dir string) { s.excluded.Store(&dir) }

// excludes reports whether a file is in the excluded folder, or is that folder.
func (s *FailStopFS) excludes(name string) bool {
	dir := s.excluded.Load()
	if dir == nil || *dir == "" {
		return false
	}
	for at := name; len(at) >= len(*dir); {
		if at == *dir {
			return true
		}
		parent := s.PathDir(at)
		if parent == at {
			return false
		}
		at = parent
	}
	return false
}

// Err returns the failure that stopped the file system, or nil.
func (s *FailStopFS) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.failure
}

// Failure returns the first permanent failure and true, or else the result of Err and
// false.
func (s *FailStopFS) Failure() (err error, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.lasting != nil {
		return s.mu.lasting, true
	}
	return s.mu.failure, false
}

// Stopped returns a channel that is closed at the first failure since Reset.
func (s *FailStopFS) Stopped() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.stopped
}

// Context returns a context that ends with parent or at the next failure, for a
// compaction: Pebble would retry it until the context ends. The caller calls cancel.
func (s *FailStopFS) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(parent)
	stopped := s.Stopped()
	go func() {
		select {
		case <-stopped:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Lost returns a channel that is closed at the first failure that does not pass.
func (s *FailStopFS) Lost() <-chan struct{} { return s.lost }

// Fail stops the file system for good.
func (s *FailStopFS) Fail(err error) { s.stop(err, false) }

// Pause stops the file system until Reset, or for good if err does not pass.
func (s *FailStopFS) Pause(err error) { s.stop(err, passes("", err)) }

// stop stops the file system. If the error does not pass, it is lost, whatever failed
// before.
func (s *FailStopFS) stop(err error, passes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failure == nil {
		s.mu.failure = err
		close(s.mu.stopped)
	}
	if !passes && s.mu.lasting == nil {
		s.mu.lasting = err
		close(s.lost)
	}
}

// passes reports whether a failed operation leaves the storage in a state from which the
// database can be reopened once there is room. A failed sync does not: the system may
// have dropped unwritten data. The same holds for a failed close on network file systems.
func passes(op string, err error) bool {
	if op == "sync" || op == "close" || errors.Is(err, ErrSyncFailed) {
		return false
	}
	return Exhausted(err)
}

// Wait waits for running operations of the storage. One that began before the failure may
// still fail and make it permanent.
func (s *FailStopFS) Wait() { s.running.Wait() }

// begin reports whether an operation of the storage may begin, which is until the
// first failure. The caller then calls end.
func (s *FailStopFS) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failure != nil {
		return false
	}
	s.running.Add(1)
	return true
}

// end ends an operation, and stops the file system if the operation failed.
func (s *FailStopFS) end(op, name string, err error) {
	if err != nil {
		s.stop(fmt.Errorf("%s %s: %w", op, name, err), passes(op, err))
	}
	s.running.Done()
}

// Opened tells the file system that the database is open.
func (s *FailStopFS) Opened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.opened = true
}

// Closing tells the file system that the database begins to close, and lets
// compactions that wait for that go on.
func (s *FailStopFS) Closing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.mu.closing:
	default:
		close(s.mu.closing)
	}
}

// memory returns the file system with the files created since the failure.
func (s *FailStopFS) memory() *vfs.MemFS {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.scratch
}

// park waits until the database begins to close, because Pebble would retry at once.
// While the database opens, Pebble does not retry, and park returns at once.
func (s *FailStopFS) park() {
	s.mu.Lock()
	opened, closing := s.mu.opened, s.mu.closing
	s.mu.Unlock()
	if opened {
		<-closing
	}
}

// refusal returns the error of an operation that begins after the failure.
func (s *FailStopFS) refusal() error {
	if err := s.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrFailStop, err)
	}
	return nil
}

// open returns a file for writing: the one that open opens or, after the failure, one
// in memory. Tables are refused, but for those of a flush, which the closing database
// waits for: the table of a compaction is as large as the store, and that of an
// ingestion has a caller who takes the error.
func (s *FailStopFS) open(op, name string, category vfs.DiskWriteCategory, open func() (vfs.File, error)) (vfs.File, error) {
	if s.excludes(name) {
		return open()
	}
	table := isTable(name, category)
	if s.begin() {
		file, err := open()
		s.end(op, name, err)
		if err == nil {
			return &failStopFile{File: file, fs: s, name: name, table: table, log: category == "pebble-wal"}, nil
		}
	}
	switch {
	case inBackground(category):
		s.park()
		return nil, s.refusal()
	case table && category != "pebble-memtable-flush":
		return nil, s.refusal()
	}
	scratch := s.memory()
	if err := scratch.MkdirAll(s.PathDir(name), 0o755); err != nil {
		return nil, err
	}
	return scratch.Create(name, category)
}

// write changes the storage, unless the file system has stopped. Pebble does not learn
// of an error.
func (s *FailStopFS) write(op, name string, do func() error) {
	if s.begin() {
		s.end(op, name, do())
	}
}

// Create creates a file. It makes the entries of a folder durable before it creates a
// marker, which names one of them.
func (s *FailStopFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(s.PathBase(name), "marker.") && !s.excludes(name) {
		s.write("sync", s.PathDir(name), func() error { return SyncDir(s.FS, s.PathDir(name)) })
	}
	return s.open("create", name, category, func() (vfs.File, error) { return s.FS.Create(name, category) })
}

// ReuseForWrite renames a file and opens it for writing.
func (s *FailStopFS) ReuseForWrite(from, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return s.open("reuse", name, category, func() (vfs.File, error) { return s.FS.ReuseForWrite(from, name, category) })
}

// OpenReadWrite opens a file for reading and writing.
func (s *FailStopFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	return s.open("open", name, category, func() (vfs.File, error) { return s.FS.OpenReadWrite(name, category, options...) })
}

// OpenDir opens a folder, whose syncs stop the file system if they fail.
func (s *FailStopFS) OpenDir(name string) (vfs.File, error) {
	dir, err := s.FS.OpenDir(name)
	if err != nil || s.excludes(name) {
		return dir, err
	}
	return &failStopFile{File: dir, fs: s, name: name}, nil
}

// Open opens a file for reading, also one that was created since the failure.
func (s *FailStopFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	if s.Err() != nil && !s.excludes(name) {
		if file, err := s.memory().Open(name, options...); err == nil {
			return file, nil
		}
	}
	return s.FS.Open(name, options...)
}

// Stat describes a file, also one that was created since the failure.
func (s *FailStopFS) Stat(name string) (vfs.FileInfo, error) {
	if s.Err() != nil && !s.excludes(name) {
		if info, err := s.memory().Stat(name); err == nil {
			return info, nil
		}
	}
	return s.FS.Stat(name)
}

// Link adds a table to the database. It stops nothing if it fails: its caller, an
// ingestion or a snapshot, copies the file instead, or takes the error.
func (s *FailStopFS) Link(from, name string) error {
	if s.excludes(name) {
		return s.FS.Link(from, name)
	}
	if !s.begin() {
		return s.refusal()
	}
	defer s.running.Done()
	return s.FS.Link(from, name)
}

// Rename renames a file. Pebble does not learn of an error.
func (s *FailStopFS) Rename(from, name string) error {
	if s.excludes(name) {
		return s.FS.Rename(from, name)
	}
	s.write("rename", name, func() error { return s.FS.Rename(from, name) })
	return nil
}

// Remove removes a file, unless the file system has stopped. It returns its error and
// does not stop, because a file that stays does no harm.
func (s *FailStopFS) Remove(name string) error {
	if s.Err() != nil && !s.excludes(name) {
		return nil
	}
	return s.FS.Remove(name)
}

// RemoveAll removes a folder as Remove does a file.
func (s *FailStopFS) RemoveAll(name string) error {
	if s.Err() != nil && !s.excludes(name) {
		return nil
	}
	return s.FS.RemoveAll(name)
}

// Unwrap returns the storage.
func (s *FailStopFS) Unwrap() vfs.FS { return s.FS }

// isTable reports whether a file is a table, which is read back while the database is
// open: one that is written in part is of no use even to a database that is given up.
func isTable(name string, category vfs.DiskWriteCategory) bool {
	kind := KindOf(name)
	return kind == Table || kind == Blob || category == "pebble-memtable-flush" || inBackground(category)
}

// inBackground reports whether Pebble writes the files of a category on a goroutine
// that retries at once.
func inBackground(category vfs.DiskWriteCategory) bool {
	return category == "pebble-compaction" || category == "pebble-blob-file-rewrite"
}

// A failStopFile is written to until its file system stops. Then writes of a table
// return an error, so that Pebble makes another, and those of any other file succeed
// and do nothing.
type failStopFile struct {
	vfs.File
	fs    *FailStopFS
	name  string
	table bool
	log   bool
}

func (f *failStopFile) write(op string, do func() error) error {
	f.fs.write(op, f.name, do)
	if f.table {
		return f.fs.refusal()
	}
	return nil
}

// Write lets other goroutines run first if the file is a table: a compaction writes
// for a tenth of a second, during which it would hold up a committer where all
// processors are in use.
func (f *failStopFile) Write(p []byte) (int, error) {
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

func (f *failStopFile) WriteAt(p []byte, at int64) (int, error) {
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
// nearly full disk refuses, so its error stops nothing: the write itself shows
// whether the data fits.
func (f *failStopFile) Preallocate(at, length int64) error {
	if f.fs.Err() != nil {
		return nil
	}
	return f.File.Preallocate(at, length)
}

func (f *failStopFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *failStopFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *failStopFile) sync(do func() error) error {
	begun := time.Now()
	err := f.write("sync", do)
	if f.log && f.fs.options.LogSynced != nil {
		f.fs.options.LogSynced(time.Since(begun))
	}
	return err
}

func (f *failStopFile) SyncTo(length int64) (full bool, err error) {
	err = f.write("sync", func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Close closes the file also after the failure.
func (f *failStopFile) Close() error {
	err := f.File.Close()
	return f.write("close", func() error { return err })
}

// Infof does nothing. It is a method of Pebble's logger, as are Errorf and Fatalf.
func (s *FailStopFS) Infof(string, ...any) {}

// Errorf logs a warning.
func (s *FailStopFS) Errorf(format string, args ...any) {
	s.Log(slog.LevelWarn, fmt.Sprintf(format, args...))
}

// Fatalf logs an error and stops the file system for good, and not the process.
func (s *FailStopFS) Fatalf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.Log(slog.LevelError, text)
	s.Fail(errors.New(strings.TrimPrefix(text, "pebble: ")))
}

// Log logs a message, if there is a logger.
func (s *FailStopFS) Log(level slog.Level, text string) {
	if s.options.Logger != nil {
		s.options.Logger.Log(context.Background(), level, text, "from", "pebble")
	}
}
