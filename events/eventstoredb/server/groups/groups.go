package groups

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A Config connects groups to a server and a store. Its functions are called from
// several goroutines.
type Config struct {
	// Follow yields the entries of a stream, or of all streams if the stream is
	// empty, after a cursor, and then new entries, until its context ends.
	Follow func(context.Context, events.Stream, Cursor) iter.Seq2[events.Entry, error]
	// CompileFilter returns the predicate of a filter, or an error that matches
	// ErrBadGroup if the filter is invalid.
	CompileFilter func(Filter) (func(events.Header) bool, error)
	// Checkpoints stores the groups' checkpoints. Nil: they are kept in memory,
	// and after a restart a group delivers all entries since its start again.
	Checkpoints CheckpointStore
	// Now returns the time. Nil: time.Now.
	Now func() time.Time
}

// Groups are the consumer groups (persistent subscriptions) of a store. The zero Groups
// is invalid; Open returns a valid one. Only one process at a time may open the groups of a store. If two
// processes did, both would deliver each entry, and an append by one process
// would end the group in the other process with a conflict.
type Groups struct {
	store events.Store
	cfg   Config
	mint  *domain.Mint
	mu    struct {
		sync.Mutex
		byKey map[QualifiedName]*Group
		// ended has the stream lengths of deleted groups, so that a new group
		// with the same key appends after the old records.
		ended  map[QualifiedName]events.Revision
		closed bool
	}
	// changing serializes Create, Update, Delete, Restart and Close. It is locked
	// before mu, and held while the store is called.
	changing sync.Mutex
}

// Open loads the groups of a store. It reads the headers of the log and the
// records of the groups. It starts no goroutine. events.ErrDamaged reports a
// group stream with a record that is not a group's. The caller closes the Groups
// before the store.
func Open(ctx context.Context, store events.Store, cfg Config) (*Groups, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Checkpoints == nil {
		cfg.Checkpoints = &memoryCheckpoints{}
	}
	g := &Groups{store: store, cfg: cfg, mint: domain.NewMint(cfg.Now, rand.Reader)}
	if err := g.load(ctx); err != nil {
		return nil, fmt.Errorf("open groups: %w", err)
	}
	return g, nil
}

// load reads all groups from the store and replaces the groups in memory, which
// must be closed. If it fails, the groups in memory stay as they were. The
// caller holds changing, except in Open.
func (g *Groups) load(ctx context.Context) error {
	all := map[events.Stream]*groupState{}
	for e, err := range events.Scan(ctx, g.store, events.Query{Filter: events.Filter{Categories: []string{Category}}}) {
		if err != nil {
			return err
		}
		if all[e.Stream] == nil {
			all[e.Stream] = &groupState{}
		}
		if err := all[e.Stream].apply(e); err != nil {
			return err
		}
	}
	byKey, ended := map[QualifiedName]*Group{}, map[QualifiedName]events.Revision{}
	for _, k := range all {
		if !k.exists {
			ended[k.def.QualifiedName] = k.length
			continue
		}
		if err := g.loadCheckpoint(ctx, k); err != nil {
			return fmt.Errorf("group %s: %w", k.def.QualifiedName, err)
		}
		group, err := newGroup(g, *k)
		if err != nil {
			return fmt.Errorf("group %s: %w", k.def.QualifiedName, err)
		}
		byKey[k.def.QualifiedName] = group
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.byKey, g.mu.ended = byKey, ended
	return nil
}

// Restart ends all consumers and loads the groups from the store again, so that
// a stopped group continues from its checkpoint. If loading fails, the Groups
// have no group until a later Restart succeeds. After Close it returns
// ErrStopped.
func (g *Groups) Restart(ctx context.Context) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	if !g.closeAll(false) {
		return fmt.Errorf("restart groups: %w", ErrStopped)
	}
	if err := g.load(ctx); err != nil {
		return fmt.Errorf("restart groups: %w", err)
	}
	return nil
}

// Close ends all consumers and writes the checkpoint of each group. Later calls
// of Create and Restart return ErrStopped. Close may be called again.
func (g *Groups) Close() {
	g.changing.Lock()
	defer g.changing.Unlock()
	g.closeAll(true)
}

// closeAll closes all groups and removes them from memory. If forGood is set,
// later calls of Create and Restart fail. It returns false if the Groups were
// already closed. The caller holds changing.
func (g *Groups) closeAll(forGood bool) bool {
	g.mu.Lock()
	open, all := !g.mu.closed, g.mu.byKey
	g.mu.closed = g.mu.closed || forGood
	g.mu.byKey = map[QualifiedName]*Group{}
	g.mu.Unlock()
	for _, group := range all {
		group.close(ErrStopped)
	}
	return open
}

// Create records a group in its stream. ErrExists reports a group with the same
// key, ErrBadGroup an invalid definition or filter, and ErrStopped that the
// Groups are closed. If the append fails with an unknown outcome, the group may
// exist after the next start.
func (g *Groups) Create(def GroupConfig) error {
	if err := def.valid(); err != nil {
		return fmt.Errorf("create group %s: %w", def.QualifiedName, err)
	}
	g.changing.Lock()
	defer g.changing.Unlock()
	g.mu.Lock()
	_, exists := g.mu.byKey[def.QualifiedName]
	after, closed := g.mu.ended[def.QualifiedName], g.mu.closed
	g.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("create group %s: %w", def.QualifiedName, ErrStopped)
	case exists:
		return fmt.Errorf("create group %s: %w", def.QualifiedName, ErrExists)
	}
	r, err := g.record(kindCreated, def)
	if err != nil {
		return fmt.Errorf("create group %s: %w", def.QualifiedName, err)
	}
	group, err := newGroup(g, groupState{def: def, exists: true, created: r.ID, length: after + 1, done: def.Start})
	if err == nil {
		err = g.append(def.QualifiedName, after, r)
	}
	if err != nil {
		return fmt.Errorf("create group %s: %w", def.QualifiedName, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.byKey[def.QualifiedName] = group
	return nil
}

// append appends records to the stream of a group after a length. It has a
// timeout of its own and not the context of the caller, because a caller that
// cancels would leave open whether the records were written.
func (g *Groups) append(key QualifiedName, after events.Revision, records ...events.Record) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), appendTimeout, ErrStopped)
	defer cancel()
	return g.store.Append(ctx, key.stream(), after, records...)
}

// Update records and applies new settings of a group. Its consumers stay.
// ErrNotFound reports an unknown group, and ErrBadGroup invalid settings.
func (g *Groups) Update(key QualifiedName, settings Settings) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	group, err := g.Group(key)
	if err == nil {
		err = settings.valid()
	}
	if err == nil {
		err = group.update(settings)
	}
	if err != nil {
		return fmt.Errorf("update group %s: %w", key, err)
	}
	return nil
}

// Delete ends the consumers of a group with ErrDeleted, and records the deletion.
// The list of parked entries is deleted too; the entries themselves stay in their
// streams. If the deletion cannot be recorded, Delete returns ErrStopped, and the
// group may exist again after the next start.
func (g *Groups) Delete(key QualifiedName) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	group, err := g.Group(key)
	if err != nil {
		return fmt.Errorf("delete group %s: %w", key, err)
	}
	group.close(ErrDeleted)
	after := group.length()
	g.mu.Lock()
	delete(g.mu.byKey, key)
	g.mu.Unlock()
	r, err := g.record(kindDeleted, struct{}{})
	if err == nil {
		err = g.append(key, after, r)
	}
	if err != nil {
		return fmt.Errorf("delete group %s: %w: the group is gone until the next start, and then exists again: %w", key, ErrStopped, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.ended[key] = after + 1
	return nil
}

// Group returns the group with a key, or ErrNotFound if there is no such group.
// The group stays valid after it was deleted; its methods then return ErrDeleted.
func (g *Groups) Group(key QualifiedName) (*Group, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if group, ok := g.mu.byKey[key]; ok {
		return group, nil
	}
	return nil, fmt.Errorf("find group %s: %w", key, ErrNotFound)
}

// All returns all groups, ordered by source and name.
func (g *Groups) All() []*Group {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []*Group
	for _, group := range g.mu.byKey {
		all = append(all, group)
	}
	slices.SortFunc(all, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(a.key.Source, b.key.Source), cmp.Compare(a.key.Name, b.key.Name))
	})
	return all
}

// isFinal reports whether an error is certain to mean that records were not
// appended, and that a retry would give the same error.
func isFinal(err error) bool {
	for _, one := range []error{events.ErrConflict, events.ErrClosed, events.ErrBadRecord, events.ErrTooLarge} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
