package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// DefaultMaxRecord is the limit of a record's bytes unless a Config has another.
const DefaultMaxRecord = 64 << 20

// A Config says how to open a store. The zero Config is right for a command.
type Config struct {
	FS         vfs.FS       // where the folder is; nil: on the disk
	Owner      Owner        // who opens it; zero: this process, now
	Durability Durability   // when an append is answered; zero: when it is on the disk
	MaxRecord  int          // most bytes of a record's data and metadata; 0: DefaultMaxRecord
	Logger     *slog.Logger // is told Pebble's complaints, and of a network file system; nil: nothing is
}

// A Store is an events.Store in a Pebble database. It is safe for concurrent
// use.
type Store struct {
	folder      *folder
	pinned      *pebblefiles.Pinned     // nil: the store writes
	storage     vfs.FS                  // under the replay
	failStop    *pebblefiles.FailStopFS // that the database is opened with
	replay      *pebblefiles.Replay     // under failStop
	db          *pebble.DB              // nil while a paused store could not open it again; changed with gate and mu held
	durability  Durability
	maxRecord   int
	network     string // file system that the folder is on
	watermark   *watermark
	synced      atomic.Uint64 // the sequence of the last record known to be on the disk, under Interval
	unsynced    chan struct{} // has one when there is something to sync, under Interval
	queue       *queue
	spare       sync.Pool         // pending appends that were answered; of one store, whose channels may be of a bubble
	inFlight    chan *commitGroup // groups in flight, in their order
	storeStats  storeStats
	health      pebblefiles.HealthLog
	diskWatch   io.Closer      // of slow writes; nil: none is watched
	closing     chan struct{}  // closed when Close begins
	joined      sync.WaitGroup // the committer and those beside it
	broken      atomic.Bool    // the database panicked
	written     atomic.Bool    // something was written since it was opened
	snapshotMu  sync.Mutex     // held while there is a snapshot
	lengthCache lengthCache    // the committer's alone
	end         uint64         // the sequence of the last record given out; the committer's alone
	gate        sync.RWMutex   // held for reading while a group is written or the log is synced; before mu
	mu          struct {
		sync.RWMutex // held for reading while the database is used
		closed       bool
	}
}

// Open opens the store in a folder, which it makes if there is none. The caller
// closes it. A folder that is open elsewhere is ErrInUse, one of a newer format
// is ErrNewerFormat, one that lacks files is ErrIncomplete, one that is not as it
// was closed is ErrDamaged, and one that holds something else is ErrNotAStore;
// all these are left as they are. What a process before had not made durable is
// durable or gone when Open returns.
//
// A store stops at a write that fails. If the disk is full or the process may open
// no more files, it is paused: it is read meanwhile, answers writes with
// [ErrPaused], and followers wait. It tries every few seconds whether that is
// over, and then does what a new opening after a kill does: it closes the
// database and opens it again, which keeps or drops each append in flight as a
// whole. It goes on if nothing is missing that readers have seen; under
// [Interval] the last appends may be. After any other failure, and after every
// sync that failed, only a new opening tells what was kept.
func Open(ctx context.Context, dir string, cfg Config) (*Store, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	storage := cfg.FS
	if storage == nil {
		storage = pebblefiles.Disk
		var err error
		if dir, err = realPath(dir); err != nil {
			return nil, fmt.Errorf("open store %s: %w", dir, err)
		}
	}
	f, err := openFolder(ctx, storage, dir, cfg)
	if err != nil {
		return nil, err
	}
	s := newStore(f, cfg)
	s.storage = storage
	if cfg.FS == nil {
		s.storage, s.diskWatch = s.health.Watch(storage)
		storage = s.storage
	}
	s.replay = pebblefiles.NewReplay(storage, s.torn)
	s.newFailStop(cfg.Logger)
	_ = storage.Remove(f.path(roomName)) // of a process that was killed
	if cfg.FS == nil {
		s.warnNetwork(network(dir), cfg.Logger)
	}
	if err := s.openDatabase(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, err), s.stopDiskWatch(), f.close())
	}
	s.joined.Go(s.commitLoop)
	s.joined.Go(s.syncLoop)
	s.joined.Go(s.intervalLoop)
	s.joined.Go(s.resumeLoop)
	return s, nil
}

// stopDiskWatch ends the goroutine that looks for slow writes, if there is one.
func (s *Store) stopDiskWatch() error {
	if s.diskWatch == nil {
		return nil
	}
	return s.diskWatch.Close()
}

// newStore returns a store without a database.
func newStore(f *folder, cfg Config) *Store {
	return &Store{
		folder:     f,
		durability: cfg.Durability,
		maxRecord:  cmp.Or(cfg.MaxRecord, DefaultMaxRecord),
		unsynced:   make(chan struct{}, 1),
		queue:      newQueue(),
		inFlight:   make(chan *commitGroup, maxInFlight),
		closing:    make(chan struct{}),
	}
}

// warnNetwork warns of a network file system: its locks may not keep another
// machine out, and its syncs may not reach a disk. Many do both, so it is not
// refused.
func (s *Store) warnNetwork(network string, logger *slog.Logger) {
	s.network = network
	if network != "" && logger != nil {
		logger.Warn("the store is on a network file system, whose locks and syncs may not hold", "store", s.folder.dir, "file system", network)
	}
}

// realPath returns the one name of a folder on the disk. Locks within a process
// go by name.
func realPath(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return dir, err
	}
	for parent, rest := abs, ""; ; parent, rest = filepath.Dir(parent), filepath.Join(filepath.Base(parent), rest) {
		found, err := filepath.EvalSymlinks(parent)
		if err == nil {
			return filepath.Join(found, rest), nil
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(parent) == parent {
			return abs, err
		}
	}
}

// newFailStop makes the file system that the database is opened with. Snapshots are
// written past it: one that cannot be written does not stop the store.
func (s *Store) newFailStop(logger *slog.Logger) {
	s.failStop = pebblefiles.NewFailStopFS(s.replay, pebblefiles.FailStopOptions{Logger: logger, LogSynced: s.storeStats.synced})
	s.failStop.Exclude(s.folder.path(snapshotName))
}

// openDatabase opens Pebble, finds the end of the records, and makes a store of
// a fresh folder.
func (s *Store) openDatabase() (err error) {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	sealed, err := pebblefiles.Unseal(s.folder.fs, s.folder.path(logName))
	if err != nil {
		s.failStop.Closing()
		return unsealed(err)
	}
	options := s.options(cache)
	options.ErrorIfNotExists = !s.folder.fresh
	s.db, err = pebble.Open(s.folder.path(logName), options)
	if err != nil {
		s.failStop.Closing()
		return cmp.Or(s.failStop.Err(), openError(err))
	}
	s.failStop.Opened()
	s.replay.Done()
	return s.start(sealed)
}

// begin finds the end of the records in a database that was opened, and closes it
// if there is an error. The seal of the database says that there are at least so
// many records.
func (s *Store) start(sealed uint64) error {
	end, err := s.lastSequence()
	if err == nil && s.failStop.Err() == nil && s.folder.fresh {
		err = s.folder.publish()
	}
	if cause := s.failStop.Err(); cause != nil {
		err = cause // of which Pebble was not told
	}
	if err == nil && end < sealed {
		err = fmt.Errorf("%w: the records at positions %d to %d are missing, which were there when the store was closed", events.ErrDamaged, end+1, sealed)
	}
	if err != nil {
		s.failStop.Closing()
		return errors.Join(err, s.db.Close())
	}
	s.watermark, s.end = newWatermark(end), end
	s.synced.Store(end)
	return nil
}

// refused returns why the database does not open.
func openError(err error) error {
	if errors.Is(err, events.ErrDamaged) {
		return err
	}
	return missingFile(asStoreError(err))
}

// incomplete returns err as an ErrIncomplete if it is about a file that is
// missing.
func missingFile(err error) error {
	if errors.Is(err, pebble.ErrDBDoesNotExist) || errors.Is(err, pebble.ErrDBNotPristine) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w; copy the whole folder, or restore a backup", ErrIncomplete, err)
	}
	return err
}

// lastSequence returns the sequence of the last record. A process that was
// killed may have left records that Pebble reads from its log and that no sync
// has covered. Pebble flushes what it replays before it opens, so that no
// reader sees what a power cut takes back.
func (s *Store) lastSequence() (seq uint64, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(0), UpperBound: entriesEnd()})
	if err != nil {
		return 0, asStoreError(err)
	}
	if it.Last() {
		seq = lastUint64(it.Key())
	}
	return seq, asStoreError(it.Close())
}

// The sizes of what Pebble keeps in memory.
const (
	cacheSize    = 24 << 20 // a scan reads each block once; this is for streams read again
	memTableSize = 16 << 20 // bounds the log that an opening replays to a few hundredths of a second
	tableSize    = 8 << 20  // at which Pebble begins another table
)

func (s *Store) options(cache *pebble.Cache) *pebble.Options {
	o := &pebble.Options{
		FS:                          s.failStop,
		Cache:                       cache,
		Logger:                      s.failStop,
		FormatMajorVersion:          pebblefiles.FormatVersion, // the default is the oldest
		MemTableSize:                memTableSize,
		MemTableStopWritesThreshold: 4, // a flush may be late by two tables before appends wait for it
		EventListener: &pebble.EventListener{
			// Whoever reads a damaged record is told; the store goes on.
			DataCorruption: func(info pebble.DataCorruptionInfo) { s.failStop.Errorf("%s", info) },
		},
	}
	s.health.Listen(o.EventListener)
	// Blocks of 32 KiB scan and compress better than 4 KiB ones, and records
	// are read in runs. MinLZ halves JSON as Snappy does and is read faster,
	// but on arm64, where it has no assembly. No bloom filters: only the first append
	// to a stream asks for a key that is not there (docs/performance.md).
	// Logs are recycled, as is the default: a file that does not grow syncs
	// faster.
	for i := range o.Levels {
		o.Levels[i].BlockSize = 32 << 10
		o.Levels[i].Compression = func() *sstable.CompressionProfile { return sstable.FastestCompression }
	}
	for i := range o.TargetFileSizes {
		o.TargetFileSizes[i] = tableSize
	}
	o.Experimental.SpanPolicyFunc = splitTables
	return o
}

// splitTables has Pebble begin a table where the records begin and where they end.
// Their keys only increase, so a table of records overlaps no other and is moved
// down the levels as it is, where one that held the index as well would be
// written again with it.
func splitTables(start []byte) (_ pebble.SpanPolicy, end []byte, err error) {
	for _, border := range [][]byte{[]byte("e/"), entriesEnd()} {
		if string(start) < string(border) {
			return pebble.SpanPolicy{}, border, nil
		}
	}
	return pebble.SpanPolicy{}, nil, nil
}

// asStoreError returns err as one of the errors of package events where it is
// one.
func asStoreError(err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", events.ErrDamaged, err)
	}
	return err
}

// use lets f use the database, which is not closed meanwhile.
func (s *Store) use(f func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.mu.closed {
		return events.ErrClosed
	}
	if s.db == nil {
		return s.failure()
	}
	return f()
}

// Head returns the position of the last record that readers see, and the zero
// Position if there is none. Under Sync it is durable; see [Store.Durable].
func (s *Store) Head() events.Position {
	end, _ := s.watermark.load()
	return events.NewPosition(end, end)
}

// Close ends every append that waits, every follower and every loop with
// ErrClosed, waits for the appends that were taken, makes all that was written
// durable, and gives the folder up. Closing again is ErrClosed. A store that
// stopped at a failed write closes without an error about it.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return events.ErrClosed
	}
	s.mu.closed = true
	close(s.closing)
	s.queue.close()
	s.mu.Unlock()
	s.joined.Wait()
	err := s.flush()
	s.failStop.Closing()
	if s.broken.Load() {
		return errors.Join(s.failure(), s.folder.close())
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	if s.pinned != nil {
		return errors.Join(err, s.pinned.Close())
	}
	err = errors.Join(err, s.stopDiskWatch())
	if s.failure() != nil {
		err = nil // of the memory that it was given to write to
	} else if err == nil {
		end, _ := s.watermark.load()
		// Without a seal the next opening does as after a kill.
		_ = pebblefiles.Seal(s.folder.fs, s.folder.path(logName), end)
	}
	return errors.Join(err, s.folder.close())
}

// flush leaves no log behind that the next opening replays.
func (s *Store) flush() error {
	if !s.written.Load() || s.failStop.Err() != nil {
		return nil
	}
	s.saveSummary()
	return s.db.Flush()
}

// errNoName is the answer to a checkpoint without a name.
var errNoName = errors.New("a checkpoint has a name")

// SaveCheckpoint keeps data under a name, in place of what was there. It does
// not wait until that is durable: a power cut may bring back what was there
// before, and never half of either. A checkpoint that survives one finds all
// the records that had been read when it was saved.
func (s *Store) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	return s.checkpoint(ctx, "save", name, func() error {
		if s.pinned != nil {
			return ErrReadOnly
		}
		if err := s.failure(); err != nil {
			return err
		}
		s.written.Store(true)
		if err := s.db.Set(checkpointKey(name), data, pebble.NoSync); err != nil {
			return err
		}
		return s.failure()
	})
}

// LoadCheckpoint returns what was saved last under a name, and nil if nothing
// was. The caller owns it.
func (s *Store) LoadCheckpoint(ctx context.Context, name string) (data []byte, err error) {
	err = s.checkpoint(ctx, "load", name, func() error {
		value, closer, err := s.db.Get(checkpointKey(name))
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		}
		if err != nil {
			return asStoreError(err)
		}
		data = append([]byte{}, value...)
		return closer.Close()
	})
	return data, err
}

func (s *Store) checkpoint(ctx context.Context, verb, name string, do func() error) error {
	err := context.Cause(ctx)
	if err != nil {
		return err
	}
	if err = errNoName; name != "" {
		err = s.use(do)
	}
	if err != nil {
		return fmt.Errorf("%s checkpoint %q: %w", verb, name, err)
	}
	return nil
}

// limit is behind the last sequence that there can be.
const maxSequence = math.MaxUint64
