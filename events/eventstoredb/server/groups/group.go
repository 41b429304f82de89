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

// A message holds an entry from the time when the group reads it until the
// entry is settled: acknowledged, skipped, or recorded as parked (a dead
// letter). The group's mu guards it.
//
// A message has one of four states: waiting, held by a consumer, queued for
// parking, or settled. A message that the reader has read is also in the
// group's window, until this message and all older ones are settled. A replayed
// message is never in the window, since its entry was settled when it was
// parked.
type message struct {
	entry events.Entry
	// cursor is the progress of the group once this entry and all before it are
	// settled.
	cursor Cursor
	// retries is the number of redeliveries so far.
	retries int
	// holder is the consumer that holds the message. Nil: it waits, is being
	// parked or is settled.
	holder *Consumer
	// due is when the delivery times out. Zero: never.
	due time.Time
	// settled is set once. It lets advanceLocked move the checkpoint over the message.
	settled bool
	// replayed is set if the message comes from Replay. Its entry is then
	// recorded as parked.
	replayed bool
	// reason is the text with which the entry is parked.
	reason string
}

// parked returns the ParkedEntry that the group records when it parks the
// message.
func (m *message) parked() ParkedEntry {
	return ParkedEntry{ID: m.entry.ID, Stream: m.entry.Stream, Revision: m.entry.Revision, Reason: m.reason}
}

// key identifies the message's entry.
func (m *message) key() entryKey { return entryKey{m.entry.Stream, m.entry.Revision} }

// A Group reads entries and delivers them to consumers. It is safe for concurrent
// use. It starts reading with the first Join or Replay.
//
// The reader appends entries to the window and to the waiting messages, and waits
// while the window is full. dispatchLocked moves waiting messages to consumers
// with free capacity. The answers of consumers settle messages, return them to
// the front of waiting, or queue them for parking. The persister writes the
// results to the store: the parked and released entries, and the checkpoints. It
// also retries deliveries that have timed out.
//
// Invariant: every entry up to done is settled, and every unsettled entry after
// done that the reader has read is in window, in order. So a checkpoint at done
// never skips an entry, and a crash only repeats deliveries.
type Group struct {
	groups *Groups
	key    QualifiedName
	// created is the ID of the record that created the group. It distinguishes
	// the checkpoint of a deleted group with the same key.
	created domain.EventID
	// matches is the predicate of the group's filter.
	matches func(events.Header) bool
	// wake wakes the persister. It has room for one signal.
	wake chan struct{}
	// stop is closed when the group closes.
	stop chan struct{}
	// goroutines are the reader and the persister.
	goroutines sync.WaitGroup
	// writing serializes appends to the group's stream, since each append names
	// the length of the stream. It is locked before mu, and held while the
	// store is called.
	writing sync.Mutex
	mu      struct {
		sync.Mutex
		groupState
		// started is set when the goroutines have been started.
		started bool
		// ended is the reason why the group ended. Nil: it runs.
		ended error
		// consumers are in the order in which they joined.
		consumers []*Consumer
		// nextConsumer is RoundRobin's next index into consumers, before the
		// modulo.
		nextConsumer int
		// window has the entries read, from the oldest that is not settled, in
		// order. Its length is at most Settings.Buffer.
		window []*message
		// waiting has the entries to deliver, in this order.
		waiting []*message
		// room is closed and replaced when the window shrinks. The reader waits
		// for it.
		room chan struct{}
		// read is the cursor after the last entry read.
		read Cursor
		// checkpointed is the latest written checkpoint.
		checkpointed Cursor
		// settledSince is the number of entries settled since that checkpoint.
		settledSince int
		// checkpointedAt is when that checkpoint was written, or the group
		// loaded.
		checkpointedAt time.Time
		// toPark has the messages that the persister records as parked.
		toPark []*message
		// toRelease has the messages that the persister records as no longer
		// parked.
		toRelease []*message
		// toReplay has the parked entries that the persister reads and delivers.
		toReplay []ParkedEntry
		// replaying has the parked entries that are in toReplay or were delivered
		// from it.
		replaying map[entryKey]bool
		// nextWake is when the persister's timer fires next.
		nextWake time.Time
		// total counts deliveries since the group was loaded, redeliveries
		// included.
		total int64
	}
}

// newGroup returns a group with a recorded state. It starts no goroutine. The
// error is that of Config.CompileFilter.
func newGroup(g *Groups, k groupState) (*Group, error) {
	group := &Group{groups: g, key: k.def.QualifiedName, created: k.created, wake: make(chan struct{}, 1), stop: make(chan struct{})}
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
func (g *Group) Key() QualifiedName { return g.key }

// length returns the length of the stream that records the group. The next
// append to this stream names that length.
func (g *Group) length() events.Revision {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.length
}

// startLocked starts the reader and the persister, once. The reader's context
// ends when the persister does.
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
// goroutines. The persister makes one last round, which writes the checkpoint,
// before it ends.
func (g *Group) close(why error) {
	g.mu.Lock()
	g.endLocked(why)
	g.mu.Unlock()
	g.goroutines.Wait()
}

// fail ends the group with ErrStopped, which wraps err, an error of the store.
// It does not join the goroutines, because they call fail.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endLocked(fmt.Errorf("%w: %w", ErrStopped, err))
}

// endLocked ends the group and its consumers with a reason, and stops the
// goroutines. Only the first call has an effect.
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

// readAll is the reader: it reads the entries after a cursor until ctx ends. An
// error of the store ends the group.
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

// take adds an entry to the waiting messages and to the window, the messages
// read so far from the oldest unsettled one on. While the window is full, take
// waits without holding mu; if ctx ends first, it returns the cause of ctx.
//
// The group does not deliver an entry that its filter excludes, an entry of a
// stream that records a group, or an entry that is already parked. For such an
// entry take only moves the progress of the group.
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

// advanceLocked removes settled entries from the front of the window, which moves
// done, and wakes the reader. If the window is empty, all entries read are
// settled, and done is the last of them. It wakes the persister if a checkpoint
// may be due.
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

// wakePersister makes the persister run, now or after its current round. It never
// blocks.
func (g *Group) wakePersister() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// settleLocked settles a message that a consumer acknowledged. The entry of a
// replayed message stays recorded as parked until the persister has recorded an
// EntryReleased. The caller has removed the message from its consumer.
func (g *Group) settleLocked(m *message) {
	m.settled, m.holder = true, nil
	if m.replayed {
		g.mu.toRelease = append(g.mu.toRelease, m)
		g.wakePersister()
		return
	}
	g.advanceLocked()
}

// retryLocked puts a message at the front of the waiting messages for another
// delivery. If it was retried MaxRetries times, retryLocked parks it instead.
// The caller has removed the message from its consumer, and must call
// dispatchLocked afterwards.
func (g *Group) retryLocked(m *message, reason string) {
	if m.retries >= g.mu.def.Settings.MaxRetries {
		g.parkLocked(m, fmt.Sprintf("tried %d times: %s", m.retries+1, reason))
		return
	}
	m.retries++
	m.holder = nil
	g.mu.waiting = slices.Insert(g.mu.waiting, 0, m)
}

// parkLocked queues a message for parking. The message is settled when the
// persister has recorded it as parked, and until then no checkpoint moves past
// it. A replayed message is already recorded as parked, with its earlier
// reason; parkLocked only makes it available to a later Replay.
func (g *Group) parkLocked(m *message, reason string) {
	m.holder, m.reason = nil, reason
	if m.replayed { // already recorded as parked
		delete(g.mu.replaying, m.key())
		return
	}
	g.mu.toPark = append(g.mu.toPark, m)
	g.wakePersister()
}

// dispatchLocked delivers waiting messages, in order, to consumers with free
// capacity. It stops at the first message that no consumer can take. With a
// pinned strategy it continues after such a message, so that a full consumer
// does not hold up the messages of other consumers. A pinned strategy computes
// one hash for each pair of a waiting message and a consumer.
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
	GroupConfig
	// Ended is why the group ended. Nil: it runs.
	Ended error
	// Consumers are in the order in which they joined.
	Consumers []ConsumerStats
	// Read is the cursor after the last entry read.
	Read Cursor
	// Saved is the latest written checkpoint.
	Saved Cursor
	// Total is the number of deliveries since the group was loaded.
	Total int64
	// Waiting is the number of entries to deliver.
	Waiting int
	// Retried is the number of waiting entries that were delivered before.
	Retried int
	// InFlight is the number of delivered entries that no consumer has answered.
	InFlight int
	// Parked is the number of parked entries that are not being replayed.
	Parked int
}

// Stats returns the state of the group, also after it has ended. It takes time in
// proportion to the waiting messages.
func (g *Group) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stats{
		GroupConfig: g.mu.def, Ended: g.mu.ended, Read: g.mu.read, Saved: g.mu.checkpointed, Total: g.mu.total,
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
