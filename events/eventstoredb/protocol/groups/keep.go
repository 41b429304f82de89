package groups

import (
	"context"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

const (
	patience   = time.Second      // before an append whose end is open is made again
	lastChance = 10 * time.Second // for the records of a group that closes
)

// A keeping is what is to be put on record at once.
type keeping struct {
	records           []events.Record
	parking, released []*message
	saved             *Place
}

// keep puts on record what is parked and how far the group has come, and takes
// back what consumers are late with, until the group closes.
func (g *Group) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var open *keeping
	for {
		closing := false
		select {
		case <-g.stop:
			closing = true
		case <-g.wake:
		case <-timer.C:
		}
		next := g.expire()
		if open == nil {
			open = g.gather(closing)
		}
		if !g.write(open) {
			next = patience
		} else {
			open = nil
			g.replayNext()
		}
		if closing {
			return
		}
		if due := g.checkpointDue(); due > 0 {
			next = min(next, due)
		}
		timer.Reset(next)
	}
}

// expire takes back what consumers are late with, and returns how long it is
// until the next one is.
func (g *Group) expire() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.groups.cfg.Now()
	next := time.Hour
	for _, c := range g.mu.consumers {
		for _, m := range c.lateLocked(now, &next) {
			g.againLocked(m, "not answered in time")
		}
	}
	g.mu.alarm = now.Add(next)
	g.dispatchLocked()
	return next
}

// gather returns what is to be put on record.
func (g *Group) gather(closing bool) *keeping {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := &keeping{parking: g.mu.parking, released: g.mu.releasing}
	g.mu.parking, g.mu.releasing = nil, nil
	for _, m := range k.parking {
		k.add(g, kindParked, m.parked())
	}
	for _, m := range k.released {
		k.add(g, kindReleased, Parked{ID: m.entry.ID, Stream: m.entry.Stream, Revision: m.entry.Revision})
	}
	if g.mu.since > 0 && g.mu.done != g.mu.saved && (closing || g.dueLocked() <= 0) {
		done := g.mu.done
		k.saved = &done
		k.add(g, kindCheckpointed, done)
	}
	return k
}

func (k *keeping) add(g *Group, kind string, data any) {
	r, err := g.groups.record(kind, data)
	if err != nil {
		panic(fmt.Sprintf("groups: %v", err)) // of types that always encode
	}
	k.records = append(k.records, r)
}

// dueLocked returns how long it is until a checkpoint is due, and nothing or
// less if one is.
func (g *Group) dueLocked() time.Duration {
	s := g.mu.def.Settings
	if g.mu.since >= s.MaxCheckpoint {
		return 0
	}
	due := g.mu.savedAt.Add(s.CheckpointAfter).Sub(g.groups.cfg.Now())
	if g.mu.since < s.MinCheckpoint {
		return max(due, time.Hour) // it is not worth one yet
	}
	return due
}

// checkpointDue returns how long it is until a checkpoint is due, and zero if
// there is nothing to save.
func (g *Group) checkpointDue() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.since == 0 || g.mu.done == g.mu.saved {
		return 0
	}
	return max(g.dueLocked(), time.Millisecond)
}

// write puts a keeping on record and returns whether its end is known. An error
// that is final ends the group: somebody else writes its stream, or the store
// is closed.
func (g *Group) write(k *keeping) bool {
	if len(k.records) == 0 {
		return true
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	ctx, cancel := context.WithTimeoutCause(context.Background(), lastChance, ErrStopped)
	defer cancel()
	after := g.length()
	err := g.groups.store.Append(ctx, g.key.stream(), after, k.records...)
	if final(err) {
		g.fail(err)
		return true
	}
	if err != nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.length += events.Revision(len(k.records))
	for _, m := range k.parking {
		g.mu.park(m.parked(), true)
		m.settled = true
	}
	for _, m := range k.released {
		g.mu.park(m.parked(), false)
		delete(g.mu.onWay, m.spot())
	}
	if k.saved != nil {
		g.mu.saved, g.mu.savedAt, g.mu.since = *k.saved, g.groups.cfg.Now(), 0
	}
	g.advanceLocked()
	g.dispatchLocked()
	return true
}

// update gives the group other settings.
func (g *Group) update(ctx context.Context, settings Settings) error {
	g.writing.Lock()
	defer g.writing.Unlock()
	g.mu.Lock()
	after, ended := g.mu.length, g.mu.ended
	g.mu.Unlock()
	if ended != nil {
		return ended
	}
	if err := g.groups.append(ctx, g.key, after, kindUpdated, settings); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.length++
	g.mu.def.Settings = settings
	g.dispatchLocked()
	g.nudge()
	return nil
}

// Replay hands out again what is parked, the oldest first and at most so many;
// zero: all of it. It waits for nothing.
func (g *Group) Replay(most int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.ended != nil {
		return fmt.Errorf("replay what %s parked: %w", g.key, g.mu.ended)
	}
	idle := g.idleParkedLocked()
	if most > 0 {
		idle = idle[:min(most, len(idle))]
	}
	g.mu.replays = append(g.mu.replays, idle...)
	for _, p := range idle {
		g.mu.onWay[spot{p.Stream, p.Revision}] = true
	}
	g.beginLocked()
	g.nudge()
	return nil
}
