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

// A message is an entry from when the group reads it until it is settled:
// acknowledged, skipped, or recorded as parked.
type message struct {
	entry    events.Entry
	cursor   Cursor    // after the entry
	retries  int       // number of redeliveries
	holder   *Consumer // the consumer that holds it; nil: it waits, is being parked or is settled
	due      time.Time // when the delivery times out; zero: never
	settled  bool
	replayed bool   // it is recorded as parked
	reason   string // for parking
}

// parked returns the message as it is recorded when parked.
func (m *message) parked() ParkedEntry {
	return ParkedEntry{ID: m.entry.ID, Stream: m.entry.Stream, Revision: m.entry.Revision, Reason: m.reason}
}

// key identifies the message's entry.
func (m *message) key() entryKey { return entryKey{m.entry.Stream, m.entry.Revision} }

// A Group reads entries and delivers them to consumers. It starts reading with
// the first Join or Replay.
type Group struct {
	groups     *Groups
	key        Key
	created    domain.EventID
	matches    func(events.Header) bool
	wake       chan struct{}  // wakes the persister; has room for one signal
	stop       chan struct{}  // closed when the group closes
	goroutines sync.WaitGroup // the reader and the persister
	// writing serializes appends to the group's stream. It is locked before mu.
	writing sync.Mutex
	mu      struct {
		sync.Mutex
		groupState
		started        bool
		ended          error // why it ended; nil: it runs
		consumers      []*Consumer
		nextConsumer   int           // RoundRobin's next index into consumers
		window         []*message    // entries read, from the oldest that is not settled, in order
		waiting        []*message    // entries to deliver, in this order
		room           chan struct{} // closed and replaced when the window shrinks
		read           Cursor        // after the last entry read
		checkpointed   Cursor        // the latest written checkpoint
		settledSince   int           // entries settled since that checkpoint
		checkpointedAt time.Time
		toPark         []*message        // to be recorded as parked
		toRelease      []*message        // to be recorded as no longer parked
		toReplay       []ParkedEntry     // parked entries to read and deliver
		replaying      map[entryKey]bool // parked entries in toReplay or delivered from it
		nextWake       time.Time         // when the persister's timer fires
		total          int64             // deliveries
	}
}

// newGroup returns a group with a recorded state. It starts no goroutine.
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

// Key returns the group's key.
func (g *Group) Key() Key { return g.key }

// length returns the length of the group's stream.
func (g *Group) length() events.Revision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.length
}

// startLocked starts the reader and the persister, once.
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

// close ends the group and its consumers with a reason, and joins its
// goroutines.
func (g *Group) close(why error) {
	g.mu.Lock()
	g.endLocked(why)
	g.mu.Unlock()
	g.goroutines.Wait()
}

// fail ends the group with an error of the store.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endLocked(fmt.Errorf("%w: %w", ErrStopped, err))
}

// endLocked ends the group and its consumers with a reason. Only the first call
// has an effect.
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

// readAll is the reader: it reads the entries after a cursor until ctx ends.
func (g *Group) readAll(ctx context.Context, after Cursor) {
	for e, err := range g.groups.cfg.Follow(ctx, g.key.Source, after) {
		if err == nil {
			err = g.take(ctx, e)
		}
		if err != nil {
			g.fail(err) // no effect if the group was closed
			return
		}
	}
}

// take adds an entry to the window, or skips one that the filter does not
// match. It waits while the window is full.
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

// advanceLocked removes settled entries from the front of the window, and wakes
// the persister if a checkpoint may be due.
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
		g.mu.settledSince += 1 - min(n, 1) // skipped entries count as one settled entry
	}
	s := g.mu.def.Settings
	worth := max(s.MinCheckpoint, 1)
	if before < worth && g.mu.settledSince >= worth || g.mu.settledSince >= s.MaxCheckpoint || len(g.mu.toReplay) > 0 {
		g.wakePersister()
	}
}

// wakePersister makes the persister run, now or after its current round.
func (g *Group) wakePersister() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// settleLocked marks a message as settled. A replayed message is settled when
// the persister has recorded its release.
func (g *Group) settleLocked(m *message) {
	m.settled, m.holder = true, nil
	if m.replayed {
		g.mu.toRelease = append(g.mu.toRelease, m)
		g.wakePersister()
		return
	}
	g.advanceLocked()
}

// retryLocked puts a message before the waiting ones, or parks it if it was
// retried MaxRetries times.
func (g *Group) retryLocked(m *message, reason string) {
	if m.retries >= g.mu.def.Settings.MaxRetries {
		g.parkLocked(m, fmt.Sprintf("tried %d times: %s", m.retries+1, reason))
		return
	}
	m.retries++
	m.holder = nil
	g.mu.waiting = slices.Insert(g.mu.waiting, 0, m)
}

// parkLocked queues a message for parking. It is settled when the persister has
// recorded that.
func (g *Group) parkLocked(m *message, reason string) {
	m.holder, m.reason = nil, reason
	if m.replayed { // already recorded as parked
		delete(g.mu.replaying, m.key())
		return
	}
	g.mu.toPark = append(g.mu.toPark, m)
	g.wakePersister()
}

// dispatchLocked delivers waiting messages to consumers with free capacity.
// With a pinned strategy, a message whose consumer is full does not hold up the
// messages of other consumers.
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

// Stats describes the state of a group at one moment.
type Stats struct {
	Definition
	Ended     error           // why the group ended; nil: it runs
	Consumers []ConsumerStats // in the order in which they joined
	Read      Cursor          // after the last entry read
	Saved     Cursor          // the latest written checkpoint
	Total     int64           // deliveries since the group was loaded
	Waiting   int             // entries to deliver
	Retried   int             // of the waiting entries, the ones that were delivered before
	InFlight  int             // delivered entries that no consumer has answered
	Parked    int             // parked entries that are not being replayed
}

// Stats returns the state of the group.
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
