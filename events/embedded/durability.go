package embedded

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
)

// A Durability selects when an append is acknowledged, and so which records a power cut
// can remove. The zero Durability is [Sync].
//
// Under Sync an append is acknowledged, and visible to readers, once it is on the disk.
// A power cut removes no record that was acknowledged or visible.
//
// Under [Interval] an append is acknowledged, and visible, once it is in the log's
// buffer in this process. A sync begins at most the interval later and covers all
// appends that were acknowledged before it began. If the process ends without
// [Store.Close], or the power fails, the appends acknowledged since the beginning of
// the last complete sync may be lost: whole appends, from the end of the log, of any
// stream. Their positions are then given to other records. So a program that acts on
// records outside this store reads no further than [Store.Durable], or calls
// [Store.Sync] before it acts. Checkpoints in the store are never ahead of its records.
type Durability struct{ interval time.Duration }

// Sync is the Durability under which an acknowledged append is on the disk.
func Sync() Durability { return Durability{} }

// Interval is the Durability under which a sync begins at most d after an append was
// acknowledged. If d is zero or less, it is Sync.
func Interval(d time.Duration) Durability { return Durability{max(d, 0)} }

// String returns "sync" or "interval(D)" with a duration.
// [ParseDurability] is its inverse.
func (d Durability) String() string {
	if d.interval == 0 {
		return "sync"
	}
	return "interval(" + d.interval.String() + ")"
}

// ParseDurability parses the text that [Durability.String] returns.
func ParseDurability(text string) (Durability, error) {
	if text == "sync" {
		return Sync(), nil
	}
	inner, begins := strings.CutPrefix(text, "interval(")
	inner, ends := strings.CutSuffix(inner, ")")
	d, err := time.ParseDuration(inner)
	if !begins || !ends || err != nil || d <= 0 {
		return Durability{}, fmt.Errorf("parse durability %q: it is neither sync nor interval(a duration), such as interval(50ms)", text)
	}
	return Interval(d), nil
}

// Durable returns the position of the last record known to be on the disk, and the zero
// Position if there is none. Under Sync it equals Head.
func (s *Store) Durable() events.Position {
	if s.durability.interval == 0 {
		return s.Head()
	}
	seq := s.synced.Load()
	return events.NewPosition(seq, seq)
}

// Sync waits until the earlier appends and checkpoints are on the disk: every append
// that was acknowledged, and every checkpoint that was saved, before Sync was called. It
// then returns nil. If the context ends, Sync returns the cause of the context, and the
// sync continues.
func (s *Store) Sync(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	err := s.use(func() error {
		s.joined.Go(func() { done <- s.sync() })
		return nil
	})
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("sync the store: %w", err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sync makes all records durable that are visible to readers when it begins. Under
// Interval these may still be only in the log's buffer.
func (s *Store) sync() (err error) {
	if s.pinned != nil {
		return nil
	}
	s.gate.RLock()
	defer s.gate.RUnlock()
	if err := s.failure(); err != nil {
		return err
	}
	end, _ := s.watermark.load()
	defer s.recoverPanic(&err)
	if err := s.writeError(s.db.LogData(nil, pebble.Sync)); err != nil {
		return err
	}
	for known := s.synced.Load(); known < end && !s.synced.CompareAndSwap(known, end); {
		known = s.synced.Load()
	}
	return nil
}

// wantSync asks intervalLoop to sync within the interval.
func (s *Store) wantSync() {
	select {
	case s.unsynced <- struct{}{}:
	default:
	}
}

// intervalLoop syncs once within the interval after each append. Under Sync it returns
// at once.
func (s *Store) intervalLoop() {
	if s.durability.interval == 0 {
		return
	}
	timer := time.NewTimer(s.durability.interval)
	defer timer.Stop()
	for {
		select {
		case <-s.unsynced:
		case <-s.closing:
			return
		}
		timer.Reset(s.durability.interval)
		select {
		case <-timer.C:
		case <-s.closing:
			return
		}
		_ = s.sync() // a failure stops the store
	}
}
