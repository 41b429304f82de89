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

// A Joining says who joins a group.
type ConsumerConfig struct {
	Capacity int    // how many entries it has in hand at most; less than one: one
	From     string // its address
	User     string
	Name     string // of its connection, as it says
}

// A Consumer is handed entries by a group. One goroutine calls Next.
type Consumer struct {
	ConsumerConfig
	group *Group
	id    string
	// The lock of the group guards the rest.
	ready    chan struct{} // tells Next that queue grew or the consumer ended
	queue    []queuedMessage
	inFlight map[domain.EventID][]*message
	count    int // in hand
	total    int64
	ended    error
}

// A handed is a message that Next has not returned yet. It was taken back if
// its holder or its number of retries is another.
type queuedMessage struct {
	*message
	attempt int
}

// A Delivery is an entry that a consumer is handed.
type Delivery struct {
	events.Entry
	Retries int // how often it was tried before
}

// Join adds a consumer. A group that has enough is ErrFull.
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

// ID names the consumer among those of this process.
func (c *Consumer) ID() string { return c.id }

// Leave ends the consumer. What it has in hand is handed to others.
func (c *Consumer) Leave() { c.leave(ErrStopped) }

func (c *Consumer) leave(why error) {
	g := c.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.ended != nil {
		return
	}
	c.endLocked(why)
	g.mu.consumers = slices.DeleteFunc(g.mu.consumers, func(other *Consumer) bool { return other == c })
	var back []*message
	for _, held := range c.inFlight {
		back = append(back, held...)
	}
	c.inFlight, c.count, c.queue = nil, 0, nil
	slices.SortFunc(back, func(a, b *message) int { return a.entry.Position.Compare(b.entry.Position) })
	for _, m := range back {
		m.holder = nil
	}
	g.mu.waiting = slices.Insert(g.mu.waiting, 0, back...)
	g.dispatchLocked()
}

func (c *Consumer) endLocked(why error) {
	if c.ended == nil {
		c.ended = why
		c.signal()
	}
}

func (c *Consumer) signal() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// Next returns the next entry that the consumer is handed. It waits for one
// until the context ends, which yields its cause, or the consumer does.
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

// An Answer says what is to be done with an entry that a consumer does not
// acknowledge. The zero Answer is not valid.
type NackAction int

// The answers.
const (
	Retry NackAction = iota + 1 // hand it out again
	Park                        // set it aside
	Skip                        // be done with it
	Stop                        // end the consumer, and hand it to another
)

// Ack says that the consumer has dealt with entries. One that it does not have
// in hand, any more, is passed over.
func (c *Consumer) Ack(ids ...domain.EventID) {
	c.takeEach(ids, func(m *message) { c.group.settleLocked(m) })
}

// Nack says what is to be done with entries instead. One that the consumer does
// not have in hand, any more, is passed over.
func (c *Consumer) Nack(a NackAction, reason string, ids ...domain.EventID) {
	switch a {
	case Retry:
		slices.Reverse(ids) // each goes before the others
		c.takeEach(ids, func(m *message) { c.group.retryLocked(m, reason) })
	case Skip:
		c.Ack(ids...)
	case Stop:
		c.leave(fmt.Errorf("%w: the consumer asked for that: %s", ErrStopped, reason))
	default:
		c.takeEach(ids, func(m *message) { c.group.parkLocked(m, reason) })
	}
}

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

// dropLocked takes a message out of the consumer's hand.
func (c *Consumer) removeLocked(m *message) {
	id := m.entry.ID
	c.inFlight[id] = slices.DeleteFunc(c.inFlight[id], func(other *message) bool { return other == m })
	if len(c.inFlight[id]) == 0 {
		delete(c.inFlight, id)
	}
	c.count--
}

// handLocked hands a message to the consumer.
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

// lateLocked takes out of the consumer's hand what it is late with, in the
// order in which it goes before what waits, and brings next forward to when it is
// late with another.
func (c *Consumer) takeOverdueLocked(now time.Time, next *time.Duration) (late []*message) {
	for _, held := range c.inFlight {
		for _, m := range held {
			switch {
			case m.due.IsZero():
			case m.due.After(now):
				*next = min(*next, m.due.Sub(now))
			default:
				late = append(late, m)
			}
		}
	}
	for _, m := range late {
		c.removeLocked(m)
	}
	slices.SortFunc(late, func(a, b *message) int { return b.entry.Position.Compare(a.entry.Position) })
	return late
}

// chooseLocked returns the consumer for an entry, or nil if it must wait.
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

// pinnedLocked returns the consumer that a text is pinned to, if it has room.
// Few texts are pinned to another when a consumer comes or goes.
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

// correlation returns what an entry's metadata say that it belongs to, and its
// stream where they say nothing.
func correlation(e events.Entry) string {
	var metadata struct {
		Correlation string `json:"$correlationId"`
	}
	if json.Unmarshal(e.Metadata, &metadata) == nil && metadata.Correlation != "" {
		return metadata.Correlation
	}
	return string(e.Stream)
}

// A ConsumerStand is how a consumer stands.
type ConsumerStats struct {
	ConsumerConfig
	ID       string
	Total    int64 // entries handed to it
	InFlight int
}

func (c *Consumer) statsLocked() ConsumerStats {
	return ConsumerStats{ConsumerConfig: c.ConsumerConfig, ID: c.id, Total: c.total, InFlight: c.count}
}
