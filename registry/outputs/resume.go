package outputs

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// resumeLoop runs on a goroutine of the store until it is closed or lost. After a
// failed write it waits for free space and resumes the store.
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

// checkRoom returns nil if there is space to open the database again, which it tries
// with a file. Sweep removes that file if a kill leaves it.
func (s *Store) checkRoom() error { return pebblefiles.Room(s.fs, s.dir, s.incomingPath(0)) }

// resume closes the database and opens it again, for writing if it can, otherwise
// read-only. It reports whether writes work again. It holds handle, so no operation
// uses the database meanwhile.
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

// closeDatabase closes the failed database. The caller holds handle.
func (s *Store) closeDatabase() {
	s.failStop.Closing()
	if s.handle.db != nil {
		_ = s.handle.db.Close() // it returns the earlier failure
		s.handle.db = nil
	}
}

// reopen opens the database for reading or for writing. The caller holds handle.
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

// forgetUnacknowledged deletes the headers that reached the disk of blobs whose Keep
// returned an error or will return one. It also ends the claims of the Keeps that
// have returned. Sweep deletes the chunks after the next opening.
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
