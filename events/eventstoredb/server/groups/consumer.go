package groups

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// A ConsumerConfig describes a consumer that joins a group. All but Capacity is
// for display.
type ConsumerConfig struct {
	Capacity int    // maximal number of unacknowledged entries; below 1: 1
	From     string // its network address
	User     string // its user name
	Name     string // the name that it gives its connection
}

// A Consumer receives entries from a group. One goroutine at a time may call
// Next; any goroutine may call the other methods.
type Consumer struct {
	ConsumerConfig
	group *Group
	// id is random. It is the consumer's half of the hash of pinned strategies.
	id string
	// The group's mu guards the other fields.
	// ready signals Next that queue grew or the consumer ended. It has room for
	// one signal.
	ready chan struct{}
	// queue has the deliveries that Next has not returned.
	queue []queuedMessage
	// inFlight has the unanswered deliveries, by event ID, including the
	// deliveries in queue. Several streams may have events with the same ID.
	inFlight map[domain.EventID][]*message
	// count is the number of messages in inFlight. It is at most Capacity.
	count int
	// total is the number of deliveries, redeliveries included.
	total int64
	// ended is why the consumer ended. Nil: it runs.
	ended error
}

// A queuedMessage is a delivery that Next has not returned yet. The delivery is
// stale if its message timed out while it was in the queue: the consumer then
// no longer holds the message, or the number of retries of the message is no
// longer attempt.
type queuedMessage struct {
	*message
	attempt int
}

// A Delivery is an entry that a group delivers to a consumer. The consumer
// answers it with Ack or Nack before the group's MessageTimeout.
type Delivery struct {
	events.Entry
	Retries int // number of earlier deliveries that were retried
}

// Join adds a consumer to the group. The first Join also starts the group's
// goroutines, unless a Replay has. ErrFull reports that the group has as many
// consumers as its settings allow. If the group has ended, Join returns the
// reason. The caller calls Leave when the consumer is done.
func (g *Group) Join(j ConsumerConfig) (*Consumer, error) {
	j.Capacity = max(j.Capacity, 1)
	c := &Consumer{ConsumerConfig: j, group: g, id: rand.Text(), ready: make(chan struct{}, 1), inFlight: map[domain.EventID][]*message{}}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch most := g.mu.def.Settings.MaxConsumers; {
	case g.mu.ended != nil:
		return nil, fmt.Errorf("join group %s: %w", g.key, g.mu.ended)
	case most > 0 && len(g.mu.consumers) >= most:
		return nil, fmt.Errorf("join group %s: %w: %d", g.key, ErrFull, most)
	}
	g.mu.consumers = append(g.mu.consumers, c)
	g.startLocked()
	g.dispatchLocked()
	return c, nil
}

// ID returns the ID of the consumer: random text, unique in practice.
func (c *Consumer) ID() string { return c.id }

// Leave ends the consumer. The group delivers its unacknowledged entries to other
// consumers, in order and before other waiting entries. These deliveries do not
// count as retries. Leave may be called again.
func (c *Consumer) Leave() { c.leave(ErrStopped) }

// leave ends the consumer for the reason why. It returns the consumer's
// messages to the front of the group's waiting messages, ordered by position.
func (c *Consumer) leave(why error) {
	g := c.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.ended != nil {
		return
	}
	c.endLocked(why)
	g.mu.consumers = slices.DeleteFunc(g.mu.consumers, func(other *Consumer) bool { return other == c })
	var returned []*message
	for _, held := range c.inFlight {
		returned = append(returned, held...)
	}
	c.inFlight, c.count, c.queue = nil, 0, nil
	slices.SortFunc(returned, func(a, b *message) int { return a.entry.Position.Compare(b.entry.Position) })
	for _, m := range returned {
		m.holder = nil
	}
	g.mu.waiting = slices.Insert(g.mu.waiting, 0, returned...)
	g.dispatchLocked()
}

// endLocked ends the consumer, so that Next returns the reason why. Only the
// first call has an effect. The caller holds the group's mu.
func (c *Consumer) endLocked(why error) {
	if c.ended == nil {
		c.ended = why
		c.signal()
	}
}

// signal wakes Next. It never blocks: one pending signal suffices, since Next
// reads the whole state.
func (c *Consumer) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// Next returns the next delivery, and waits until the group delivers an entry.
// If ctx ends first, Next returns its cause. After Leave, or after the group
// has ended, it returns the reason.
func (c *Consumer) Next(ctx context.Context) (Delivery, error) {
	for {
		if d, ok, err := c.pop(); ok || err != nil {
			return d, err
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			return Delivery{}, context.Cause(ctx)
		}
	}
}

// pop returns the first delivery in the queue that is not stale, and true. It
// removes stale deliveries, which another consumer or a later retry has
// replaced. If no delivery is left, it returns false, and the reason if the
// consumer has ended.
func (c *Consumer) pop() (Delivery, bool, error) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	if c.ended != nil {
		return Delivery{}, false, c.ended
	}
	for len(c.queue) > 0 {
		h := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		if h.holder == c && h.retries == h.attempt {
			return Delivery{Entry: h.entry, Retries: h.retries}, true, nil
		}
	}
	return Delivery{}, false, nil
}

// A NackAction is the treatment of an entry that a consumer rejects. Nack
// treats the zero NackAction and unknown ones as Park.
type NackAction int

// The actions.
const (
	// Retry delivers the entry again, or parks it after MaxRetries redeliveries.
	Retry NackAction = iota + 1
	// Park parks the entry: it is recorded as a dead letter.
	Park
	// Skip settles the entry, as an acknowledgement does.
	Skip
	// Stop ends the consumer and delivers its entries to others.
	Stop
)

// Ack acknowledges entries. It ignores IDs of entries that the consumer does not
// hold, for example because their delivery has timed out. The acknowledgement is
// durable with the next checkpoint.
func (c *Consumer) Ack(ids ...domain.EventID) {
	c.takeEach(ids, func(m *message) { c.group.settleLocked(m) })
}

// Nack rejects entries with a reason, which a parked entry keeps. It ignores IDs
// of entries that the consumer does not hold. Nack may reorder ids.
func (c *Consumer) Nack(a NackAction, reason string, ids ...domain.EventID) {
	switch a {
	case Retry:
		slices.Reverse(ids) // each retry goes before the waiting entries
		c.takeEach(ids, func(m *message) { c.group.retryLocked(m, reason) })
	case Skip:
		c.Ack(ids...)
	case Stop:
		c.leave(fmt.Errorf("%w: the consumer requested it: %s", ErrStopped, reason))
	default:
		c.takeEach(ids, func(m *message) { c.group.parkLocked(m, reason) })
	}
}

// takeEach removes the messages with the given IDs from the consumer, calls do
// for each with mu held, and then dispatches waiting messages. If the consumer
// holds several messages with one ID, takeEach removes the one that was
// delivered first.
func (c *Consumer) takeEach(ids []domain.EventID, do func(*message)) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	for _, id := range ids {
		if held := c.inFlight[id]; len(held) > 0 {
			m := held[0]
			c.removeLocked(m)
			do(m)
		}
	}
	c.group.dispatchLocked()
}

// removeLocked removes a message from the consumer's unanswered deliveries. If
// the message is also in queue, Next skips it there after the message was
// retried or another consumer holds it.
func (c *Consumer) removeLocked(m *message) {
	id := m.entry.ID
	c.inFlight[id] = slices.DeleteFunc(c.inFlight[id], func(other *message) bool { return other == m })
	if len(c.inFlight[id]) == 0 {
		delete(c.inFlight, id)
	}
	c.count--
}

// deliverLocked assigns a message to the consumer, queues it for Next, and sets
// the time when the delivery times out. If the persister would wake only after
// that time, deliverLocked wakes it now.
func (c *Consumer) deliverLocked(m *message) {
	m.holder = c
	m.due = time.Time{}
	if timeout := c.group.mu.def.Settings.MessageTimeout; timeout > 0 {
		m.due = c.group.groups.cfg.Now().Add(timeout)
		if m.due.Before(c.group.mu.nextWake) {
			c.group.wakePersister()
		}
	}
	c.inFlight[m.entry.ID] = append(c.inFlight[m.entry.ID], m)
	c.count++
	c.total++
	c.group.mu.total++
	c.queue = append(c.queue, queuedMessage{m, m.retries})
	c.signal()
}

// takeOverdueLocked removes and returns the messages whose delivery has timed
// out at the time now. The message with the latest position comes first, so
// that retrying the messages one by one restores their order. If the time until
// the consumer's next timeout is less than *next, takeOverdueLocked stores it
// in *next.
func (c *Consumer) takeOverdueLocked(now time.Time, next *time.Duration) (overdue []*message) {
	for _, held := range c.inFlight {
		for _, m := range held {
			switch {
			case m.due.IsZero():
			case m.due.After(now):
				*next = min(*next, m.due.Sub(now))
			default:
				overdue = append(overdue, m)
			}
		}
	}
	for _, m := range overdue {
		c.removeLocked(m)
	}
	slices.SortFunc(overdue, func(a, b *message) int { return b.entry.Position.Compare(a.entry.Position) })
	return overdue
}

// chooseLocked returns the consumer that the group's strategy chooses for an
// entry, or nil if no consumer that may receive it has free capacity. It does
// not change the consumer. The strategy RoundRobin advances nextConsumer.
func (g *Group) chooseLocked(e events.Entry) *Consumer {
	switch g.mu.def.Settings.Strategy {
	case Pinned:
		return g.pinnedLocked(string(e.Stream))
	case PinnedByCorrelation:
		return g.pinnedLocked(correlation(e))
	case DispatchToSingle:
		for _, c := range g.mu.consumers {
			if c.count < c.Capacity {
				return c
			}
		}
		return nil
	}
	for range g.mu.consumers {
		c := g.mu.consumers[g.mu.nextConsumer%len(g.mu.consumers)]
		g.mu.nextConsumer++
		if c.count < c.Capacity {
			return c
		}
	}
	return nil
}

// pinnedLocked returns the consumer for a pinning key, the argument text, or
// nil if that consumer has no free capacity. It uses rendezvous hashing: it
// chooses the consumer whose ID and the key have the largest hash. A consumer
// that joins takes over a share of the keys of each other consumer. When a
// consumer leaves, only the keys of that consumer move.
func (g *Group) pinnedLocked(text string) (best *Consumer) {
	var most uint64
	for _, c := range g.mu.consumers {
		h := fnv.New64a()
		h.Write([]byte(c.id))
		h.Write([]byte(text))
		if sum := h.Sum64(); best == nil || sum > most {
			best, most = c, sum
		}
	}
	if best == nil || best.count >= best.Capacity {
		return nil
	}
	return best
}

// correlation returns the $correlationId in an entry's metadata, or the entry's
// stream if the metadata lack it or are not JSON.
func correlation(e events.Entry) string {
	var metadata struct {
		Correlation string `json:"$correlationId"`
	}
	if json.Unmarshal(e.Metadata, &metadata) == nil && metadata.Correlation != "" {
		return metadata.Correlation
	}
	return string(e.Stream)
}

// ConsumerStats describes the state of a consumer at one moment.
type ConsumerStats struct {
	ConsumerConfig
	ID       string
	Total    int64 // deliveries
	InFlight int   // unanswered deliveries
}

// statsLocked returns the state of the consumer. The caller holds the group's mu.
func (c *Consumer) statsLocked() ConsumerStats {
	return ConsumerStats{ConsumerConfig: c.ConsumerConfig, ID: c.id, Total: c.total, InFlight: c.count}
}
