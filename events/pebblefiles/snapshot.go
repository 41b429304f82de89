package pebblefiles

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Snapshot creates the folder dir, whose parent exists, with a copy of an open database,
// and makes all data of the copy durable. It links immutable files if the file system
// can. If it fails, the folder is missing or incomplete.
func Snapshot(db *pebble.DB, dir string) (err error) {
	// Pebble panics if it cannot make the manifest of the copy durable. It holds no
	// lock then.
	defer func() {
		if cause := recover(); cause != nil {
			broken, ok := cause.(error)
			if !ok {
				panic(cause)
			}
			err = fmt.Errorf("copy the database: %w", broken)
		}
	}()
	return db.Checkpoint(dir, pebble.WithFlushedWAL())
}
