package main

import (
	"context"
	"encoding/binary"

	"github.com/dgraph-io/badger/v4"
	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

// A badgerDB stores each event in a transaction of its own. The key consists of the
// number of the writer and the number of the event. With SyncWrites a transaction
// returns when it is on the disk. Badger itself writes concurrent transactions together.
type badgerDB struct{ db *badger.DB }

// openBadger opens a new Badger in the folder g.Dir. Badger has its default options
// except for SyncWrites and a disabled log.
func openBadger(_ context.Context, g *bench.Ground, _ int) (bench.Appender, error) {
	db, err := badger.Open(badger.DefaultOptions(g.Dir).WithSyncWrites(true).WithLogger(nil))
	if err != nil {
		return nil, err
	}
	return badgerDB{db}, nil
}

// Append stores an event and returns when it is on the disk. The key is the writer (4
// bytes) and n (8 bytes), both big-endian. Several goroutines may append at once.
func (b badgerDB) Append(_ context.Context, writer, n int, event []byte) error {
	key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(writer)), uint64(n))
	return b.db.Update(func(tx *badger.Txn) error { return tx.Set(key, event) })
}

// Close closes the database. No append may be running.
func (b badgerDB) Close() error { return b.db.Close() }
