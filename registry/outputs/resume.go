package outputs

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/pebblefiles"
)

// newResumer returns the Resumer of the store. Its method Run resumes the store after
// each write that failed because the disk was full or too many files were open.
func (s *Store) newResumer() *pebblefiles.Resumer {
	return &pebblefiles.Resumer{
		FailStop:     s.failStop,
		Closing:      s.closing,
		Room:         s.checkRoom,
		Paused:       s.logPaused,
		Resumed:      s.logResumed,
		Exclusive:    s.exclusive,
		Close:        s.closeDatabase,
		Replay:       s.newReplay,
		Open:         s.reopen,
		OpenReadOnly: func() error { return s.openDatabase(true) },
		Recover:      s.forgetUnacknowledged,
	}
}

// logPaused logs a warning that the store takes no writes, if there is a logger.
func (s *Store) logPaused() {
	if s.logger != nil {
		s.logger.Warn("outputs are not written", "outputs", s.dir, "error", s.broken())
	}
}

// logResumed logs that the store takes writes again, if there is a logger.
func (s *Store) logResumed() {
	if s.logger != nil {
		s.logger.Info("outputs are written again", "outputs", s.dir)
	}
}

// checkRoom returns nil if there is room to open the database again. It tests that
// with a temporary file under incoming. Sweep removes that file if a killed process
// left it.
func (s *Store) checkRoom() error { return pebblefiles.Room(s.fs, s.dir, s.incomingPath(0)) }

// exclusive calls f with handle held, so no other operation uses the database.
func (s *Store) exclusive(f func()) {
	s.handle.Lock()
	defer s.handle.Unlock()
	f()
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
	if s.handle.db != nil {
		_ = s.handle.db.Close() // it returns the earlier failure
		s.handle.db = nil
	}
}

// newReplay returns the storage for the next opening of the database, and its Replay.
func (s *Store) newReplay() (vfs.FS, *pebblefiles.Replay) {
	s.replay = pebblefiles.NewReplay(s.fs, s.onTear)
	return newFilledWALs(s.replay), s.replay
}

// reopen opens the database for writing and increments generation. Chunks that a
// running Keep wrote before the failure may be missing from the WAL. The new
// generation makes such a Keep fail. The caller holds handle for writing.
func (s *Store) reopen() error {
	s.generation.Add(1)
	return s.openDatabase(false)
}

// openDatabase opens the database and sets handle.db. After an error handle.db is nil.
// The caller holds handle for writing.
func (s *Store) openDatabase(readOnly bool) (err error) {
	options := s.options.Clone()
	options.ReadOnly = readOnly
	if s.handle.db, err = pebble.Open(s.dir, options); err != nil {
		s.handle.db = nil
	}
	return err
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
