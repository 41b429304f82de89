package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

// A pebbleDB is a bare Pebble that is given what the store gives to its own:
// for each event a value under its position and an entry under its stream, of
// the same bytes, in one batch for all that wait. It checks nothing.
type pebbleDB struct {
	*bench.Group
	db       *pebble.DB
	position uint64
}

// options are those of the store, as docs/formats.md and its source have them.
func options() *pebble.Options {
	o := &pebble.Options{
		FormatMajorVersion: pebble.FormatNewest, MemTableSize: 16 << 20, MemTableStopWritesThreshold: 4, Logger: silent{},
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 32 << 10
	}
	return o
}

// cacheSize is that of the store.
const cacheSize = 32 << 20

func openDB(dir string, o *pebble.Options) (*pebble.DB, error) {
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	o.Cache = cache
	return pebble.Open(dir, o)
}

func openPebble(_ context.Context, g *bench.Ground, writers int) (bench.Appender, error) {
	db, err := openDB(g.Dir, options())
	if err != nil {
		return nil, err
	}
	p := &pebbleDB{db: db}
	for left := g.Bytes(64 << 20); left > 0; { // its first logs are written, as those of the store
		batch := make([]bench.Pending, 2048)
		for i := range batch {
			batch[i] = bench.Pending{Writer: writers, N: int(p.position) + i + 1, Event: bench.Event(0, i)}
			left -= int64(len(batch[i].Event))
		}
		if err := p.commit(batch); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	p.Group = bench.NewGroup(writers, p.commit)
	return p, nil
}

// recordHeader stands for what the store keeps in front of the JSON of a record
// in a stream: 47 bytes, the names of stream and kind, and a sum behind.
const recordHeader = 47 + 4

func (p *pebbleDB) commit(events []bench.Pending) error {
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

// Close ends the committer and closes the database.
func (p *pebbleDB) Close() error { return errors.Join(p.Group.Close(), p.db.Close()) }

// scanPebble sets a contestant up that reads the records of a history by a bare
// iterator: every key and value, looked at.
func scanPebble(ctx context.Context, g *bench.Ground) (bench.Rig, error) {
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
		n, err := iterate(db)
		if err != nil {
			return nil, err
		}
		return bench.RateOf(n, time.Since(begun))
	}, db.Close), nil
}

func iterate(db *pebble.DB) (n int, err error) {
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
		seen += int(it.Key()[2]) + int(value[0])
		n++
	}
	if seen == 0 {
		err = errors.New("a bare iterator sees no records")
	}
	return n, errors.Join(err, it.Close())
}

// silent is a logger that says nothing.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
