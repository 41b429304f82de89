package embedded

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
)

// A Durability says when an append is answered, and so what a power cut can
// take. The zero Durability is [Sync].
//
// Under Sync an append is answered, and seen by readers, once it is on the
// disk. A power cut takes nothing that was answered or seen.
//
// Under [Interval] an append is answered, and seen, once it is in the log's
// buffer in this process. A sync begins at most the interval later, and covers
// all that was answered before it began. The end of the process without
// [Store.Close] takes at most what was answered since the beginning of the last
// sync that ended; so does a power cut. What it takes is the end of the log:
// whole appends, the last ones, whatever their stream. Positions that were
// taken are given out again, to other records. So one who acts on what it reads
// under Interval, beyond this store, reads no further than [Store.Durable], or
// calls [Store.Sync] before it acts. Checkpoints in the store are never ahead of
// its records.
type Durability struct{ interval time.Duration }

// Sync is the Durability of an append that is on the disk when it is answered.
func Sync() Durability { return Durability{} }

// Interval is the Durability of appends that are on the disk a while after they
// are answered. One of zero or less is Sync.
func Interval(d time.Duration) Durability { return Durability{max(d, 0)} }

// String returns sync, or interval with a duration in parentheses.
// [ParseDurability] is its inverse.
func (d Durability) String() string {
	if d.interval == 0 {
		return "sync"
	}
	return "interval(" + d.interval.String() + ")"
}

// ParseDurability is the inverse of [Durability.String].
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

// Durable returns the position of the last record that is known to be on the
// disk, and the zero Position if there is none. Under Sync it is Head.
func (s *Store) Durable() events.Position {
	if s.durability.interval == 0 {
		return s.Head()
	}
	seq := s.synced.Load()
	return events.NewPosition(seq, seq)
}

// Sync returns nil when all that was answered before the call is on the disk:
// appends, and checkpoints that were saved. One whose context ends returns its
// cause, and the sync goes on.
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

// sync makes durable what was applied before it began.
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

// wantSync has intervalLoop sync within the interval.
func (s *Store) wantSync() {
	select {
	case s.unsynced <- struct{}{}:
	default:
	}
}

// intervalLoop syncs within the interval of an append.
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
