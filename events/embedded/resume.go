package embedded

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// roomName is the file that a paused store writes and removes, to test for room on
// the disk.
const roomName = "room.new"

// errStopped is the error of every operation after a failure that does not pass.
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

// resumeLoop waits until the store is paused, then tests for room every few seconds
// and calls resume until it succeeds. It ends when the store closes or stops for
// good.
func (s *Store) resumeLoop() {
	for {
		select {
		case <-s.failStop.Stopped():
		case <-s.closing:
			return
		}
		s.failStop.Log(slog.LevelWarn, fmt.Sprint(s.failure()))
		if !pebblefiles.AwaitRoom(s.failStop.Lost(), s.closing, s.room, s.resume) {
			return
		}
		s.failStop.Log(slog.LevelInfo, "the store goes on")
	}
}

// room returns nil if the disk and the open-files limit allow reopening the database.
func (s *Store) room() error {
	return pebblefiles.Room(s.folder.FS, s.folder.PathOf(storedir.LogName), s.folder.PathOf(roomName))
}

// resume closes and reopens the database and reports whether the store takes writes
// again. It holds gate and mu, so no group is in flight and no reader uses the
// database.
//
// Pebble cannot continue after a failed write. Reopening replays the log as after a
// kill, so each append in flight is kept or dropped as a whole. If reopening fails,
// resume tries to open the database read-only, so that reads work while the store
// stays paused.
func (s *Store) resume() bool {
	s.gate.Lock()
	defer s.gate.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failStop.Wait() // a sync may fail yet
	if s.mu.closed || isClosed(s.failStop.Lost()) {
		return false
	}
	s.closeDatabase()
	if isClosed(s.failStop.Lost()) {
		return false
	}
	s.folder.Before = storedir.OwnerRecord{Durability: s.durability.String()}
	err := s.reopen(false)
	if err == nil {
		err = s.refreshEnd()
	}
	if err != nil && s.failStop.Err() == nil {
		s.failStop.Pause(err)
	}
	cause := s.failStop.Err()
	if cause == nil {
		return true
	}
	if !isClosed(s.failStop.Lost()) { // reads continue; after a lasting failure, with the database as it is
		s.closeDatabase()
		_ = s.reopen(true) // if it fails, reads return the failure
		s.failStop.Pause(cause)
	}
	return false
}

// closeDatabase closes the database, if it is open, and drops its unwritten data. The
// caller holds gate and mu. db is nil afterwards.
func (s *Store) closeDatabase() {
	s.failStop.Closing()
	if s.db == nil {
		return
	}
	var err error
	defer s.recoverPanic(&err)
	db := s.db
	s.db = nil
	_ = db.Close() // which fails, as a write has
}

// reopen opens the database of a paused store, and sets db. After an error db is nil.
// The caller holds gate and mu.
func (s *Store) reopen(readOnly bool) (err error) {
	s.replay = pebblefiles.NewReplay(s.storage, s.torn)
	s.failStop.Reset(s.replay)
	defer s.recoverPanic(&err)
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	options := s.options(cache)
	options.ErrorIfNotExists, options.ReadOnly = true, readOnly
	if s.db, err = pebble.Open(s.folder.PathOf(storedir.LogName), options); err != nil {
		s.db = nil
		return err
	}
	s.failStop.Opened()
	s.replay.Done()
	return nil
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
