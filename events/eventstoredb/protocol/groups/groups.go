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
	Follow func(context.Context, events.Stream, Place) iter.Seq2[events.Entry, error]
	// Admits returns what tells whether an entry passes a filter, or an error if
	// the filter says nothing.
	Admits func(Filter) (func(events.Header) bool, error)
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
	g := &Groups{store: store, cfg: cfg, mint: domain.NewMint(cfg.Now, rand.Reader)}
	g.mu.byKey, g.mu.ended = map[Key]*Group{}, map[Key]events.Revision{}
	all := map[events.Stream]*known{}
	keys := map[events.Stream]Key{}
	for e, err := range events.Scan(ctx, store, events.Query{Filter: events.Filter{Categories: []string{Category}}}) {
		if err != nil {
			return nil, fmt.Errorf("open groups: %w", err)
		}
		if all[e.Stream] == nil {
			all[e.Stream] = &known{}
		}
		if err := all[e.Stream].apply(e); err != nil {
			return nil, fmt.Errorf("open groups: %w", err)
		}
		if e.Kind == kindCreated {
			keys[e.Stream] = all[e.Stream].def.Key
		}
	}
	for stream, k := range all {
		if !k.exists {
			g.mu.ended[keys[stream]] = k.length
			continue
		}
		group, err := newGroup(g, *k)
		if err != nil {
			return nil, fmt.Errorf("open group %s: %w", k.def.Key, err)
		}
		g.mu.byKey[k.def.Key] = group
	}
	return g, nil
}

// Close ends all consumers, and makes a last checkpoint of each group.
func (g *Groups) Close() {
	g.changing.Lock()
	defer g.changing.Unlock()
	g.mu.Lock()
	g.mu.closed = true
	all := g.mu.byKey
	g.mu.byKey = map[Key]*Group{}
	g.mu.Unlock()
	for _, group := range all {
		group.close(ErrStopped)
	}
}

// Create makes a group. One that is there already is ErrExists.
func (g *Groups) Create(ctx context.Context, def Definition) error {
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
	k := known{def: def, exists: true, length: after + 1, done: def.Start}
	group, err := newGroup(g, k)
	if err != nil {
		return fmt.Errorf("create group %s: %w", def.Key, err)
	}
	if err := g.append(ctx, def.Key, after, kindCreated, def); err != nil {
		return fmt.Errorf("create group %s: %w", def.Key, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.byKey[def.Key] = group
	return nil
}

func (g *Groups) append(ctx context.Context, key Key, after events.Revision, kind string, data any) error {
	r, err := g.record(kind, data)
	if err != nil {
		return err
	}
	return g.store.Append(ctx, key.stream(), after, r)
}

// Update gives a group other settings. Its consumers stay.
func (g *Groups) Update(ctx context.Context, key Key, settings Settings) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	group, err := g.Group(key)
	if err == nil {
		err = settings.valid()
	}
	if err == nil {
		err = group.update(ctx, settings)
	}
	if err != nil {
		return fmt.Errorf("update group %s: %w", key, err)
	}
	return nil
}

// Delete ends a group and its consumers. What was parked is no longer parked.
func (g *Groups) Delete(ctx context.Context, key Key) error {
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
	if err := g.append(ctx, key, after, kindDeleted, struct{}{}); err != nil {
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

// final reports whether it is known that records were not appended, and that
// appending them again would change nothing.
func final(err error) bool {
	for _, one := range []error{events.ErrConflict, events.ErrClosed, events.ErrBadRecord, events.ErrTooLarge} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}
