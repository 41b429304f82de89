package outputs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// A Config says where outputs are kept, and how much of the disk is not theirs.
type Config struct {
	FS      vfs.FS       // nil: the disk
	Logger  *slog.Logger // is told where a crash may have left a log that lacks outputs; nil: nothing is
	Reserve uint64       // bytes of the disk that are held back, for the database itself and for others; zero: 64 MiB

	memTable uint64 // bytes of a memtable; zero: memTable. Tests fill small ones sooner.
}

const defaultReserve = 64 << 20

// A Store keeps outputs. Whoever opened it closes it.
type Store struct {
	dir      string
	fs       vfs.FS                  // as the caller sees it; bodies on their way in are written to it
	failStop *pebblefiles.FailStopFS // that the database is opened with
	replay   *pebblefiles.Replay     // under failStop
	pinned   *pebblefiles.Pinned     // nil: the store writes
	ready    bool                    // the database was opened to write
	logger   *slog.Logger
	options  *pebble.Options
	lock     *pebble.Lock
	reserve  uint64
	table    uint64 // bytes of a memtable, and of a table that a compaction writes
	firstNew uint64 // bodies from this one on were kept since the store was opened

	health pebblefiles.HealthLog

	updates sync.Mutex // held while a head is read and written again

	generation atomic.Int64  // of the database
	closing    chan struct{} // closed when Close begins
	closeOnce  sync.Once     // of closing
	goroutines sync.WaitGroup
	handle     struct {
		sync.RWMutex
		closed bool
		db     *pebble.DB // nil once closed, and while a store that broke could not open it again
	}
	mu struct {
		sync.Mutex
		nextBlob uint64               // the next body
		writing  map[uint64]struct{}  // bodies that may have a file
		claims   map[domain.Ref]claim // not to be seen
	}
}

var (
	formatKey   = []byte{formatKind}
	identityKey = []byte{identityKind}
)

// Open opens the outputs in the folder dir, which it makes if there is none.
// It returns an [ErrInUse] if another store has it open, in this process or in
// another, and an [ErrFormat] if a program wrote it that this one does not
// understand.
func Open(dir string, cfg Config) (*Store, error) {
	if cfg.FS == nil {
		cfg.FS = pebblefiles.Disk
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = defaultReserve
	}
	s := &Store{dir: dir, fs: cfg.FS, logger: cfg.Logger, reserve: cfg.Reserve, table: cmp.Or(cfg.memTable, memTable)}
	s.replay = pebblefiles.NewReplay(cfg.FS, s.onTear)
	s.failStop = pebblefiles.NewFailStopFS(newFilledWALs(s.replay), pebblefiles.FailStopOptions{})
	s.closing = make(chan struct{})
	s.mu.claims = map[domain.Ref]claim{}
	s.mu.writing = map[uint64]struct{}{}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open outputs in %s: %w", dir, err)
	}
	return s, nil
}

func (s *Store) open() error {
	if err := makeDir(s.fs, s.incoming()); err != nil {
		return err
	}
	lock, err := lockFolder(s.dir, s.fs, s.logger)
	if err != nil {
		if inUse(err) {
			return fmt.Errorf("%w: %w", ErrInUse, err)
		}
		return err
	}
	s.lock = lock
	s.options = s.pebbleOptions()
	nextBlob, err := pebblefiles.Unseal(s.fs, s.dir)
	if err != nil {
		return errors.Join(openError(err), s.Close())
	}
	db, err := pebble.Open(s.dir, s.options)
	if pebble.IsCorruptionError(err) {
		err = fmt.Errorf("%w: %w", ErrFiles, err)
	}
	if err == nil {
		s.handle.db = db
		if err = s.loadState(db); pebble.IsCorruptionError(err) {
			err = fmt.Errorf("%w: %w", ErrFiles, err)
		}
		s.mu.nextBlob = max(s.mu.nextBlob, nextBlob) // those of outputs that were pruned are not taken again
		s.firstNew = s.mu.nextBlob
	}
	if failure := s.failure(); failure != nil {
		err = failure // of which Pebble does not learn
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.ready = true
	s.failStop.Opened()
	s.replay.Done()
	s.goroutines.Go(s.resumeLoop)
	return nil
}

// unsealed returns why a database whose folder is not as it was closed, or whose
// version is not known, is not opened.
func openError(err error) error {
	if errors.Is(err, pebblefiles.ErrNewerVersion) {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return fmt.Errorf("%w: %w", ErrFiles, err)
}

// lockFolder locks a folder for a writer. It waits for readers, and logs that after a
// second.
func lockFolder(dir string, storage vfs.FS, logger *slog.Logger) (*pebble.Lock, error) {
	return pebble.LockDirectory(dir, waitingFS{storage, func() {
		if logger != nil {
			logger.Warn("waiting for processes that read the outputs", "outputs", dir, "processes", pebblefiles.Users(storage.PathJoin(dir, "LOCK")))
		}
	}})
}

// A patient file system waits for readers when it locks.
type waitingFS struct {
	vfs.FS
	waiting func()
}

// Lock locks a file as pebblefiles.Lock does. No context reaches it, and it waits for at
// most pebblefiles.LockWait.
func (p waitingFS) Lock(path string) (io.Closer, error) {
	return pebblefiles.Lock(context.Background(), p.FS, path, p.waiting)
}

// torn decides about a place in a log or a manifest behind which Pebble would
// read nothing more. It returns an ErrFiles where the file was damaged, and logs
// a warning where a power cut may have left it so.
func (s *Store) onTear(t *pebblefiles.Tear) error {
	d := t.Damage()
	if t.Certain {
		return fmt.Errorf("%w: %w: restore a backup; a copy of the folder in which %s is cut to %d bytes opens with what is before that",
			ErrFiles, d, t.File, t.Offset)
	}
	if s.logger != nil {
		s.logger.Warn(d.Error()+": a power cut left it so, or the file was damaged", "outputs", s.dir)
	}
	return nil
}

// begin checks the format, or writes it down in an empty store, and finds the
// next body.
func (s *Store) loadState(db *pebble.DB) error {
	if err := s.failure(); err != nil {
		return err
	}
	if err := checkFormat(db); err != nil {
		return err
	}
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{chunkKind}, UpperBound: []byte{chunkKind + 1}})
	if err != nil {
		return err
	}
	defer iter.Close()
	s.mu.nextBlob = 1
	if iter.Last() && len(iter.Key()) == chunkKeySize {
		s.mu.nextBlob = binary.BigEndian.Uint64(iter.Key()[1:]) + 1
	}
	s.firstNew = s.mu.nextBlob
	return iter.Error()
}

// checkFormat checks the format, and writes it to a database that has none.
func checkFormat(db *pebble.DB) error {
	if found, err := readFormat(db); found || err != nil {
		return err
	}
	return db.Set(formatKey, []byte{format}, pebble.Sync)
}

// readFormat reports whether a database has a format. One that this program does not
// read is an ErrFormat. A process that was killed when it made the store may not have
// written the format, and then kept no output.
func readFormat(db *pebble.DB) (found bool, err error) {
	value, closer, err := db.Get(formatKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closer.Close()
	if !bytes.Equal(value, []byte{format}) {
		return true, fmt.Errorf("%w: it says %d, this program reads %d: open it with the program that wrote it",
			ErrFormat, value, format)
	}
	return true, nil
}

// ID returns what tells this store from any other, in hexadecimal digits. It is
// drawn the first time that it is asked for, and copies of the store keep it. In a
// store that OpenReader opened it is empty if no writer has drawn it.
func (s *Store) ID() (id string, err error) {
	s.updates.Lock()
	defer s.updates.Unlock()
	find := func(db *pebble.DB) error {
		value, closer, err := db.Get(identityKey)
		if err != nil {
			return err
		}
		id = hex.EncodeToString(value)
		return closer.Close()
	}
	if s.pinned != nil {
		if err := s.read(find); err != nil && !errors.Is(err, pebble.ErrNotFound) {
			return "", fmt.Errorf("identify outputs: %w", redact(err))
		}
		return id, nil
	}
	err = s.write(func(db *pebble.DB) error {
		if err := find(db); !errors.Is(err, pebble.ErrNotFound) {
			return err
		}
		var drawn [16]byte
		_, _ = rand.Read(drawn[:]) // it never fails
		id = hex.EncodeToString(drawn[:])
		return db.Set(identityKey, drawn[:], pebble.Sync)
	})
	if err != nil {
		return "", fmt.Errorf("identify outputs: %w", err)
	}
	return id, nil
}

// tune returns the options of a database of few and large values.
//
// Large outputs come in as finished tables, past the log and the memtables,
// and land in the last level, where nothing rewrites them; so there is no need
// to separate values from keys, and what memory is needed does not depend on
// them. Memtables hold only heads and the first MiB of outputs: 16 MiB of them,
// and no stall before the fourth, as a writer that stalls cannot be
// interrupted. Each is flushed to one table of chunks and one of heads. As the
// chunks of a later output come after those of an earlier one, their tables lie
// beside each other, and a compaction moves them without writing them again; a
// table of both would lie across all that are below it. The cache holds the 128 latest chunks; outputs are read from one
// end to the other, for which more would be of no use.
func (s *Store) pebbleOptions() *pebble.Options {
	o := &pebble.Options{
		FS:                          s.failStop,
		Lock:                        s.lock,
		Logger:                      s.failStop,
		FormatMajorVersion:          pebblefiles.FormatVersion,
		CacheSize:                   8 << 20,
		MemTableSize:                s.table,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                256,
		// A damaged output is the reader's to hear of, and no reason to end the process.
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	}
	s.health.Listen(o.EventListener)
	// What is flushed is written once more by a compaction, which compresses it.
	o.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	for i := 1; i < len(o.Levels); i++ {
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
	for i := range o.TargetFileSizes {
		o.TargetFileSizes[i] = int64(s.table)
	}
	o.Experimental.SpanPolicyFunc = spanPolicy
	o.EnsureDefaults()
	return o
}

const memTable = 16 << 20

// apart keeps chunks and heads in tables of their own.
func spanPolicy(start []byte) (_ pebble.SpanPolicy, end []byte, _ error) {
	if len(start) > 0 && start[0] > chunkKind {
		return pebble.SpanPolicy{}, nil, nil
	}
	return pebble.SpanPolicy{}, []byte{chunkKind + 1}, nil
}

// incoming is the folder of the bodies that are being written.
func (s *Store) incoming() string { return s.fs.PathJoin(s.dir, "incoming") }

// Close ends the use of the store. Outputs that are open cannot be read any
// more. What was kept is durable already. A second Close does nothing.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { close(s.closing) })
	if s.failStop.Err() != nil {
		s.failStop.Closing() // what waits for that may hold life
	}
	s.goroutines.Wait()
	s.handle.Lock()
	defer s.handle.Unlock()
	s.handle.closed = true
	var err error
	if s.handle.db != nil {
		s.failStop.Closing()
		err = s.handle.db.Close()
		s.handle.db = nil
		if err == nil && s.ready && s.failStop.Err() == nil {
			// Without a seal the next opening does as after a kill.
			_ = pebblefiles.Seal(s.fs, s.dir, s.nextBlob())
		}
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
		s.lock = nil
	}
	if s.pinned != nil {
		err = errors.Join(err, s.pinned.Close())
	}
	if err != nil {
		return fmt.Errorf("close outputs: %w", redact(err))
	}
	return nil
}

// Health returns what flushes and compactions met since the store was opened.
func (s *Store) Health() pebblefiles.Health { return s.health.Health() }

// newest returns the number of the body that comes next.
func (s *Store) nextBlob() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.nextBlob
}

// read runs do on the database, which is not closed meanwhile.
func (s *Store) read(do func(*pebble.DB) error) error {
	s.handle.RLock()
	defer s.handle.RUnlock()
	if s.handle.db == nil && !s.handle.closed {
		return s.broken()
	}
	if s.handle.db == nil {
		return ErrClosed
	}
	return do(s.handle.db)
}

// write runs do on the database and returns nil only if everything that was
// ever written to it has gone well.
func (s *Store) write(do func(*pebble.DB) error) error {
	return s.read(func(db *pebble.DB) error {
		if err := s.broken(); err != nil {
			return err
		}
		if err := do(db); err != nil {
			return redact(err)
		}
		return s.broken()
	})
}

// broken returns an ErrBroken if a write of the database has failed, and an
// ErrReadOnly if there can be none.
func (s *Store) broken() error {
	if s.pinned != nil {
		return ErrReadOnly
	}
	err := s.failure()
	switch {
	case err == nil:
		return nil
	case !s.lost():
		return fmt.Errorf("%w while the disk is full or too many files are open: %w", ErrBroken, err)
	}
	return fmt.Errorf("%w, open it again: %w", ErrBroken, err)
}

// makeDir makes a folder and those above it, durably.
func makeDir(fs vfs.FS, dir string) error {
	var parents []string
	for at := dir; ; {
		if _, err := fs.Stat(at); err == nil {
			break
		}
		parent := fs.PathDir(at)
		parents = append(parents, parent)
		if parent == at {
			break
		}
		at = parent
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range parents {
		if err := pebblefiles.SyncDir(fs, parent); err != nil {
			return err
		}
	}
	return nil
}
