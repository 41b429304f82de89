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

// A FailStopFS is the file system that a Pebble database is opened with. It stops at
// the first failed write, also while the database opens. From then on no change
// reaches the storage, which stays as a power cut would have left it.
//
// Pebble itself would end the process, or retry after a failed sync. A stopped
// FailStopFS prevents both: writes of logs, manifests and folders succeed without
// effect, and new files are kept in memory until Reset. Pebble does not learn of the
// failure, so the caller must check Err after each write.
//
// A failure is temporary or permanent. A full disk and too many open files are
// temporary failures: the caller can close the database, Reset the file system and
// open the database again. Any other failure is permanent, and so is every failed
// sync.
//
// A FailStopFS is safe for concurrent use. It is also a logger for Pebble.
type FailStopFS struct {
	vfs.FS
	options  FailStopOptions
	lost     chan struct{}          // closed at the first permanent failure
	running  sync.WaitGroup         // operations of the storage that have begun and not ended
	excluded atomic.Pointer[string] // folder whose files are written directly to the storage
	mu       struct {
		sync.Mutex
		failure error         // the first failure since Reset
		lasting error         // the first permanent failure
		opened  bool          // the database is open
		scratch *vfs.MemFS    // files created since the failure
		stopped chan struct{} // closed at the first failure since Reset
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

// Reset forgets a temporary failure, drops the files in memory, and continues with a
// storage. No database may use the file system. A permanent failure stays: Failure
// still returns it.
func (s *FailStopFS) Reset(storage vfs.FS) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.FS = storage
	s.mu.failure, s.mu.opened = nil, false
	s.mu.scratch, s.mu.stopped, s.mu.closing = vfs.NewMem(), make(chan struct{}), make(chan struct{})
}

// Exclude excludes a folder, such as the folder of a snapshot. Operations on files in
// it go directly to the storage, before and after a failure; their errors are
// returned and do not stop the file system. Each call replaces the excluded folder.
// The empty name excludes no folder.
func (s *FailStopFS) Exclude(dir string) { s.excluded.Store(&dir) }

// excludes reports whether a file is the excluded folder or within it.
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

// Failure returns the first permanent failure and true. If there is none, it returns
// the result of Err and false.
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

// Context returns a context that ends when parent ends or the file system stops. It
// is for a compaction, which Pebble would retry until its context ends. It starts a
// goroutine that ends with the context, so the caller must call cancel.
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

// Lost returns a channel that is closed at the first permanent failure.
func (s *FailStopFS) Lost() <-chan struct{} { return s.lost }

// Fail stops the file system with err as a permanent failure.
func (s *FailStopFS) Fail(err error) { s.stop(err, false) }

// Pause stops the file system until Reset if err is temporary, and for good
// otherwise.
func (s *FailStopFS) Pause(err error) { s.stop(err, passes("", err)) }

// stop stops the file system with the failure err, which is temporary if passes is
// true. It keeps the first failure since Reset for Err. It keeps the first permanent
// failure for Failure, even if a temporary one came before it.
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

// passes reports whether the failure of an operation is temporary: the disk is full
// or too many files are open, and the storage is in a state from which the database
// can be reopened later. A failed sync is permanent, because the system may have
// dropped unwritten data. So is a failed close, which on a network file system writes
// data.
func passes(op string, err error) bool {
	if op == "sync" || op == "close" || errors.Is(err, ErrSyncFailed) {
		return false
	}
	return Exhausted(err)
}

// Wait waits until the running operations of the storage have ended. An operation
// that began before a temporary failure may still fail and make it permanent.
func (s *FailStopFS) Wait() { s.running.Wait() }

// begin must be called before an operation of the storage. If it returns true, it has
// counted the operation as running, and the caller must call end after it. After a
// failure begin returns false, and the caller must not start the operation.
func (s *FailStopFS) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.failure != nil {
		return false
	}
	s.running.Add(1)
	return true
}

// end records that an operation, for which begin returned true, has ended with err.
// If err is not nil, end stops the file system.
func (s *FailStopFS) end(op, name string, err error) {
	if err != nil {
		s.stop(fmt.Errorf("%s %s: %w", op, name, err), passes(op, err))
	}
	s.running.Done()
}

// Opened records that the database is open. Pebble may then retry background work, so
// park waits.
func (s *FailStopFS) Opened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.opened = true
}

// Closing records that the database begins to close. It wakes the compactions that
// wait in park, because closing the database waits for them. It may be called several
// times.
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

// park keeps background work of a stopped file system waiting until the database
// begins to close, because Pebble would retry it at once and without end. While the
// database opens, Pebble does not retry, and park returns at once.
func (s *FailStopFS) park() {
	s.mu.Lock()
	opened, closing := s.mu.opened, s.mu.closing
	s.mu.Unlock()
	if opened {
		<-closing
	}
}

// refusal returns the error of an operation that the stopped file system refuses: an
// ErrFailStop that wraps the failure. It returns nil if the file system has not
// stopped.
func (s *FailStopFS) refusal() error {
	if err := s.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrFailStop, err)
	}
	return nil
}

// open opens a file for writing with the given function. After the failure it returns
// a file in memory or an error:
//
//   - The table of a compaction is refused after park, because it can be as large as
//     the store.
//   - The table of a flush is in memory, because the closing database waits for the
//     flush.
//   - Any other table, such as one of an ingestion, is refused; its caller gets the
//     error.
//   - A log, a manifest or another file is in memory.
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

// write runs an operation that changes the storage, unless the file system has
// stopped. If the operation fails, write stops the file system and returns no error,
// because Pebble would end the process or retry.
func (s *FailStopFS) write(op, name string, do func() error) {
	if s.begin() {
		s.end(op, name, do())
	}
}

// Create creates a file. If the file is a marker, whose name refers to another file
// of the folder, Create first makes the entries of the folder durable. So a marker
// never names a missing file after a power cut.
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

// Link adds a table to the database. A failure does not stop the file system, because
// the caller, an ingestion or a snapshot, copies the file instead or returns the
// error.
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

// Remove removes a file, unless the file system has stopped. An error does not stop the
// file system, because a file that stays does no harm.
func (s *FailStopFS) Remove(name string) error {
	if s.Err() != nil && !s.excludes(name) {
		return nil
	}
	return s.FS.Remove(name)
}

// RemoveAll removes a folder and its content, unless the file system has stopped. An
// error does not stop the file system.
func (s *FailStopFS) RemoveAll(name string) error {
	if s.Err() != nil && !s.excludes(name) {
		return nil
	}
	return s.FS.RemoveAll(name)
}

// Unwrap returns the storage.
func (s *FailStopFS) Unwrap() vfs.FS { return s.FS }

// isTable reports whether a file is a table. After a failure, writes of a table must
// return an error. If they succeeded without effect, Pebble would take the incomplete
// table for a complete one and read it before the database is closed.
func isTable(name string, category vfs.DiskWriteCategory) bool {
	kind := KindOf(name)
	return kind == Table || kind == Blob || category == "pebble-memtable-flush" || inBackground(category)
}

// inBackground reports whether Pebble writes the files of a category on a goroutine
// that retries at once.
func inBackground(category vfs.DiskWriteCategory) bool {
	return category == "pebble-compaction" || category == "pebble-blob-file-rewrite"
}

// A failStopFile is a file of a FailStopFS that is open for writing. When the file
// system has stopped, writes of a table return an error, so that Pebble abandons the
// table. Writes of any other file succeed without effect.
type failStopFile struct {
	vfs.File
	fs    *FailStopFS
	name  string // for error texts
	table bool   // isTable
	log   bool   // a log of Pebble, whose syncs are measured
}

// write runs an operation on the file, unless the file system has stopped. If the
// operation fails, the file system stops. In both cases write returns an ErrFailStop
// for a table, and nil for any other file.
func (f *failStopFile) write(op string, do func() error) error {
	f.fs.write(op, f.name, do)
	if f.table {
		return f.fs.refusal()
	}
	return nil
}

// Write writes p. For a table it first lets other goroutines run: a compaction writes
// for a tenth of a second, which would delay a committer when all processors are
// busy.
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

// WriteAt writes p at an offset.
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

// Preallocate reserves space for later writes. It is an optimization. Some file
// systems do not support it (ext2, ramfs, NFS before 4.2), and a nearly full disk
// refuses it. So an error does not stop the file system; a later write shows whether
// the data fits.
func (f *failStopFile) Preallocate(at, length int64) error {
	if f.fs.Err() != nil {
		return nil
	}
	return f.File.Preallocate(at, length)
}

// Sync makes the data of the file durable.
func (f *failStopFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData makes the data of the file durable, without all of its metadata.
func (f *failStopFile) SyncData() error { return f.sync(f.File.SyncData) }

// sync runs a sync of the file, and reports its duration to LogSynced if the file is
// a log.
func (f *failStopFile) sync(do func() error) error {
	begun := time.Now()
	err := f.write("sync", do)
	if f.log && f.fs.options.LogSynced != nil {
		f.fs.options.LogSynced(time.Since(begun))
	}
	return err
}

// SyncTo starts or completes the writing of the bytes before the offset length, as
// SyncTo of the storage does.
func (f *failStopFile) SyncTo(length int64) (full bool, err error) {
	err = f.write("sync", func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Close closes the file, also after the failure. A failed close stops the file
// system.
func (f *failStopFile) Close() error {
	err := f.File.Close()
	return f.write("close", func() error { return err })
}

// Infof discards a message. Infof, Errorf and Fatalf are the methods of Pebble's
// logger.
func (s *FailStopFS) Infof(string, ...any) {}

// Errorf logs a warning.
func (s *FailStopFS) Errorf(format string, args ...any) {
	s.Log(slog.LevelWarn, fmt.Sprintf(format, args...))
}

// Fatalf logs an error and stops the file system for good. Pebble expects it to end
// the process; it returns instead.
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
