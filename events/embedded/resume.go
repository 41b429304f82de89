package embedded

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// roomName is the file in which a paused store looks for room.
const roomName = "room.new"

// errStopped is the error of every operation after a failure that does not pass.
var errStopped = errors.New("the store stopped at a failed write; opening it again tells what was kept")

// ErrPaused is the error of a write while the disk is full or the process may open no
// more files. The store resumes by itself when that is over: see [Open]. The outcome
// of an append that ends with it is open, as after any other error: the same records,
// appended again later, are added once.
var ErrPaused = errors.New("the store takes no writes while the disk is full or too many files are open, and goes on by itself afterwards")

// failure returns why the store takes no writes, as an errStopped or an ErrPaused, and
// nil if it takes them.
func (s *Store) failure() error {
	switch err, lost := s.failStop.Failure(); {
	case lost:
		return fmt.Errorf("%w: %w", errStopped, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrPaused, err)
	}
	return nil
}

// resumeLoop has a paused store go on, until the store is closed or stops for good.
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

// room returns nil if there is room to open the database again.
func (s *Store) room() error {
	return pebblefiles.Room(s.folder.fs, s.folder.path(logName), s.folder.path(roomName))
}

// resume closes the database and opens it again, and reports whether the store
// goes on. Nothing uses the database meanwhile.
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
	s.folder.before = ownerRecord{Durability: s.durability.String()}
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
	if !isClosed(s.failStop.Lost()) { // one that is lost is read as it is
		s.closeDatabase()
		_ = s.reopen(true) // without a database, reads fail with the cause
		s.failStop.Pause(cause)
	}
	return false
}

// closeDatabase gives up the database, if there is one. What it had not written
// is dropped.
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

// reopen opens the database of a paused store, to read it alone or to write as well.
func (s *Store) reopen(readOnly bool) (err error) {
	s.replay = pebblefiles.NewReplay(s.storage, s.torn)
	s.failStop.Reset(s.replay)
	defer s.recoverPanic(&err)
	cache := pebble.NewCache(cacheSize)
	defer cache.Unref()
	options := s.options(cache)
	options.ErrorIfNotExists, options.ReadOnly = true, readOnly
	if s.db, err = pebble.Open(s.folder.path(logName), options); err != nil {
		s.db = nil
		return err
	}
	s.failStop.Opened()
	s.replay.Done()
	return nil
}

// refreshEnd finds the end of a database that was opened again. Appends that were not
// answered before are seen from now on, if they are there.
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
