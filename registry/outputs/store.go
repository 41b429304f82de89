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

// A Config configures a Store. The zero Config is valid.
type Config struct {
	FS      vfs.FS       // file system; nil: the disk
	Logger  *slog.Logger // gets warnings, such as of a WAL that a crash may have cut; nil: none
	Reserve uint64       // bytes of free disk space below which Keep fails; zero: 64 MiB

	memTable uint64 // bytes of a memtable; zero: the constant memTable. Tests use small ones.
	inMemory bool   // FS is in memory, and its WAL is not filled in advance
}

// defaultReserve is the reserve in bytes if Config.Reserve is zero.
const defaultReserve = 64 << 20

// A Store is an open blob store. The caller of Open or OpenReader closes it. It is
// safe for concurrent use. Fields without a note are set by Open and do not change.
type Store struct {
	dir      string
	fs       vfs.FS                  // given by the caller; blobWriters write their sstables to it
	failStop *pebblefiles.FailStopFS // file system of the database
	replay   *pebblefiles.Replay     // under failStop; replaced when the database is reopened
	pinned   *pebblefiles.Pinned     // of OpenReader; nil: the store writes
	ready    bool                    // the database was opened for writing
	logger   *slog.Logger            // may be nil
	options  *pebble.Options
	lock     *pebble.Lock // of the folder; nil in a store of OpenReader
	reserve  uint64       // Config.Reserve
	table    uint64       // bytes of a memtable, and of a table that a compaction writes
	firstNew uint64       // blobs from this number on are newer than the opening of the store

	health pebblefiles.HealthLog // of the database, over all its openings

	updates sync.Mutex // held during read-modify-write of headers

	generation atomic.Int64   // counts the reopenings of the database
	closing    chan struct{}  // closed when Close begins
	closeOnce  sync.Once      // closes closing
	goroutines sync.WaitGroup // Resumer.Run
	handle     struct {
		sync.RWMutex            // read-locked while db is used; locked to close or reopen it
		closed       bool       // Close was called
		db           *pebble.DB // nil after Close, and while a broken store cannot reopen it
	}
	mu struct {
		sync.Mutex
		nextBlob uint64               // number of the next blob
		writing  map[uint64]struct{}  // blobs that may have a file under incoming
		claims   map[domain.Ref]claim // refs hidden from reads
	}
}

// The keys of the values that a store has once.
var (
	formatKey   = []byte{formatKind}
	identityKey = []byte{identityKind}
)

// Open opens the store in the folder dir for writing, and creates the folder if it is
// missing. It returns an [ErrInUse] if the store is open already, in this process or
// another, an [ErrFiles] if files are damaged, and an [ErrFormat] if a newer program
// wrote it. Open waits for running readers. The store starts one goroutine, which Close
// joins.
func Open(dir string, cfg Config) (*Store, error) {
	if cfg.FS == nil {
		cfg.FS = pebblefiles.Disk
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = defaultReserve
	}
	s := &Store{dir: dir, fs: cfg.FS, logger: cfg.Logger, reserve: cfg.Reserve, table: cmp.Or(cfg.memTable, memTable)}
	s.replay = pebblefiles.NewReplay(cfg.FS, s.onTear)
	storage := vfs.FS(s.replay)
	if !cfg.inMemory {
		storage = newFilledWALs(storage)
	}
	s.failStop = pebblefiles.NewFailStopFS(storage, pebblefiles.FailStopOptions{})
	s.closing = make(chan struct{})
	s.mu.claims = map[domain.Ref]claim{}
	s.mu.writing = map[uint64]struct{}{}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open outputs in %s: %w", dir, err)
	}
	return s, nil
}

// open creates and locks the folder, compares its files with the seal, opens the
// database and starts Resumer.Run. After an error the folder is unlocked and the
// database closed. The next blob number is the larger one of the number in the seal
// and the first number after all chunks.
func (s *Store) open() error {
	if err := pebblefiles.MakeDirs(s.fs, s.incoming()); err != nil {
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
		s.mu.nextBlob = max(s.mu.nextBlob, nextBlob) // never reuse the number of a pruned blob
		s.firstNew = s.mu.nextBlob
	}
	if failure := s.failure(); failure != nil {
		err = failure // Pebble ignores it
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.ready = true
	s.failStop.Opened()
	s.replay.Done()
	s.goroutines.Go(s.newResumer().Run)
	return nil
}

// openError returns an ErrFormat for files of a newer version of Pebble, and an
// ErrFiles for files that differ from the seal.
func openError(err error) error {
	if errors.Is(err, pebblefiles.ErrNewerVersion) {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return fmt.Errorf("%w: %w", ErrFiles, err)
}

// lockFolder takes the exclusive lock of a folder. While other processes read the
// store, it waits; after a second it logs their process IDs.
func lockFolder(dir string, storage vfs.FS, logger *slog.Logger) (*pebble.Lock, error) {
	return pebble.LockDirectory(dir, waitingFS{storage, func() {
		if logger != nil {
			logger.Warn("waiting for processes that read the outputs", "outputs", dir, "processes", pebblefiles.Users(storage.PathJoin(dir, "LOCK")))
		}
	}})
}

// A waitingFS is a file system whose Lock waits for readers. After a second of
// waiting, Lock calls waiting once.
type waitingFS struct {
	vfs.FS
	waiting func()
}

// Lock locks a file like pebblefiles.Lock. It has no context and waits at most
// pebblefiles.LockWait.
func (p waitingFS) Lock(path string) (io.Closer, error) {
	return pebblefiles.Lock(context.Background(), p.FS, path, p.waiting)
}

// onTear decides about a tear: a place in a WAL or manifest after which Pebble would
// ignore all records. It returns an ErrFiles if a power cut cannot have caused the
// tear. Otherwise it logs a warning and returns nil, and the store opens without
// these records.
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

// loadState calls checkFormat. It then sets the next blob number to one more than the
// largest number among the chunks.
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

// checkFormat returns an ErrFormat if the database has an unknown format. It writes
// the format to a database that has none.
func checkFormat(db *pebble.DB) error {
	if found, err := readFormat(db); found || err != nil {
		return err
	}
	return db.Set(formatKey, []byte{format}, pebble.Sync)
}

// readFormat reports whether a database has a format. It returns an ErrFormat for an
// unknown format. A database has no format if the process that created it was killed
// before it wrote the format; it then has no blob either.
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

// ID returns the ID of this store, 32 hexadecimal digits. The first call generates it;
// a copy of the store has the same ID. In a store of OpenReader it is empty if no
// writer has generated it.
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

// pebbleOptions returns options for a database of few, large values.
//
// Long blobs arrive as finished sstables. They bypass the WAL and the memtables and
// land in the last level, where no compaction rewrites them. So values stay with
// their keys, and memory use does not depend on blob sizes.
//
// Memtables have only headers and the first MiB of each blob, so 16 MiB suffice.
// Writes stall only at the fourth memtable, because a stalled write cannot be
// interrupted.
//
// A flush writes one sstable of chunks and one of headers. The chunk keys of a later
// blob sort after all earlier ones, so sstables of chunks do not overlap and a
// compaction moves them without rewriting. An sstable of both kinds would overlap all
// sstables in the levels below it.
//
// The cache has room for the 128 latest chunks. Readers read sequentially, so a
// larger cache would not help.
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
		// By default Pebble ends the process at a corruption; here a read returns it.
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

// memTable is the default size of a memtable in bytes.
const memTable = 16 << 20

// spanPolicy makes Pebble write chunks and headers to separate sstables.
func spanPolicy(start []byte) (_ pebble.SpanPolicy, end []byte, _ error) {
	if len(start) > 0 && start[0] > chunkKind {
		return pebble.SpanPolicy{}, nil, nil
	}
	return pebble.SpanPolicy{}, []byte{chunkKind + 1}, nil
}

// incoming returns the folder of the sstables that Keeps write.
func (s *Store) incoming() string { return s.fs.PathJoin(s.dir, "incoming") }

// Close closes the store; open BlobReaders then return an [ErrClosed]. Stored blobs are
// durable already. A second Close does nothing.
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

// Health returns statistics of flushes and compactions since the store was opened.
func (s *Store) Health() pebblefiles.Health { return s.health.Health() }

// nextBlob returns the number of the next blob.
func (s *Store) nextBlob() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.nextBlob
}

// read calls do with the database. It holds handle for reading, so the database is
// not closed or reopened while do runs. It returns ErrClosed after Close, and an
// ErrBroken if a broken store has no database. do must not call read.
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

// write calls do with the database, for a change. It returns nil only if no write of the
// database has failed since it was opened: Pebble does not report failures of its WAL.
// If the store takes no writes, write returns an ErrBroken or ErrReadOnly and does not
// call do. A change that returned an error may or may not be on the disk.
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

// broken returns an ErrReadOnly in a store of OpenReader, an ErrBroken after a failed
// write, and nil if the store takes writes. The text says whether the store resumes
// by itself.
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
