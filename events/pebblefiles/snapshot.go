package pebblefiles

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Snapshot creates the folder dir, whose parent must exist, with a copy of an open
// database as of the call, and makes all data of the copy durable. The database stays
// in use. It makes hard links of immutable files if the file system supports them.
// After an error the folder is missing or incomplete.
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
