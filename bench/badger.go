package main

import (
	"context"
	"encoding/binary"

	"github.com/dgraph-io/badger/v4"
	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

// A badgerDB keeps events under the writer and its count, each in a transaction
// of its own, with SyncWrites. Badger groups what is written at the same time.
type badgerDB struct{ db *badger.DB }

func openBadger(_ context.Context, g *bench.Ground, _ int) (bench.Appender, error) {
	db, err := badger.Open(badger.DefaultOptions(g.Dir).WithSyncWrites(true).WithLogger(nil))
	if err != nil {
		return nil, err
	}
	return badgerDB{db}, nil
}

// Append sets an event.
func (b badgerDB) Append(_ context.Context, writer, n int, event []byte) error {
	key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(writer)), uint64(n))
	return b.db.Update(func(tx *badger.Txn) error { return tx.Set(key, event) })
}

// Close closes the database.
func (b badgerDB) Close() error { return b.db.Close() }
