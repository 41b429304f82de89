package groups

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// CheckpointStore stores one document under each name. Implementations are safe for
// concurrent use. embedded.Store is one.
type CheckpointStore interface {
	// SaveCheckpoint replaces the document under a name. It does not retain
	// data.
	SaveCheckpoint(ctx context.Context, name string, data []byte) error
	// LoadCheckpoint returns the document under a name, or nil if no document has
	// the name.
	LoadCheckpoint(ctx context.Context, name string) ([]byte, error)
	// Sync returns nil when all documents saved before it are durable, and an
	// error if they may be lost in a power cut.
	Sync(ctx context.Context) error
}

// A groupCheckpoint is the document that records the progress of a group: every
// entry up to the cursor is settled. Created is the ID of the event that created
// the group, since an earlier, deleted group may have had the same key, and its
// checkpoint remains.
type groupCheckpoint struct {
	Created domain.EventID `json:"created"`
	Cursor
}

// checkpointName returns the name of a group's checkpoint document.
func (k QualifiedName) checkpointName() string { return "group/" + k.String() }

// loadCheckpoint sets a group's progress from its checkpoint. It ignores a
// checkpoint that does not parse or belongs to a deleted group with the same key,
// and one that is ahead of the log, as after a restore of an older log. The group
// then continues from its start, or from the last GroupCheckpointed record of an
// earlier release.
func (g *Groups) loadCheckpoint(ctx context.Context, k *groupState) error {
	text, err := g.cfg.Checkpoints.LoadCheckpoint(ctx, k.def.QualifiedName.checkpointName())
	if err != nil {
		return err
	}
	m := groupCheckpoint{}
	if json.Unmarshal(text, &m) != nil || m.Created != k.created {
		return nil
	}
	end, err := g.end(ctx, k.def.Source)
	if err == nil && m.Revision <= end.Revision && m.Position.Compare(end.Position) <= 0 {
		k.done = m.Cursor
	}
	return err
}

// end returns the cursor after the last entry of a source, or the zero Cursor
// for an empty source. It reads one header.
func (g *Groups) end(ctx context.Context, source events.Stream) (Cursor, error) {
	for h, err := range events.Headers(ctx, g.store, events.Query{Stream: source, Backward: true}) {
		return cursorAfter(source, h), err
	}
	return Cursor{}, nil
}

// cursorAfter returns the cursor after an entry of a source: its position in all
// streams, or its revision in one.
func cursorAfter(source events.Stream, h events.Header) Cursor {
	if source == "" {
		return Cursor{Position: h.Position}
	}
	return Cursor{Revision: h.Revision}
}

// memoryCheckpoints is a CheckpointStore in memory. They are lost with the process.
type memoryCheckpoints struct {
	mu struct {
		sync.Mutex
		named map[string][]byte
	}
}

// SaveCheckpoint implements CheckpointStore.
func (m *memoryCheckpoints) SaveCheckpoint(_ context.Context, name string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.named == nil {
		m.mu.named = map[string][]byte{}
	}
	m.mu.named[name] = slices.Clone(data)
	return nil
}

// LoadCheckpoint implements CheckpointStore.
func (m *memoryCheckpoints) LoadCheckpoint(_ context.Context, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mu.named[name]), nil
}

// Sync implements CheckpointStore. It returns nil at once: documents in memory cannot
// be made durable.
func (*memoryCheckpoints) Sync(context.Context) error { return nil }
