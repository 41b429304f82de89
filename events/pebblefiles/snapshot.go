package pebblefiles

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Snapshot makes the folder dir, in one that is there, and in it a copy of an
// open database as it is now, with all that was written to it durable. Files
// that stay as they are are linked where the file system can. Where it cannot
// write, there is an error and no folder, or the beginning of one.
func Snapshot(db *pebble.DB, dir string) (err error) {
	// Pebble panics where it cannot make durable which manifest is the copy's. It
	// holds no lock there.
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
