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
	place    Place     // behind it
	retries  int       // how often it was tried again
	holder   *Consumer // who has it; nil: it waits, is being parked or is settled
	due      time.Time // when its holder is late; zero: never
	settled  bool
	replayed bool   // it is on record as parked
	reason   string // why it is being parked
}

func (m *message) parked() Parked {
	return Parked{ID: m.entry.ID, Stream: m.entry.Stream, Revision: m.entry.Revision, Reason: m.reason}
}

func (m *message) spot() spot { return spot{m.entry.Stream, m.entry.Revision} }

// A Group hands the entries that it reads to consumers. It begins to read when
// the first one joins.
type Group struct {
	groups  *Groups
	key     Key
	created domain.EventID
	admits  func(events.Header) bool
	wake    chan struct{}  // tells the keeper that there is something to do
	stop    chan struct{}  // closed when the group closes
	joined  sync.WaitGroup // the reader and the keeper
	// What is appended to the group's stream is appended under this lock, which
	// is taken before mu.
	writing sync.Mutex
	mu      struct {
		sync.Mutex
		known
		begun     bool
		ended     error // why it ended
		consumers []*Consumer
		turn      int           // whose turn it is, of RoundRobin
		window    []*message    // what was read, from the oldest that is not settled
		waiting   []*message    // to be handed out, in this order
		room      chan struct{} // closed when the window shrinks
		read      Place         // behind what was read last
		saved     Place         // that is on record
		since     int           // settled since then
		savedAt   time.Time
		parking   []*message    // to be put on record as parked
		releasing []*message    // to be put on record as no longer parked
		replays   []Parked      // to be read and handed out again
		onWay     map[spot]bool // what is parked and in replays, or handed out from there
		alarm     time.Time     // when the keeper wakes at the latest
		total     int64         // handed out
	}
}

func newGroup(g *Groups, k known) (*Group, error) {
	group := &Group{groups: g, key: k.def.Key, created: k.created, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	group.admits = func(events.Header) bool { return true }
	if k.def.Filter != nil {
		var err error
		if group.admits, err = g.cfg.Admits(*k.def.Filter); err != nil {
			return nil, err
		}
	}
	group.mu.known = k
	group.mu.read, group.mu.saved, group.mu.savedAt = k.done, k.done, g.cfg.Now()
	group.mu.room = make(chan struct{})
	group.mu.onWay = map[spot]bool{}
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
func (g *Group) beginLocked() {
	if g.mu.begun {
		return
	}
	g.mu.begun = true
	ctx, cancel := context.WithCancelCause(context.Background())
	after := g.mu.done
	g.joined.Go(func() { g.readAll(ctx, after) })
	g.joined.Go(func() {
		defer cancel(ErrStopped)
		g.keep()
	})
}

// close ends the group, its goroutines and its consumers.
func (g *Group) close(why error) {
	g.mu.Lock()
	g.endLocked(why)
	g.mu.Unlock()
	g.joined.Wait()
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
func (g *Group) readAll(ctx context.Context, after Place) {
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
	m := &message{entry: e, place: placeOf(g.key.Source, e.Header())}
	wanted := e.Stream.Category() != Category && g.admits(e.Header())
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
	g.mu.read = m.place
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
	n, before := 0, g.mu.since
	for n < len(g.mu.window) && g.mu.window[n].settled {
		g.mu.done = g.mu.window[n].place
		n++
	}
	if g.mu.since += n; n > 0 {
		g.mu.window = slices.Delete(g.mu.window, 0, n)
		close(g.mu.room)
		g.mu.room = make(chan struct{})
	}
	if len(g.mu.window) == 0 && g.mu.done != g.mu.read {
		g.mu.done = g.mu.read
		g.mu.since += 1 - min(n, 1) // what was passed over is worth a mark too
	}
	s := g.mu.def.Settings
	worth := max(s.MinCheckpoint, 1)
	if before < worth && g.mu.since >= worth || g.mu.since >= s.MaxCheckpoint || len(g.mu.replays) > 0 {
		g.nudge()
	}
}

// nudge wakes the keeper.
func (g *Group) nudge() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// settleLocked is done with a message.
func (g *Group) settleLocked(m *message) {
	m.settled, m.holder = true, nil
	if m.replayed {
		g.mu.releasing = append(g.mu.releasing, m)
		g.nudge()
		return
	}
	g.advanceLocked()
}

// againLocked hands a message out again, unless that was done too often.
func (g *Group) againLocked(m *message, reason string) {
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
		delete(g.mu.onWay, m.spot())
		return
	}
	g.mu.parking = append(g.mu.parking, m)
	g.nudge()
}

// dispatchLocked hands out what waits, as far as there are consumers with room.
func (g *Group) dispatchLocked() {
	pinned := g.mu.def.Settings.Strategy == Pinned || g.mu.def.Settings.Strategy == PinnedByCorrelation
	handed := 0
	for handed < len(g.mu.waiting) {
		c := g.chooseLocked(g.mu.waiting[handed].entry)
		if c == nil {
			break
		}
		c.handLocked(g.mu.waiting[handed])
		handed++
	}
	g.mu.waiting = slices.Delete(g.mu.waiting, 0, handed)
	if !pinned {
		return
	}
	g.mu.waiting = slices.DeleteFunc(g.mu.waiting, func(m *message) bool {
		c := g.chooseLocked(m.entry)
		if c != nil {
			c.handLocked(m)
		}
		return c != nil
	})
}

// A Stand is how a group stands.
type Stand struct {
	Definition
	Ended     error // nil: it goes on
	Consumers []ConsumerStand
	Read      Place // behind what was read last
	Saved     Place // behind what is settled, on record
	Total     int64 // entries handed out
	Waiting   int   // to be handed out
	Retried   int   // of those, again
	InHand    int   // of consumers
	Parked    int
}

// Stand returns how the group stands.
func (g *Group) Stand() Stand {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Stand{
		Definition: g.mu.def, Ended: g.mu.ended, Read: g.mu.read, Saved: g.mu.saved, Total: g.mu.total,
		Waiting: len(g.mu.waiting), Parked: len(g.mu.known.parked) - len(g.mu.onWay),
	}
	for _, m := range g.mu.waiting {
		if m.retries > 0 {
			s.Retried++
		}
	}
	for _, c := range g.mu.consumers {
		s.Consumers = append(s.Consumers, c.standLocked())
		s.InHand += c.count
	}
	return s
}
