package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

// A pebbleDB is a Pebble that receives the same writes as the Pebble of the embedded
// store. It writes for each event a value under its position and an entry under its
// stream, of the same sizes as the store does. It commits all waiting events in one
// synced batch. It checks no lengths, computes no checksums and encodes no records, so
// its time is the lower bound of the store's.
type pebbleDB struct {
	*bench.GroupCommitter            // collects concurrent appends into batches
	db                    *pebble.DB // owned
	position              uint64     // of the last event; used by commit only
}

// options returns the options of the measured Pebble. The memtable size and the block
// size equal those of the embedded store. The logger discards all messages.
func options() *pebble.Options {
	o := &pebble.Options{
		FormatMajorVersion: pebble.FormatNewest, MemTableSize: 16 << 20, MemTableStopWritesThreshold: 4, Logger: silent{},
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 32 << 10
	}
	return o
}

// cacheSize is the size of the block cache in bytes.
const cacheSize = 32 << 20

// openDB opens the Pebble in dir with a block cache of its own. It sets o.Cache. The
// database keeps the cache alive until it is closed.
func openDB(dir string, o *pebble.Options) (*pebble.DB, error) {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	o.Cache = cache
	return pebble.Open(dir, o)
}

// openPebble opens a new Pebble for concurrent writers. Before it returns it commits 64
// MiB of events, multiplied by the scale of the run, under another writer number.
// bench.OpenLedger warms up the embedded store in the same way: after that both
// databases recycle log files instead of creating new ones.
func openPebble(_ context.Context, g *bench.Ground, writers int) (bench.Appender, error) {
	db, err := openDB(g.Dir, options())
	if err != nil {
		return nil, err
	}
	p := &pebbleDB{db: db}
	for left := g.Bytes(64 << 20); left > 0; { // the warm-up
		batch := make([]bench.PendingEvent, 2048)
		for i := range batch {
			batch[i] = bench.PendingEvent{Writer: writers, N: int(p.position) + i + 1, Event: bench.Event(0, i)}
			left -= int64(len(batch[i].Event))
		}
		if err := p.commit(batch); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	p.GroupCommitter = bench.NewGroupCommitter(writers, p.commit)
	return p, nil
}

// recordHeader is the number of bytes that the embedded store writes in a record
// besides the names of stream and kind and the JSON: a header of 47 bytes and a
// checksum of 4.
const recordHeader = 47 + 4

// commit writes a batch of events and returns when it is on the disk. For each event
// it sets the key e/<position> to a value of the size of a stored record, and the key
// <stream><number> to that position. Only the committer of the group and openPebble
// call it, never concurrently.
func (p *pebbleDB) commit(events []bench.PendingEvent) error {
	batch := p.db.NewBatch()
	for _, e := range events {
		p.position++
		stream := fmt.Appendf(make([]byte, 0, 64), "s/session-ses_%026d\x00", e.Writer)
		value := batch.SetDeferred(2+8, recordHeader+len(stream)+len("CallSettled")+len(e.Event))
		binary.BigEndian.PutUint64(append(value.Key[:0], "e/"...)[2:10], p.position)
		n := copy(value.Value, stream)
		copy(value.Value[n:], e.Event)
		if err := value.Finish(); err != nil {
			return err
		}
		key := binary.BigEndian.AppendUint64(stream, uint64(e.N))
		if err := batch.Set(key, value.Key[2:], nil); err != nil {
			return err
		}
	}
	if err := p.db.Apply(batch, pebble.Sync); err != nil {
		return err
	}
	return batch.Close()
}

// Close stops the committer and closes the database. No append may be running.
func (p *pebbleDB) Close() error { return errors.Join(p.GroupCommitter.Close(), p.db.Close()) }

// scanPebble returns the Open function of a contestant that reads every record of a
// history with a Pebble iterator. It opens the database of the embedded store read-only
// and reads the same keys and values as that store, without decoding them. All rounds
// share one block cache. The function read reads all records and returns their number.
func scanPebble(read func(*pebble.DB) (int, error)) func(context.Context, *bench.Ground) (bench.Rig, error) {
	return func(ctx context.Context, g *bench.Ground) (bench.Rig, error) {
		dir, err := g.History(ctx)
		if err != nil {
			return nil, err
		}
		o := options()
		o.ReadOnly = true
		db, err := openDB(filepath.Join(dir, "log"), o)
		if err != nil {
			return nil, err
		}
		return bench.NewRig(func(context.Context) (bench.Sample, error) {
			begun := time.Now()
			n, err := read(db)
			if err != nil {
				return nil, err
			}
			return bench.RateOf(n, time.Since(begun))
		}, db.Close), nil
	}
}

// iterate reads all records and returns their number. It uses a byte of each key and
// value, so that the values are loaded. It returns an error if there is no record.
func iterate(db *pebble.DB) (int, error) {
	return iterateAs(db, func(value []byte) []byte { return value })
}

// iterateCopies reads all records as iterate does, and copies each value, as a reader
// must that gives it away.
func iterateCopies(db *pebble.DB) (int, error) { return iterateAs(db, bytes.Clone) }

// iterateAs does the work of iterate. It uses the value that the function as returns.
func iterateAs(db *pebble.DB, as func([]byte) []byte) (n int, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte("e/"), UpperBound: []byte("e0")})
	if err != nil {
		return 0, err
	}
	seen := 0
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return n, errors.Join(err, it.Close())
		}
		seen += int(it.Key()[2]) + int(as(value)[0])
		n++
	}
	if seen == 0 {
		err = errors.New("a bare iterator sees no records")
	}
	return n, errors.Join(err, it.Close())
}

// silent is a Pebble logger that discards messages. A fatal message panics.
type silent struct{}

// Infof discards a message.
func (silent) Infof(string, ...any) {}

// Errorf discards a message.
func (silent) Errorf(string, ...any) {}

// Fatalf panics with the message.
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
