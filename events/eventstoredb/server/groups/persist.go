package groups

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

const (
	retryDelay            = time.Second      // before an append whose end is open is made again
	appendTimeout         = 10 * time.Second // for what is put on record, as callers and closing wait for it
	minCheckpointInterval = time.Second / 10 // between two marks, at least: each waits for the disk
)

// A keeping is what is to be put on record at once.
type recordBatch struct {
	records           []events.Record
	toPark, toRelease []*message
	checkpointed      *Cursor
	counted           int // settled since the mark before
}

// persistLoop puts on record what is parked and how far the group has come, and takes
// back what consumers are late with, until the group closes.
func (g *Group) persistLoop() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var open *recordBatch
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
			open = g.nextBatch(closing)
		}
		if g.write(open) {
			open = nil
			g.replayNext()
			next = min(next, g.checkpointDelay())
		} else {
			next = min(next, retryDelay)
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
		for _, m := range c.takeOverdueLocked(now, &next) {
			g.retryLocked(m, "not answered in time")
		}
	}
	g.mu.nextWake = now.Add(next)
	g.dispatchLocked()
	return next
}

// nextBatch returns what is to be put on record.
func (g *Group) nextBatch(closing bool) *recordBatch {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := &recordBatch{toPark: g.mu.toPark, toRelease: g.mu.toRelease}
	g.mu.toPark, g.mu.toRelease = nil, nil
	for _, m := range b.toPark {
		b.add(g, kindParked, m.parked())
	}
	for _, m := range b.toRelease {
		b.add(g, kindReleased, ParkedEntry{ID: m.entry.ID, Stream: m.entry.Stream, Revision: m.entry.Revision})
	}
	if g.mu.settledSince > 0 && (closing || g.untilCheckpointLocked() <= 0) {
		done := g.mu.done
		b.checkpointed, b.counted = &done, g.mu.settledSince
	}
	return b
}

func (b *recordBatch) add(g *Group, kind string, data any) {
	r, err := g.groups.record(kind, data)
	if err != nil {
		panic(fmt.Sprintf("groups: %v", err)) // of types that always encode
	}
	b.records = append(b.records, r)
}

// dueLocked returns how long it is until a mark is due, and nothing or less if
// one is.
func (g *Group) untilCheckpointLocked() time.Duration {
	s, passed := g.mu.def.Settings, g.groups.cfg.Now().Sub(g.mu.checkpointedAt)
	switch {
	case g.mu.settledSince >= s.MaxCheckpoint:
		return minCheckpointInterval - passed
	case g.mu.settledSince < s.MinCheckpoint:
		return time.Hour // it is not worth one yet
	}
	return max(s.CheckpointAfter, minCheckpointInterval) - passed
}

// markDue returns how long the keeper may sleep before it makes a mark.
func (g *Group) checkpointDelay() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.settledSince == 0 {
		return time.Hour
	}
	return max(g.untilCheckpointLocked(), time.Millisecond)
}

// write puts a keeping on record and returns whether its end is known. An error
// that is final ends the group: somebody else writes its stream, or the store
// is closed.
func (g *Group) write(b *recordBatch) bool {
	err := g.append(b)
	if err == nil {
		err = g.saveCheckpoint(b)
	}
	if isFinal(err) {
		g.fail(err)
		return true
	}
	return err == nil
}

// append puts the records of a keeping into the group's stream, once.
func (g *Group) append(b *recordBatch) error {
	if len(b.records) == 0 {
		return nil
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	if err := g.groups.append(g.key, g.length(), b.records...); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.length += events.Revision(len(b.records))
	b.records = nil
	for _, m := range b.toPark {
		g.mu.park(m.parked(), true)
		m.settled = true
	}
	for _, m := range b.toRelease {
		g.mu.park(m.parked(), false)
		delete(g.mu.replaying, m.key())
	}
	g.advanceLocked()
	g.dispatchLocked()
	return nil
}

// saveCheckpoint keeps how far the group has come, for those who come after the process.
func (g *Group) saveCheckpoint(b *recordBatch) error {
	if b.checkpointed == nil {
		return nil
	}
	data, err := json.Marshal(checkpoint{Created: g.created, Cursor: *b.checkpointed})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), appendTimeout, ErrStopped)
	defer cancel()
	checkpoints := g.groups.cfg.Checkpoints
	if err := checkpoints.SaveCheckpoint(ctx, g.key.checkpointName(), data); err != nil {
		return err
	}
	if err := checkpoints.Sync(ctx); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.checkpointed, g.mu.checkpointedAt = *b.checkpointed, g.groups.cfg.Now()
	g.mu.settledSince -= b.counted // more may have been settled meanwhile
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
	g.wakePersister()
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
	idle := g.replayableLocked()
	if most > 0 {
		idle = idle[:min(most, len(idle))]
	}
	g.mu.toReplay = append(g.mu.toReplay, idle...)
	for _, p := range idle {
		g.mu.replaying[entryKey{p.Stream, p.Revision}] = true
	}
	g.startLocked()
	g.wakePersister()
	return nil
}
