package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/layout"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// DefaultMaxRecord is the default limit of the bytes of a record.
const DefaultMaxRecord = 64 << 20

// A Config holds the options of a store. The zero Config suits a command.
type Config struct {
	FS         vfs.FS         // file system of the folder; nil: the disk
	Owner      storedir.Owner // process that opens the store; zero: this one
	Durability Durability     // when an append is acknowledged; zero: when it is on the disk
	MaxRecord  int            // limit of the bytes of data and metadata of a record; 0: DefaultMaxRecord
	Logger     *slog.Logger   // gets warnings of Pebble, and of a network file system; nil: none is logged
}

// A Store is an events.Store in a Pebble database. It is safe for concurrent use.
// Fields without a note about their use are set before the goroutines start and do
// not change.
type Store struct {
	folder      *storedir.Dir
	pinned      *pebblefiles.Pinned     // not nil: opened by OpenReader
	storage     vfs.FS                  // below replay
	failStop    *pebblefiles.FailStopFS // that the database is opened with
	replay      *pebblefiles.Replay     // below failStop
	db          *pebble.DB              // nil if a paused store failed to reopen it; changed with gate and mu held
	durability  Durability              // of the Config
	maxRecord   int                     // limit of data and metadata of a record, in bytes
	network     string                  // name of the network file system of the folder, or empty
	watermark   *watermark              // the last visible record, and recent groups for followers
	synced      atomic.Uint64           // under Interval: the sequence of the last record known to be on the disk
	unsynced    chan struct{}           // under Interval: holds a value while records are not synced
	queue       *queue                  // appends that wait for the committer
	spare       sync.Pool               // answered requests for reuse; per store, because synctest binds channels to a bubble
	inFlight    chan *commitGroup       // groups being synced, in order
	storeStats  storeStats              // commits and syncs
	health      pebblefiles.HealthLog   // failures of background work and slow writes
	diskWatch   io.Closer               // reports slow writes of the disk; nil: not on a disk
	closing     chan struct{}           // closed when Close begins
	joined      sync.WaitGroup          // the goroutines of the store
	broken      atomic.Bool             // Pebble panicked; the database is not closed then
	written     atomic.Bool             // something was written since the opening
	snapshotMu  sync.Mutex              // held while the snapshot folder is in use
	lengthCache lengthCache             // used by the committer alone
	end         uint64                  // the last sequence assigned; used by the committer alone
	gate        sync.RWMutex            // read-locked while a group is written or the log is synced; locked before mu
	mu          struct {
		sync.RWMutex      // read-locked while the database is used
		closed       bool // Close was called
	}
}

// Open opens the store in a folder and creates the folder if it does not exist. The
// caller closes the store. Records that an earlier process had not made durable are
// either durable when Open returns, or gone.
//
// Open returns events.ErrInUse if another process has the store open,
// events.ErrNewerFormat for a newer format, [storedir.ErrIncomplete] if files are
// missing, events.ErrDamaged if files differ from those at the last closing, and
// events.ErrNotAStore if the folder holds something else. After these errors the folder
// is unchanged.
//
// A store stops at a failed write. If the disk is full or the process has too many open
// files, the store is paused: reads work, writes fail with [ErrPaused], and followers
// wait. The store checks every few seconds for room, and then closes and reopens the
// database as after a kill, which keeps or drops each append in flight as a whole. It
// resumes if no record that readers have seen is missing; under [Interval] the last
// ones may be. After any other failure, and after every failed sync, the store is
// stopped for good: only opening it again shows which appends were kept.
func Open(ctx context.Context, dir string, cfg Config) (*Store, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	storage := cfg.FS
	if storage == nil {
		storage = pebblefiles.Disk
		var err error
		if dir, err = storedir.RealPath(dir); err != nil {
			return nil, fmt.Errorf("open store %s: %w", dir, err)
		}
	}
	f, err := storedir.Open(ctx, storage, dir, storedir.OwnerRecord{Owner: cfg.Owner, Durability: cfg.Durability.String()}, cfg.Logger)
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
	_ = storage.Remove(f.PathOf(roomName)) // left by a killed process
	if cfg.FS == nil {
		s.warnNetwork(network(dir), cfg.Logger)
	}
	if err := s.openDatabase(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, err), s.stopDiskWatch(), f.Close())
	}
	s.joined.Go(s.commitLoop)
	s.joined.Go(s.syncLoop)
	s.joined.Go(s.intervalLoop)
	s.joined.Go(s.newResumer().Run)
	return s, nil
}

// stopDiskWatch ends the goroutine that reports slow writes. It does nothing if there
// is no such goroutine.
func (s *Store) stopDiskWatch() error {
	if s.diskWatch == nil {
		return nil
	}
	return s.diskWatch.Close()
}

// newStore returns a store whose database is not open yet.
func newStore(f *storedir.Dir, cfg Config) *Store {
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

// warnNetwork logs a warning if the store is on a network file system: its locks may
// not exclude other machines, and its syncs may not reach a disk. Many are reliable, so
// the store opens.
func (s *Store) warnNetwork(network string, logger *slog.Logger) {
	s.network = network
	if network != "" && logger != nil {
		logger.Warn("the store is on a network file system, whose locks and syncs may not hold", "store", s.folder.Path, "file system", network)
	}
}

// newFailStop makes the fail-stop file system of the database. It excludes the folder
// of snapshots, so a snapshot that cannot be written does not stop the store.
func (s *Store) newFailStop(logger *slog.Logger) {
	s.failStop = pebblefiles.NewFailStopFS(s.replay, pebblefiles.FailStopOptions{Logger: logger, LogSynced: s.storeStats.synced})
	s.failStop.Exclude(s.folder.PathOf(snapshotName))
}

// openDatabase checks the seal, opens Pebble and finds the last record. For a new
// store it then writes the FORMAT file.
func (s *Store) openDatabase() (err error) {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	sealed, err := pebblefiles.Unseal(s.folder.FS, s.folder.PathOf(storedir.LogName))
	if err != nil {
		s.failStop.Closing()
		return unsealed(err)
	}
	options := s.options(cache)
	options.ErrorIfNotExists = !s.folder.Fresh
	s.db, err = pebble.Open(s.folder.PathOf(storedir.LogName), options)
	if err != nil {
		s.failStop.Closing()
		return cmp.Or(s.failStop.Err(), openError(err))
	}
	s.failStop.Opened()
	s.replay.Done()
	return s.start(sealed)
}

// start finds the last record of an open database and sets the watermark. For a new
// store it also writes the FORMAT file. sealed is the number of records at the last
// closing, from the seal; if there are fewer records now, start returns ErrDamaged.
// After an error start has closed the database.
func (s *Store) start(sealed uint64) error {
	end, err := s.lastSequence()
	if err == nil && s.failStop.Err() == nil && s.folder.Fresh {
		err = s.folder.Publish()
	}
	if cause := s.failStop.Err(); cause != nil {
		err = cause // Pebble does not learn of it
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

// openError converts an error of Pebble to the error that Open returns: ErrIncomplete
// for a missing file, ErrDamaged for a corruption, and any other error unchanged.
func openError(err error) error {
	if errors.Is(err, events.ErrDamaged) {
		return err
	}
	return missingFile(layout.AsDamaged(err))
}

// missingFile returns err as an storedir.ErrIncomplete if a file is missing.
func missingFile(err error) error {
	if errors.Is(err, pebble.ErrDBDoesNotExist) || errors.Is(err, pebble.ErrDBNotPristine) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w; copy the whole folder, or restore a backup", storedir.ErrIncomplete, err)
	}
	return err
}

// lastSequence returns the sequence of the last record. A killed process may have left
// records in the log that no sync covered. Pebble flushes the records that it replays
// before it opens, so readers see only durable ones.
func (s *Store) lastSequence() (seq uint64, err error) {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: layout.EntryKey(0), UpperBound: layout.EntriesEnd()})
	if err != nil {
		return 0, layout.AsDamaged(err)
	}
	if it.Last() {
		seq = layout.LastUint64(it.Key())
	}
	return seq, layout.AsDamaged(it.Close())
}

// The sizes of Pebble's memory and tables.
const (
	cacheSize    = 24 << 20 // block cache, for streams that are read repeatedly; a scan reads each block once
	memTableSize = 16 << 20 // bounds the log, which an opening replays within some 10 ms
	tableSize    = 8 << 20  // Pebble starts another table at this size
)

// options returns the options of the database. The caller owns the cache.
func (s *Store) options(cache *pebble.Cache) *pebble.Options {
	o := &pebble.Options{
		FS:                          s.failStop,
		Cache:                       cache,
		Logger:                      s.failStop,
		FormatMajorVersion:          pebblefiles.FormatVersion, // the default is the oldest
		MemTableSize:                memTableSize,
		MemTableStopWritesThreshold: 4, // appends wait when two more flushes are pending
		EventListener: &pebble.EventListener{
			// The reader of a damaged record gets an error; the store continues.
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

// splitTables makes Pebble start a new table at the first and after the last record
// key. The keys of records only increase, so a table of records overlaps no other and
// moves down the levels without being rewritten; a table that also held index keys
// would be rewritten with them.
func splitTables(start []byte) (_ pebble.SpanPolicy, end []byte, err error) {
	for _, border := range [][]byte{[]byte("e/"), layout.EntriesEnd()} {
		if string(start) < string(border) {
			return pebble.SpanPolicy{}, border, nil
		}
	}
	return pebble.SpanPolicy{}, nil, nil
}

// use calls f with the database open. It holds mu for reading while f runs, so Close
// and exclusive wait for f. It returns ErrClosed after Close, and the failure of a
// paused store whose database is not open. f must not call use.
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

// Head returns the position of the last record visible to readers, and the zero
// Position if there is none. Under Sync it is durable; see [Store.Durable].
func (s *Store) Head() events.Position {
	end, _ := s.watermark.load()
	return events.NewPosition(end, end)
}

// Close ends waiting appends, followers and loops with ErrClosed, waits for the appends
// in flight, syncs, seals the database and unlocks the folder. A second Close returns
// ErrClosed. Close returns no error for an earlier failed write.
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
		return errors.Join(s.failure(), s.folder.Close())
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	if s.pinned != nil {
		return errors.Join(err, s.pinned.Close())
	}
	err = errors.Join(err, s.stopDiskWatch())
	if s.failure() != nil {
		err = nil // the database wrote to memory after the failure
	} else if err == nil {
		end, _ := s.watermark.load()
		// Without a seal the next opening does as after a kill.
		_ = pebblefiles.Seal(s.folder.FS, s.folder.PathOf(storedir.LogName), end)
	}
	return errors.Join(err, s.folder.Close())
}

// flush writes the memtable to a table, so that the next opening replays no log.
// Close calls it after the goroutines have ended. It does nothing if the store has
// failed or nothing was written.
func (s *Store) flush() error {
	if !s.written.Load() || s.failStop.Err() != nil {
		return nil
	}
	s.saveSummary()
	return s.db.Flush()
}

// errNoName is the error for a checkpoint with an empty name.
var errNoName = errors.New("a checkpoint has a name")

// SaveCheckpoint saves data under a name and replaces the earlier data. It does not
// wait for a sync: after a power cut the checkpoint is the new or the earlier one, as a
// whole. A checkpoint that survives is never ahead of the records. It copies data.
func (s *Store) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	return s.checkpoint(ctx, "save", name, func() error {
		if s.pinned != nil {
			return ErrReadOnly
		}
		if err := s.failure(); err != nil {
			return err
		}
		s.written.Store(true)
		if err := s.db.Set(layout.CheckpointKey(name), data, pebble.NoSync); err != nil {
			return err
		}
		return s.failure()
	})
}

// LoadCheckpoint returns the data saved last under a name, or nil if there is none. The
// caller owns the data.
func (s *Store) LoadCheckpoint(ctx context.Context, name string) (data []byte, err error) {
	err = s.checkpoint(ctx, "load", name, func() error {
		value, closer, err := s.db.Get(layout.CheckpointKey(name))
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		}
		if err != nil {
			return layout.AsDamaged(err)
		}
		data = append([]byte{}, value...)
		return closer.Close()
	})
	return data, err
}

// checkpoint calls do with the database, and names the operation in its error.
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
