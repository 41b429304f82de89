package main

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
	bolt "go.etcd.io/bbolt"
)

// A boltDB is a bucket that maps positions to events. It appends with Batch, which
// puts the events of concurrent callers into one transaction with one sync. Two
// options are set for speed: pages are filled completely, because keys only increase,
// and the list of free pages is not written to the file.
type boltDB struct{ db *bolt.DB }

// eventsBucket is the name of the only bucket.
var eventsBucket = []byte("events")

// openBoltDefault opens a bbolt with the default batching: a batch waits up to 10 ms
// for more callers.
func openBoltDefault(_ context.Context, g *bench.Ground, _ int) (bench.Appender, error) {
	return newBolt(g)
}

// openBolt opens a bbolt whose batching is tuned to the number of writers: a batch is
// committed when every writer is in it, or after one millisecond. A real program does
// not know this number, so the tuning favours bbolt.
func openBolt(_ context.Context, g *bench.Ground, writers int) (bench.Appender, error) {
	b, err := newBolt(g)
	if err != nil {
		return nil, err
	}
	b.db.MaxBatchSize, b.db.MaxBatchDelay = writers, time.Millisecond
	return b, nil
}

// newBolt creates the database file and its bucket. It maps 1 GiB at once, so that
// growth of the file does not remap it during a measurement. After an error the file
// is closed.
func newBolt(g *bench.Ground) (*boltDB, error) {
	db, err := bolt.Open(filepath.Join(g.Dir, "events.bolt"), 0o600, &bolt.Options{
		NoFreelistSync: true, FreelistType: bolt.FreelistMapType, InitialMmapSize: 1 << 30,
	})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucket(eventsBucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &boltDB{db}, nil
}

// Append stores an event under the next position and returns when it is on the disk.
// Several goroutines may append at once. Batch may call the function again after
// another caller's function failed; each call takes a new position.
func (b *boltDB) Append(_ context.Context, _, _ int, event []byte) error {
	return b.db.Batch(func(tx *bolt.Tx) error {
		bucket := tx.Bucket(eventsBucket)
		bucket.FillPercent = 1
		position, err := bucket.NextSequence()
		if err != nil {
			return err
		}
		return bucket.Put(binary.BigEndian.AppendUint64(nil, position), event)
	})
}

// Close closes the database. No append may be running.
func (b *boltDB) Close() error { return b.db.Close() }
