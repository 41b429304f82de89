package groups

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// Checkpoints keep a document under each name, the last in place of the one
// before. They are safe for concurrent use.
type Checkpoints interface {
	// SaveCheckpoint keeps data under a name. It keeps no reference to them.
	SaveCheckpoint(ctx context.Context, name string, data []byte) error
	// LoadCheckpoint returns what is kept under a name, and nil if nothing is.
	LoadCheckpoint(ctx context.Context, name string) ([]byte, error)
	// Sync returns nil when what was saved before it outlasts the process.
	Sync(ctx context.Context) error
}

// A mark is how far a group has come, as it is kept: everything up to there is
// settled. It names the event that created the group, as there may have been
// another of its name.
type checkpoint struct {
	Created domain.EventID `json:"created"`
	Cursor
}

// mark is the name under which a group's is kept.
func (k Key) checkpointName() string { return "group/" + k.String() }

// loadCheckpoint sets how far a group has come. A mark that is of another group, or ahead
// of what the store holds, is none: then the group begins where it did.
func (g *Groups) loadCheckpoint(ctx context.Context, k *groupState) error {
	text, err := g.cfg.Checkpoints.LoadCheckpoint(ctx, k.def.Key.checkpointName())
	if err != nil {
		return err
	}
	m := checkpoint{}
	if json.Unmarshal(text, &m) != nil || m.Created != k.created {
		return nil
	}
	end, err := g.end(ctx, k.def.Source)
	if err == nil && m.Revision <= end.Revision && m.Position.Compare(end.Position) <= 0 {
		k.done = m.Cursor
	}
	return err
}

// end returns the place behind the last entry of a source.
func (g *Groups) end(ctx context.Context, source events.Stream) (Cursor, error) {
	for h, err := range events.Headers(ctx, g.store, events.Query{Stream: source, Backward: true}) {
		return cursorAfter(source, h), err
	}
	return Cursor{}, nil
}

// placeOf returns the place behind an entry of a source.
func cursorAfter(source events.Stream, h events.Header) Cursor {
	if source == "" {
		return Cursor{Position: h.Position}
	}
	return Cursor{Revision: h.Revision}
}

// A memory keeps checkpoints as long as the process lives.
type memoryCheckpoints struct {
	mu struct {
		sync.Mutex
		named map[string][]byte
	}
}

func (m *memoryCheckpoints) SaveCheckpoint(_ context.Context, name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.named == nil {
		m.mu.named = map[string][]byte{}
	}
	m.mu.named[name] = slices.Clone(data)
	return nil
}

func (m *memoryCheckpoints) LoadCheckpoint(_ context.Context, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mu.named[name]), nil
}

func (*memoryCheckpoints) Sync(context.Context) error { return nil }
