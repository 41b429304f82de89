package embedded

import (
	"context"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpenMemory opens a new store in memory, for events that are not kept. The caller closes
// it, and its events are then lost.
func OpenMemory(ctx context.Context) (*Store, error) {
	return Open(ctx, "store", Config{FS: vfs.NewMem()})
}
