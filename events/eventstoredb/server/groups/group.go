package groups

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A message is an entry on its way to be settled.
type message struct {
	entry    events.Entry
	cursor   Cursor    // behind it
	retries  int       // how often it was tried again
	holder   *Consumer // who has it; nil: it waits, is being parked or is settled
	due      time.Time // when its holder is late; zero: never
	settled  bool
	replayed bool   // it is on record as parked
	reason   string // why it is being parked
}

func (m *message) parked() ParkedEntry {
	return ParkedEntry{ID: m.entry.ID, Stream: m.entry.Stream, Revision: m.entry.Revision, Reason: m.reason}
}

func (m *message) key() entryKey { return entryKey{m.entry.Stream, m.entry.Revision} }

// A Group hands the entries that it reads to consumers. It begins to read when
// the first one joins.
type Group struct {
	groups     *Groups
	key        Key
	created    domain.EventID
	matches    func(events.Header) bool
	wake       chan struct{}  // tells the keeper that there is something to do
	stop       chan struct{}  // closed when the group closes
	goroutines sync.WaitGroup // the reader and the keeper
	// What is appended to the group's stream is appended under this lock, which
	// is taken before mu.
	writing sync.Mutex
	mu      struct {
		sync.Mutex
		groupState
		started        bool
		ended          error // why it ended
		consumers      []*Consumer
		nextConsumer   int           // whose turn it is, of RoundRobin
		window         []*message    // what was read, from the oldest that is not settled
		waiting        []*message    // to be handed out, in this order
		room           chan struct{} // closed when the window shrinks
		read           Cursor        // behind what was read last
		checkpointed   Cursor        // that is on record
		settledSince   int           // settled since then
		checkpointedAt time.Time
		toPark         []*message        // to be put on record as parked
		toRelease      []*message        // to be put on record as no longer parked
		toReplay       []ParkedEntry     // to be read and handed out again
		replaying      map[entryKey]bool // what is parked and in replays, or handed out from there
		nextWake       time.Time         // when the keeper wakes at the latest
		total          int64             // handed out
	}
}

func newGroup(g *Groups, k groupState) (*Group, error) {
	group := &Group{groups: g, key: k.def.Key, created: k.created, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	group.matches = func(events.Header) bool { return true }
	if k.def.Filter != nil {
		var err error
		if group.matches, err = g.cfg.CompileFilter(*k.def.Filter); err != nil {
			return nil, err
		}
	}
	group.mu.groupState = k
	group.mu.read, group.mu.checkpointed, group.mu.checkpointedAt = k.done, k.done, g.cfg.Now()
	group.mu.room = make(chan struct{})
	group.mu.replaying = map[entryKey]bool{}
	return group, nil
}

// Key returns what the group is called.
func (g *Group) Key() Key { return g.key }

func (g *Group) length() events.Revision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.length
}

// beginLocked starts the reader and the keeper.
func (g *Group) startLocked() {
	if g.mu.started {
		return
	}
	g.mu.started = true
	ctx, cancel := context.WithCancelCause(context.Background())
	after := g.mu.done
	g.goroutines.Go(func() { g.readAll(ctx, after) })
	g.goroutines.Go(func() {
		defer cancel(ErrStopped)
		g.persistLoop()
	})
}

// close ends the group, its goroutines and its consumers.
func (g *Group) close(why error) {
	g.mu.Lock()
	g.endLocked(why)
	g.mu.Unlock()
	g.goroutines.Wait()
}

// fail ends the group for what the store said.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endLocked(fmt.Errorf("%w: %w", ErrStopped, err))
}

func (g *Group) endLocked(why error) {
	if g.mu.ended != nil {
		return
	}
	g.mu.ended = why
	close(g.stop)
	for _, c := range g.mu.consumers {
		c.endLocked(why)
	}
	g.mu.consumers = nil
}

// readAll reads what follows a place until the context ends.
func (g *Group) readAll(ctx context.Context, after Cursor) {
	for e, err := range g.groups.cfg.Follow(ctx, g.key.Source, after) {
		if err == nil {
			err = g.take(ctx, e)
		}
		if err != nil {
			g.fail(err) // of no effect if this is the end that was asked for
			return
		}
	}
}

// take adds an entry to the window when there is room.
func (g *Group) take(ctx context.Context, e events.Entry) error {
	m := &message{entry: e, cursor: cursorAfter(g.key.Source, e.Header())}
	wanted := e.Stream.Category() != Category && g.matches(e.Header())
	g.mu.Lock()
	defer g.mu.Unlock()
	for wanted && len(g.mu.window) >= g.mu.def.Settings.Buffer {
		room := g.mu.room
		g.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
		}
		g.mu.Lock()
		if err := context.Cause(ctx); err != nil {
			return err
		}
	}
	g.mu.read = m.cursor
	if wanted && !g.mu.isParked(e.Stream, e.Revision) {
		g.mu.window = append(g.mu.window, m)
		g.mu.waiting = append(g.mu.waiting, m)
		g.dispatchLocked()
		return nil
	}
	g.advanceLocked()
	return nil
}

// advanceLocked forgets what is settled at the beginning of the window.
func (g *Group) advanceLocked() {
	n, before := 0, g.mu.settledSince
	for n < len(g.mu.window) && g.mu.window[n].settled {
		g.mu.done = g.mu.window[n].cursor
		n++
	}
	if g.mu.settledSince += n; n > 0 {
		g.mu.window = slices.Delete(g.mu.window, 0, n)
		close(g.mu.room)
		g.mu.room = make(chan struct{})
	}
	if len(g.mu.window) == 0 && g.mu.done != g.mu.read {
		g.mu.done = g.mu.read
		g.mu.settledSince += 1 - min(n, 1) // what was passed over is worth a mark too
	}
	s := g.mu.def.Settings
	worth := max(s.MinCheckpoint, 1)
	if before < worth && g.mu.settledSince >= worth || g.mu.settledSince >= s.MaxCheckpoint || len(g.mu.toReplay) > 0 {
		g.wakePersister()
	}
}

// wakePersister wakes the keeper.
func (g *Group) wakePersister() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// settleLocked is done with a message.
func (g *Group) settleLocked(m *message) {
	m.settled, m.holder = true, nil
	if m.replayed {
		g.mu.toRelease = append(g.mu.toRelease, m)
		g.wakePersister()
		return
	}
	g.advanceLocked()
}

// againLocked hands a message out again, unless that was done too often.
func (g *Group) retryLocked(m *message, reason string) {
	if m.retries >= g.mu.def.Settings.MaxRetries {
		g.parkLocked(m, fmt.Sprintf("tried %d times: %s", m.retries+1, reason))
		return
	}
	m.retries++
	m.holder = nil
	g.mu.waiting = slices.Insert(g.mu.waiting, 0, m)
}

// parkLocked sets a message aside. It is settled when that is on record.
func (g *Group) parkLocked(m *message, reason string) {
	m.holder, m.reason = nil, reason
	if m.replayed { // and so on record
		delete(g.mu.replaying, m.key())
		return
	}
	g.mu.toPark = append(g.mu.toPark, m)
	g.wakePersister()
}

// dispatchLocked hands out what waits, as far as there are consumers with room.
func (g *Group) dispatchLocked() {
	pinned := g.mu.def.Settings.Strategy == Pinned || g.mu.def.Settings.Strategy == PinnedByCorrelation
	n := 0
	for n < len(g.mu.waiting) {
		c := g.chooseLocked(g.mu.waiting[n].entry)
		if c == nil {
			break
		}
		c.deliverLocked(g.mu.waiting[n])
		n++
	}
	g.mu.waiting = slices.Delete(g.mu.waiting, 0, n)
	if !pinned {
		return
	}
	g.mu.waiting = slices.DeleteFunc(g.mu.waiting, func(m *message) bool {
		c := g.chooseLocked(m.entry)
		if c != nil {
			c.deliverLocked(m)
		}
		return c != nil
	})
}

// A Stand is how a group stands.
type Stats struct {
	Definition
	Ended     error // nil: it goes on
	Consumers []ConsumerStats
	Read      Cursor // behind what was read last
	Saved     Cursor // behind what is settled, on record
	Total     int64  // entries handed out
	Waiting   int    // to be handed out
	Retried   int    // of those, again
	InFlight  int    // of consumers
	Parked    int
}

// Stand returns how the group stands.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{
		Definition: g.mu.def, Ended: g.mu.ended, Read: g.mu.read, Saved: g.mu.checkpointed, Total: g.mu.total,
		Waiting: len(g.mu.waiting), Parked: len(g.mu.groupState.parked) - len(g.mu.replaying),
	}
	for _, m := range g.mu.waiting {
		if m.retries > 0 {
			s.Retried++
		}
	}
	for _, c := range g.mu.consumers {
		s.Consumers = append(s.Consumers, c.statsLocked())
		s.InFlight += c.count
	}
	return s
}
