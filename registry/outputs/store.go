package outputs

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/embedded/files"
)

// A Config says where outputs are kept, and how much of the disk is not theirs.
type Config struct {
	FS      vfs.FS       // nil: the disk
	Logger  *slog.Logger // is told where a crash may have left a log that lacks outputs; nil: nothing is
	Reserve uint64       // bytes of the disk that are held back, for the database itself and for others; zero: 64 MiB
}

const defaultReserve = 64 << 20

// A Store keeps outputs. Whoever opened it closes it.
type Store struct {
	dir     string
	fs      vfs.FS        // as the caller sees it; bodies on their way in are written to it
	guard   *guard        // as Pebble sees it
	replay  *files.Replay // under the guard
	logger  *slog.Logger
	options *pebble.Options
	lock    *pebble.Lock
	reserve uint64
	first   uint64 // bodies from this one on were kept since the store was opened

	marks sync.Mutex // held while a head is read and written again

	life struct {
		sync.RWMutex
		db *pebble.DB // nil once closed
	}
	mu struct {
		sync.Mutex
		next    uint64                  // the next body
		writing map[uint64]struct{}     // bodies that may have a file
		keeping map[domain.Ref]struct{} // not acknowledged, and so not to be seen
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
		cfg.FS = vfs.Default
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = defaultReserve
	}
	s := &Store{dir: dir, fs: cfg.FS, logger: cfg.Logger, reserve: cfg.Reserve}
	s.replay = files.NewReplay(cfg.FS, s.torn)
	s.guard = newGuard(s.replay)
	s.mu.keeping = map[domain.Ref]struct{}{}
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
	lock, err := pebble.LockDirectory(s.dir, s.fs)
	if err != nil {
		if inUse(err) {
			return fmt.Errorf("%w: %w", ErrInUse, err)
		}
		return err
	}
	s.lock = lock
	s.options = s.tune()
	bodies, err := files.Unseal(s.fs, s.dir)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrFiles, err), s.Close())
	}
	db, err := pebble.Open(s.dir, s.options)
	if err == nil {
		s.life.db = db
		err = s.begin(db)
		s.mu.next = max(s.mu.next, bodies) // those of outputs that were pruned are not taken again
		s.first = s.mu.next
	}
	if err != nil {
		return errors.Join(err, s.Close())
	}
	s.guard.armed.Store(true)
	s.replay.Done()
	return nil
}

// torn decides about a place in a log or a manifest behind which Pebble would
// read nothing more. It returns an ErrFiles where the file was damaged, and logs
// a warning where a power cut may have left it so.
func (s *Store) torn(t *files.Tear) error {
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
func (s *Store) begin(db *pebble.DB) error {
	if err := s.guard.failed(); err != nil {
		return err
	}
	if err := checkFormat(db); err != nil {
		return err
	}
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{bodyKind}, UpperBound: []byte{bodyKind + 1}})
	if err != nil {
		return err
	}
	defer iter.Close()
	s.mu.next = 1
	if iter.Last() && len(iter.Key()) == chunkKeySize {
		s.mu.next = binary.BigEndian.Uint64(iter.Key()[1:]) + 1
	}
	s.first = s.mu.next
	return iter.Error()
}

func checkFormat(db *pebble.DB) error {
	value, closer, err := db.Get(formatKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return db.Set(formatKey, []byte{format}, pebble.Sync)
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	if !bytes.Equal(value, []byte{format}) {
		return fmt.Errorf("%w: it says %d, this program reads %d: open it with the program that wrote it",
			ErrFormat, value, format)
	}
	return nil
}

// ID returns what tells this store from any other, in hexadecimal digits. It is
// drawn the first time that it is asked for, and copies of the store keep it.
func (s *Store) ID() (id string, err error) {
	s.marks.Lock()
	defer s.marks.Unlock()
	err = s.write(func(db *pebble.DB) error {
		value, closer, err := db.Get(identityKey)
		if err == nil {
			id = hex.EncodeToString(value)
			return closer.Close()
		}
		if !errors.Is(err, pebble.ErrNotFound) {
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
func (s *Store) tune() *pebble.Options {
	o := &pebble.Options{
		FS:                          s.guard,
		Lock:                        s.lock,
		Logger:                      silent{s.guard},
		FormatMajorVersion:          pebble.FormatNewest,
		CacheSize:                   8 << 20,
		MemTableSize:                memTable,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                256,
		// A damaged output is the reader's to hear of, and no reason to end the process.
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) {}},
	}
	// What is flushed is written once more by a compaction, which compresses it.
	o.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	for i := 1; i < len(o.Levels); i++ {
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	}
	for i := range o.TargetFileSizes {
		o.TargetFileSizes[i] = memTable
	}
	o.Experimental.SpanPolicyFunc = apart
	o.EnsureDefaults()
	return o
}

const memTable = 16 << 20

// apart keeps chunks and heads in tables of their own.
func apart(start []byte) (_ pebble.SpanPolicy, end []byte, _ error) {
	if len(start) > 0 && start[0] > bodyKind {
		return pebble.SpanPolicy{}, nil, nil
	}
	return pebble.SpanPolicy{}, []byte{bodyKind + 1}, nil
}

// incoming is the folder of the bodies that are being written.
func (s *Store) incoming() string { return s.fs.PathJoin(s.dir, "incoming") }

// Close ends the use of the store. Outputs that are open cannot be read any
// more. What was kept is durable already. A second Close does nothing.
func (s *Store) Close() error {
	if s.guard.failed() != nil {
		s.guard.release() // what waits for that may hold life
	}
	s.life.Lock()
	defer s.life.Unlock()
	var err error
	if s.life.db != nil {
		s.guard.release()
		err = s.life.db.Close()
		s.life.db = nil
		if err == nil && s.guard.armed.Load() && s.guard.failed() == nil {
			// Without a seal the next opening does as after a kill.
			_ = files.Seal(s.fs, s.dir, s.newest())
		}
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
		s.lock = nil
	}
	if err != nil {
		return fmt.Errorf("close outputs: %w", seal(err))
	}
	return nil
}

// newest returns the number of the body that comes next.
func (s *Store) newest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.next
}

// read runs do on the database, which is not closed meanwhile.
func (s *Store) read(do func(*pebble.DB) error) error {
	s.life.RLock()
	defer s.life.RUnlock()
	if s.life.db == nil {
		return ErrClosed
	}
	return do(s.life.db)
}

// write runs do on the database and returns nil only if everything that was
// ever written to it has gone well.
func (s *Store) write(do func(*pebble.DB) error) error {
	return s.read(func(db *pebble.DB) error {
		if err := s.broken(); err != nil {
			return err
		}
		if err := do(db); err != nil {
			return seal(err)
		}
		return s.broken()
	})
}

// broken returns an ErrBroken if a write of the database has failed.
func (s *Store) broken() error {
	if err := s.guard.failed(); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return nil
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
		if err := files.SyncDir(fs, parent); err != nil {
			return err
		}
	}
	return nil
}
