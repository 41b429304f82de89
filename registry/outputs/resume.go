package outputs

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// resumeAll has a store that broke go on where it can, until it is closed or lost.
func (s *Store) resumeAll() {
	for {
		select {
		case <-s.guard.stopped().Done():
		case <-s.closing:
			return
		}
		if s.logger != nil {
			s.logger.Warn("outputs are not written", "outputs", s.dir, "error", s.broken())
		}
		if !pebblefiles.AwaitRoom(s.guard.lost.Done(), s.closing, s.room, s.resume) {
			return
		}
		if s.logger != nil {
			s.logger.Info("outputs are written again", "outputs", s.dir)
		}
	}
}

// room returns nil if there is room to open the database again. Sweep removes the
// file if a kill leaves it.
func (s *Store) room() error { return pebblefiles.Room(s.fs, s.dir, s.incomingPath(0)) }

// resume closes the database and opens it again, and reports whether the store
// goes on. Nothing uses the database meanwhile.
func (s *Store) resume() bool {
	s.life.Lock()
	defer s.life.Unlock()
	s.guard.under.Wait() // a sync may fail yet
	if s.guard.lost.Err() != nil {
		return false
	}
	s.closeDatabase()
	if s.guard.lost.Err() != nil {
		return false
	}
	s.openings.Add(1)
	err := s.reopen(false)
	if err == nil {
		err = s.forgetUnacknowledged()
	}
	if err == nil && s.guard.failed() == nil {
		return true
	}
	if err != nil && s.guard.failed() == nil {
		s.guard.fail(err, passes(err))
	}
	if s.guard.lost.Err() == nil { // it is read meanwhile
		cause := *s.guard.spell.Load().first.Load()
		s.closeDatabase()
		if s.reopen(true) != nil {
			s.closeDatabase()
		}
		s.guard.fail(cause, true)
	}
	return false
}

func (s *Store) closeDatabase() {
	s.guard.release()
	if s.life.db != nil {
		_ = s.life.db.Close() // which fails, as the guard has
		s.life.db = nil
	}
}

// reopen opens the database, to read it alone or to write as well.
func (s *Store) reopen(readOnly bool) (err error) {
	s.replay = pebblefiles.NewReplay(s.fs, s.torn)
	s.guard.thaw(s.replay)
	options := s.options.Clone()
	options.ReadOnly = readOnly
	if s.life.db, err = pebble.Open(s.dir, options); err != nil {
		s.life.db = nil
		return err
	}
	s.guard.armed.Store(true)
	s.replay.Done()
	return nil
}

// forgetUnacknowledged removes outputs for which Keep returned an error, or will,
// and that are on the disk nevertheless, and lets their refs be kept again. Sweep
// removes their bytes after the next opening.
func (s *Store) forgetUnacknowledged() error {
	s.mu.Lock()
	var refs []domain.Ref
	for ref, c := range s.mu.keeping {
		if !c.durable {
			refs = append(refs, ref)
		}
	}
	s.mu.Unlock()
	for _, ref := range refs {
		_, closer, err := s.life.db.Get(headKey(ref))
		if err == nil {
			err = errors.Join(closer.Close(), s.life.db.Delete(headKey(ref), pebble.Sync), s.guard.failed())
		}
		if err != nil && !errors.Is(err, pebble.ErrNotFound) {
			return err
		}
		s.mu.Lock()
		if s.mu.keeping[ref].ended {
			delete(s.mu.keeping, ref)
		}
		s.mu.Unlock()
	}
	return nil
}
