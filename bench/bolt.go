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

// A boltDB is a bucket of events by position. It appends with Batch, which has
// concurrent callers share a transaction. Pages are filled, as keys increase,
// and the list of free pages is not written.
type boltDB struct{ db *bolt.DB }

var eventsBucket = []byte("events")

// openBoltDefault opens one as it comes: a batch waits 10 ms for more callers.
func openBoltDefault(_ context.Context, g *bench.Ground, _ int) (bench.Appender, error) {
	return newBolt(g)
}

// openBolt opens one that is tuned to its callers as nobody could who does not
// know how many they are: a batch goes on once all of them are there, or after
// a millisecond.
func openBolt(_ context.Context, g *bench.Ground, writers int) (bench.Appender, error) {
	b, err := newBolt(g)
	if err != nil {
		return nil, err
	}
	b.db.MaxBatchSize, b.db.MaxBatchDelay = writers, time.Millisecond
	return b, nil
}

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

// Append puts an event behind all others.
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

// Close closes the database.
func (b *boltDB) Close() error { return b.db.Close() }
