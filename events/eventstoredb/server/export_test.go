package server

import (
	"context"

	"github.com/settlement-ledger/ledger/events"
)

// The bounds of an index of IDs.
const (
	BlockIDs   = blockIDs
	IndexBytes = indexBytes
)

// NewIDIndex returns an index of a capacity in bytes.
var NewIDIndex = newIDIndex

// Find returns the revision of a record in a stream, or 0.
func (x *idIndex) Find(ctx context.Context, store events.Store, stream events.Stream, r events.Record) (events.Revision, error) {
	held, err := x.acquire(ctx, stream)
	if err != nil {
		return 0, err
	}
	defer held.release()
	if _, err := held.update(ctx, store); err != nil {
		return 0, err
	}
	found, err := held.find(ctx, store, []events.Record{r})
	return found[r.ID].Revision, err
}

// Size returns the number of streams in the index, and the bytes that it counts
// for them.
func (x *idIndex) Size() (streams, bytes int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.byStream), x.mu.bytes
}

const HandshakeTimeout = handshakeTimeout
