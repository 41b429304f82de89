package outputs

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// resumeLoop runs on a goroutine that Open starts and Close joins. After each failed
// write it waits for free space and resumes the store. It ends when the store is
// closed or the failure is permanent.
func (s *Store) resumeLoop() {
	for {
		select {
		case <-s.failStop.Stopped():
		case <-s.closing:
			return
		}
		if s.logger != nil {
			s.logger.Warn("outputs are not written", "outputs", s.dir, "error", s.broken())
		}
		if !pebblefiles.AwaitRoom(s.failStop.Lost(), s.closing, s.checkRoom, s.resume) {
			return
		}
		if s.logger != nil {
			s.logger.Info("outputs are written again", "outputs", s.dir)
		}
	}
}

// checkRoom returns nil if there is room to open the database again. It tests that
// with a temporary file under incoming. Sweep removes that file if a killed process
// left it.
func (s *Store) checkRoom() error { return pebblefiles.Room(s.fs, s.dir, s.incomingPath(0)) }

// resume closes and reopens the database and reports whether writes work again. It
// holds handle, so no other operation uses the database.
//
// After the reopening, the WAL decides which batches survived. Blobs that were not
// acknowledged are deleted. If the database cannot be opened for writing, resume
// opens it read-only, so that reads work until the next attempt. It increments
// generation, which makes each running Keep fail whose first chunks may be lost.
func (s *Store) resume() bool {
	s.handle.Lock()
	defer s.handle.Unlock()
	s.failStop.Wait() // a running sync may still fail and make the failure permanent
	if s.lost() {
		return false
	}
	s.closeDatabase()
	if s.lost() {
		return false
	}
	s.generation.Add(1)
	err := s.reopen(false)
	if err == nil {
		err = s.forgetUnacknowledged()
	}
	if err != nil && s.failStop.Err() == nil {
		s.failStop.Pause(err)
	}
	cause := s.failStop.Err()
	if cause == nil {
		return true
	}
	if !s.lost() { // keep serving reads until the next attempt
		s.closeDatabase()
		if s.reopen(true) != nil {
			s.closeDatabase()
		}
		s.failStop.Pause(cause)
	}
	return false
}

// failure returns the redacted failure that stopped the writes of the database, or nil.
func (s *Store) failure() error { return redact(s.failStop.Err()) }

// lost reports whether the failure is permanent, so that only a new Open recovers.
func (s *Store) lost() bool {
	_, lost := s.failStop.Failure()
	return lost
}

// closeDatabase closes the failed database, if it is open. The caller holds handle
// for writing.
func (s *Store) closeDatabase() {
	s.failStop.Closing()
	if s.handle.db != nil {
		_ = s.handle.db.Close() // it returns the earlier failure
		s.handle.db = nil
	}
}

// reopen opens the database for reading or for writing, and sets handle.db. After an
// error handle.db is nil. The caller holds handle for writing.
func (s *Store) reopen(readOnly bool) (err error) {
	s.replay = pebblefiles.NewReplay(s.fs, s.onTear)
	s.failStop.Reset(newFilledWALs(s.replay))
	options := s.options.Clone()
	options.ReadOnly = readOnly
	if s.handle.db, err = pebble.Open(s.dir, options); err != nil {
		s.handle.db = nil
		return err
	}
	s.failStop.Opened()
	s.replay.Done()
	return nil
}

// forgetUnacknowledged deletes the headers of blobs whose Keep has returned an error
// or will return one: a header may have reached the disk before the failure. It ends
// the claims of the Keeps that have returned. Sweep deletes the chunks after the next
// opening. The caller holds handle for writing.
func (s *Store) forgetUnacknowledged() error {
	s.mu.Lock()
	var refs []domain.Ref
	for ref, c := range s.mu.claims {
		if !c.durable {
			refs = append(refs, ref)
		}
	}
	s.mu.Unlock()
	for _, ref := range refs {
		_, closer, err := s.handle.db.Get(headerKey(ref))
		if err == nil {
			err = errors.Join(closer.Close(), s.handle.db.Delete(headerKey(ref), pebble.Sync), s.failure())
		}
		if err != nil && !errors.Is(err, pebble.ErrNotFound) {
			return err
		}
		s.mu.Lock()
		if s.mu.claims[ref].ended {
			delete(s.mu.claims, ref)
		}
		s.mu.Unlock()
	}
	return nil
}
