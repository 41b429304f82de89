package groups

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/events"
)

// The times of the persister.
const (
	// retryDelay is the time between two attempts of an append that may have been
	// written.
	retryDelay = time.Second
	// appendTimeout limits appends and checkpoints, because callers and Close
	// wait for them.
	appendTimeout = 10 * time.Second
	// minCheckpointInterval is the shortest time between two checkpoints, each of
	// which waits for a sync to disk.
	minCheckpointInterval = time.Second / 10
)

// A recordBatch is the work of one round of the persister: records to append, and
// a checkpoint to write. The records keep their IDs when the round is repeated,
// so that the store recognises a repeated append.
type recordBatch struct {
	records []events.Record
	// toPark and toRelease are the messages of the records, in the same order:
	// first toPark, then toRelease.
	toPark, toRelease []*message
	// checkpointed is the cursor of the checkpoint. Nil: no checkpoint is due.
	checkpointed *Cursor
	// counted is the number of entries settled between the last checkpoint and
	// this one.
	counted int
}

// persistLoop is the persister. Until the group closes, it records parked
// entries and released ones (replayed entries that were acknowledged), writes
// checkpoints, retries deliveries that have timed out, and reads entries for
// Replay. It repeats a batch whose outcome is uncertain before it starts the
// next one, because the next append must name the length of the stream after
// this batch. When the group closes, persistLoop makes one last round, which
// also writes the checkpoint.
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

// expire retries the deliveries that have timed out, and returns the time until
// the next timeout, at most an hour.
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

// nextBatch takes the messages whose entries are to be recorded as parked or as
// released (replayed and acknowledged), and returns their records. The batch
// also has the checkpoint, if one is due or the group is closing.
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

// add adds a record to the batch. It panics if data cannot be encoded as JSON,
// which does not happen with the types of this package.
func (b *recordBatch) add(g *Group, kind string, data any) {
	r, err := g.groups.record(kind, data)
	if err != nil {
		panic(fmt.Sprintf("groups: %v", err)) // the types of this package always encode
	}
	b.records = append(b.records, r)
}

// untilCheckpointLocked returns the time until a checkpoint is due, and 0 or less
// if it is due. A checkpoint costs a sync, so there is at most one in
// minCheckpointInterval.
func (g *Group) untilCheckpointLocked() time.Duration {
	s, passed := g.mu.def.Settings, g.groups.cfg.Now().Sub(g.mu.checkpointedAt)
	switch {
	case g.mu.settledSince >= s.MaxCheckpoint:
		return minCheckpointInterval - passed
	case g.mu.settledSince < s.MinCheckpoint:
		return time.Hour // too few entries are settled
	}
	return max(s.CheckpointAfter, minCheckpointInterval) - passed
}

// checkpointDelay returns how long the persister may sleep before the next
// checkpoint, at least a millisecond.
func (g *Group) checkpointDelay() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.settledSince == 0 {
		return time.Hour
	}
	return max(g.untilCheckpointLocked(), time.Millisecond)
}

// write appends the records of a batch and writes its checkpoint. It returns
// false if the outcome is uncertain and the batch must be repeated. An error that
// a repeat cannot fix ends the group: another process appended to its stream, or
// the store is closed. write then returns true, since the batch is abandoned.
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

// append appends the records of a batch to the group's stream, and then applies
// them to the state in memory. After a success the batch has no records, so that
// a repeat of the batch only writes the checkpoint.
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

// saveCheckpoint writes the checkpoint of a batch, if it has one, and waits until
// it is durable. Writing the same checkpoint twice is harmless.
func (g *Group) saveCheckpoint(b *recordBatch) error {
	if b.checkpointed == nil {
		return nil
	}
	data, err := json.Marshal(groupCheckpoint{Created: g.created, Cursor: *b.checkpointed})
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

// update records new settings and applies them when the record is durable. If
// the group has ended, it returns the reason. The caller holds Groups.changing.
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

// Replay queues parked entries for delivery, the oldest first: at most limit
// entries, or all if limit is 0. It skips entries that are already being
// replayed, and returns before the others are delivered. If the group has
// ended, Replay returns the reason.
func (g *Group) Replay(limit int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.ended != nil {
		return fmt.Errorf("replay parked entries of %s: %w", g.key, g.mu.ended)
	}
	idle := g.replayableLocked()
	if limit > 0 {
		idle = idle[:min(limit, len(idle))]
	}
	g.mu.toReplay = append(g.mu.toReplay, idle...)
	for _, p := range idle {
		g.mu.replaying[entryKey{p.Stream, p.Revision}] = true
	}
	g.startLocked()
	g.wakePersister()
	return nil
}
