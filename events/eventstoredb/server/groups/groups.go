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

// A Config says how groups read.
type Config struct {
	// Follow yields the entries of a stream, or of all where it is empty, that
	// follow a place, and waits for more until its context ends.
	Follow func(context.Context, events.Stream, Cursor) iter.Seq2[events.Entry, error]
	// Admits returns what tells whether an entry passes a filter, or an error if
	// the filter says nothing.
	CompileFilter func(Filter) (func(events.Header) bool, error)
	// Checkpoints keep how far each group has come. Nil: that is kept as long as
	// the process lives, and another hands out again what there is.
	Checkpoints Checkpoints
	// Now is the time. Nil: time.Now.
	Now func() time.Time
}

// Groups are the groups of a store. The zero Groups is not valid.
type Groups struct {
	store events.Store
	cfg   Config
	mint  *domain.Mint
	mu    struct {
		sync.Mutex
		byKey  map[Key]*Group
		ended  map[Key]events.Revision // the lengths of the streams of groups that were deleted
		closed bool
	}
	changing sync.Mutex // one is created, updated or deleted at a time; taken before mu
}

// Open reads the groups of a store. The caller closes them before the store.
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

// load takes what groups there are from the store.
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
	byKey, ended := map[Key]*Group{}, map[Key]events.Revision{}
	for _, k := range all {
		if !k.exists {
			ended[k.def.Key] = k.length
			continue
		}
		if err := g.loadCheckpoint(ctx, k); err != nil {
			return fmt.Errorf("group %s: %w", k.def.Key, err)
		}
		group, err := newGroup(g, *k)
		if err != nil {
			return fmt.Errorf("group %s: %w", k.def.Key, err)
		}
		byKey[k.def.Key] = group
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.byKey, g.mu.ended = byKey, ended
	return nil
}

// Restart ends all consumers and reads the groups of the store again: one that
// had stopped goes on from what is on record. Until it has succeeded there are
// no groups.
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

// Close ends all consumers, and keeps how far each group has come.
func (g *Groups) Close() {
	g.changing.Lock()
	defer g.changing.Unlock()
	g.closeAll(true)
}

// closeAll closes all groups, for good or not, and reports whether they were not
// closed for good before.
func (g *Groups) closeAll(forGood bool) bool {
	g.mu.Lock()
	open, all := !g.mu.closed, g.mu.byKey
	g.mu.closed = g.mu.closed || forGood
	g.mu.byKey = map[Key]*Group{}
	g.mu.Unlock()
	for _, group := range all {
		group.close(ErrStopped)
	}
	return open
}

// Create makes a group. One that is there already is ErrExists.
func (g *Groups) Create(def Definition) error {
	if err := def.valid(); err != nil {
		return fmt.Errorf("create group %s: %w", def.Key, err)
	}
	g.changing.Lock()
	defer g.changing.Unlock()
	g.mu.Lock()
	_, exists := g.mu.byKey[def.Key]
	after, closed := g.mu.ended[def.Key], g.mu.closed
	g.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("create group %s: %w", def.Key, ErrStopped)
	case exists:
		return fmt.Errorf("create group %s: %w", def.Key, ErrExists)
	}
	r, err := g.record(kindCreated, def)
	if err != nil {
		return fmt.Errorf("create group %s: %w", def.Key, err)
	}
	group, err := newGroup(g, groupState{def: def, exists: true, created: r.ID, length: after + 1, done: def.Start})
	if err == nil {
		err = g.append(def.Key, after, r)
	}
	if err != nil {
		return fmt.Errorf("create group %s: %w", def.Key, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.byKey[def.Key] = group
	return nil
}

// append puts records into the stream of a group. It does not end when a caller
// is gone, as it would leave open whether they are there.
func (g *Groups) append(key Key, after events.Revision, records ...events.Record) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), appendTimeout, ErrStopped)
	defer cancel()
	return g.store.Append(ctx, key.stream(), after, records...)
}

// Update gives a group other settings. Its consumers stay.
func (g *Groups) Update(key Key, settings Settings) error {
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

// Delete ends a group and its consumers. What was parked is no longer parked.
func (g *Groups) Delete(key Key) error {
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
		return fmt.Errorf("delete group %s: %w: until the next start it is gone, then it is there again: %w", key, ErrStopped, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.ended[key] = after + 1
	return nil
}

// Group returns a group. One that there is not is ErrNotFound.
func (g *Groups) Group(key Key) (*Group, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if group, ok := g.mu.byKey[key]; ok {
		return group, nil
	}
	return nil, fmt.Errorf("find group %s: %w", key, ErrNotFound)
}

// All returns all groups, by source and name.
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

// isFinal reports whether it is known that records were not appended, and that
// appending them again would change nothing.
func isFinal(err error) bool {
	for _, one := range []error{events.ErrConflict, events.ErrClosed, events.ErrBadRecord, events.ErrTooLarge} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
