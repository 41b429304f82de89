package embedded

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// roomName is the file that a paused store writes and removes, to test for room on
// the disk.
const roomName = "room.new"

// errStopped is the error of every operation after a permanent failure.
var errStopped = errors.New("the store stopped at a failed write; opening it again tells what was kept")

// ErrPaused is the error of a write while the disk is full or the process has too
// many open files. The store resumes by itself when the cause is gone, as [Open]
// describes. The outcome of an append that ends with ErrPaused is unknown: append the
// same records at the same revision again later, which adds them only if the first
// append did not.
var ErrPaused = errors.New("the store takes no writes while the disk is full or too many files are open, and goes on by itself afterwards")

// failure returns an errStopped or an ErrPaused with the cause if the store takes no
// writes, and otherwise nil.
func (s *Store) failure() error {
	switch err, lost := s.failStop.Failure(); {
	case lost:
		return fmt.Errorf("%w: %w", errStopped, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrPaused, err)
	}
	return nil
}

// newResumer returns the Resumer of the store, whose Run resumes it each time that it is
// paused.
func (s *Store) newResumer() *pebblefiles.Resumer {
	return &pebblefiles.Resumer{
		FailStop:     s.failStop,
		Closing:      s.closing,
		Room:         s.room,
		Paused:       func() { s.failStop.Log(slog.LevelWarn, fmt.Sprint(s.failure())) },
		Resumed:      func() { s.failStop.Log(slog.LevelInfo, "the store goes on") },
		Exclusive:    s.exclusive,
		Close:        s.closeDatabase,
		Replay:       s.newReplay,
		Open:         func() error { return s.reopen(false) },
		OpenReadOnly: func() error { return s.reopen(true) },
		Recover:      s.refreshEnd,
	}
}

// room returns nil if the disk and the open-files limit allow reopening the database.
func (s *Store) room() error {
	return pebblefiles.Room(s.folder.FS, s.folder.PathOf(storedir.LogName), s.folder.PathOf(roomName))
}

// exclusive calls f with gate and mu held, so no group is in flight and no reader uses
// the database. It does not call f after Close.
func (s *Store) exclusive(f func()) {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.closed {
		f()
	}
}

// closeDatabase closes the database, if it is open, and drops its unwritten data. The
// caller holds gate and mu. db is nil afterwards.
func (s *Store) closeDatabase() {
	if s.db == nil {
		return
	}
	var err error
	defer s.recoverPanic(&err)
	db := s.db
	s.db = nil
	_ = db.Close() // which fails, as a write has
}

// newReplay returns a new Replay, the file system through which the database is
// opened next. Both results are this Replay.
func (s *Store) newReplay() (vfs.FS, *pebblefiles.Replay) {
	s.replay = pebblefiles.NewReplay(s.storage, s.torn)
	return s.replay, s.replay
}

// reopen opens the database of a paused store, and sets db. After an error db is nil.
// The caller holds gate and mu.
func (s *Store) reopen(readOnly bool) (err error) {
	s.folder.Before = storedir.OwnerRecord{Durability: s.durability.String()} // for torn
	defer s.recoverPanic(&err)
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	options := s.options(cache)
	options.ErrorIfNotExists, options.ReadOnly = true, readOnly
	if s.db, err = pebble.Open(s.folder.PathOf(storedir.LogName), options); err != nil {
		s.db = nil
	}
	return err
}

// refreshEnd finds the last record of a reopened database and advances the watermark
// to it. Appends that were in flight at the pause become visible if the log has them.
// It empties the length cache, whose lengths include appends that may be lost. It
// returns ErrDamaged if a record that readers have seen is missing.
func (s *Store) refreshEnd() (err error) {
	defer s.recoverPanic(&err)
	end, err := s.lastSequence()
	if err != nil || s.failStop.Err() != nil {
		return err
	}
	seen, _ := s.watermark.load()
	if end < seen {
		return fmt.Errorf("%w: the records at positions %d to %d were seen, and are missing", events.ErrDamaged, end+1, seen)
	}
	s.lengthCache, s.end = lengthCache{}, end
	s.synced.Store(end)
	s.written.Store(true)
	if end > seen {
		s.watermark.advance(end, nil)
	}
	return nil
}
