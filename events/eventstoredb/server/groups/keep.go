package groups

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

const (
	patience   = time.Second      // before an append whose end is open is made again
	lastChance = 10 * time.Second // for what is put on record, as callers and closing wait for it
	pace       = time.Second / 10 // between two marks, at least: each waits for the disk
)

// A keeping is what is to be put on record at once.
type keeping struct {
	records           []events.Record
	parking, released []*message
	saved             *Place
	counted           int // settled since the mark before
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
		if g.write(open) {
			open = nil
			g.replayNext()
			next = min(next, g.markDue())
		} else {
			next = min(next, patience)
		}
		if closing {
			return
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
	if g.mu.since > 0 && (closing || g.dueLocked() <= 0) {
		done := g.mu.done
		k.saved, k.counted = &done, g.mu.since
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

// dueLocked returns how long it is until a mark is due, and nothing or less if
// one is.
func (g *Group) dueLocked() time.Duration {
	s, passed := g.mu.def.Settings, g.groups.cfg.Now().Sub(g.mu.savedAt)
	switch {
	case g.mu.since >= s.MaxCheckpoint:
		return pace - passed
	case g.mu.since < s.MinCheckpoint:
		return time.Hour // it is not worth one yet
	}
	return max(s.CheckpointAfter, pace) - passed
}

// markDue returns how long the keeper may sleep before it makes a mark.
func (g *Group) markDue() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.since == 0 {
		return time.Hour
	}
	return max(g.dueLocked(), time.Millisecond)
}

// write puts a keeping on record and returns whether its end is known. An error
// that is final ends the group: somebody else writes its stream, or the store
// is closed.
func (g *Group) write(k *keeping) bool {
	err := g.append(k)
	if err == nil {
		err = g.save(k)
	}
	if final(err) {
		g.fail(err)
		return true
	}
	return err == nil
}

// append puts the records of a keeping into the group's stream, once.
func (g *Group) append(k *keeping) error {
	if len(k.records) == 0 {
		return nil
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	if err := g.groups.append(g.key, g.length(), k.records...); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.length += events.Revision(len(k.records))
	k.records = nil
	for _, m := range k.parking {
		g.mu.park(m.parked(), true)
		m.settled = true
	}
	for _, m := range k.released {
		g.mu.park(m.parked(), false)
		delete(g.mu.onWay, m.spot())
	}
	g.advanceLocked()
	g.dispatchLocked()
	return nil
}

// save keeps how far the group has come, for those who come after the process.
func (g *Group) save(k *keeping) error {
	if k.saved == nil {
		return nil
	}
	text, err := json.Marshal(mark{Created: g.created, Place: *k.saved})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), lastChance, ErrStopped)
	defer cancel()
	kept := g.groups.cfg.Checkpoints
	if err := kept.SaveCheckpoint(ctx, g.key.mark(), text); err != nil {
		return err
	}
	if err := kept.Sync(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.saved, g.mu.savedAt = *k.saved, g.groups.cfg.Now()
	g.mu.since -= k.counted // more may have been settled meanwhile
	return nil
}

// update gives the group other settings.
func (g *Group) update(settings Settings) error {
	r, err := g.groups.record(kindUpdated, settings)
	if err != nil {
		return err
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	g.mu.Lock()
	after, ended := g.mu.length, g.mu.ended
	g.mu.Unlock()
	if ended != nil {
		return ended
	}
	if err := g.groups.append(g.key, after, r); err != nil {
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
