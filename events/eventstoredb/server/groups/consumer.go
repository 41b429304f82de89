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

// A ConsumerConfig describes a consumer that joins a group.
type ConsumerConfig struct {
	Capacity int    // maximal number of unacknowledged entries; below 1: 1
	From     string // its network address
	User     string // its user name
	Name     string // the name that it gives its connection
}

// A Consumer receives entries from a group. Next must be called by one
// goroutine at a time; the other methods may be called by any.
type Consumer struct {
	ConsumerConfig
	group *Group
	id    string
	// The group's mu guards the other fields.
	ready    chan struct{}                 // signals Next that queue grew or the consumer ended
	queue    []queuedMessage               // deliveries that Next has not returned
	inFlight map[domain.EventID][]*message // unanswered deliveries
	count    int                           // messages in inFlight
	total    int64
	ended    error // why it ended; nil: it runs
}

// A queuedMessage is a delivery that Next has not returned yet. It is stale if
// the message has another holder or another number of retries.
type queuedMessage struct {
	*message
	attempt int
}

// A Delivery is an entry that a group delivers to a consumer.
type Delivery struct {
	events.Entry
	Retries int // number of earlier deliveries that were retried
}

// Join adds a consumer. ErrFull reports that the group has as many consumers as
// its settings allow. The caller calls Leave when the consumer is done.
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

// ID returns the ID of the consumer, which is unique in this process.
func (c *Consumer) ID() string { return c.id }

// Leave ends the consumer. The group delivers its unacknowledged entries to
// other consumers, in order and before other waiting entries.
func (c *Consumer) Leave() { c.leave(ErrStopped) }

// leave ends the consumer with a reason and returns its messages to the group.
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

// endLocked makes Next return a reason. Only the first call has an effect.
func (c *Consumer) endLocked(why error) {
	if c.ended == nil {
		c.ended = why
		c.signal()
	}
}

// signal wakes Next.
func (c *Consumer) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// Next returns the next delivery. It waits until the group delivers an entry,
// the consumer ends, or ctx ends, whose cause it returns.
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

// pop returns the first delivery in the queue that is not stale, if there is
// one.
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

// A NackAction is the treatment of an entry that a consumer rejects. The
// zero NackAction is invalid.
type NackAction int

// The actions.
const (
	Retry NackAction = iota + 1 // deliver the entry again
	Park                        // park the entry
	Skip                        // settle the entry
	Stop                        // end the consumer, and deliver its entries to others
)

// Ack acknowledges entries. It ignores IDs of entries that the consumer does
// not hold.
func (c *Consumer) Ack(ids ...domain.EventID) {
	c.takeEach(ids, func(m *message) { c.group.settleLocked(m) })
}

// Nack rejects entries. It ignores IDs of entries that the consumer does not
// hold. Nack may reorder ids.
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

// takeEach removes the messages with some IDs from the consumer, and calls do
// for each.
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

// removeLocked removes a message from the consumer.
func (c *Consumer) removeLocked(m *message) {
	id := m.entry.ID
	c.inFlight[id] = slices.DeleteFunc(c.inFlight[id], func(other *message) bool { return other == m })
	if len(c.inFlight[id]) == 0 {
		delete(c.inFlight, id)
	}
	c.count--
}

// deliverLocked delivers a message to the consumer.
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
// out, latest position first, so that retrying them one by one restores their
// order. It lowers next to the time until the next timeout.
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

// chooseLocked returns the consumer for an entry by the group's strategy, or
// nil if no consumer for it has free capacity.
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

// pinnedLocked returns the consumer for a pinning key, or nil if it has no free
// capacity. It uses rendezvous hashing: when a consumer joins or leaves, few
// keys change their consumer.
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

// correlation returns the $correlationId in an entry's metadata, or else the
// entry's stream.
func correlation(e events.Entry) string {
	var metadata struct {
		Correlation string `json:"$correlationId"`
	}
	if json.Unmarshal(e.Metadata, &metadata) == nil && metadata.Correlation != "" {
		return metadata.Correlation
	}
	return string(e.Stream)
}

// ConsumerStats describes the state of a consumer.
type ConsumerStats struct {
	ConsumerConfig
	ID       string
	Total    int64 // deliveries
	InFlight int   // unanswered deliveries
}

// statsLocked returns the state of the consumer.
func (c *Consumer) statsLocked() ConsumerStats {
	return ConsumerStats{ConsumerConfig: c.ConsumerConfig, ID: c.id, Total: c.total, InFlight: c.count}
}
