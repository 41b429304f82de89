package pebblefiles

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A resumedStore is a minimal store with a Resumer. Its channels are unbuffered, so
// that the test sees each pause and each attempt in turn.
type resumedStore struct {
	resumer *Resumer
	db      *pebble.DB
	closing chan struct{}
	closed  atomic.Bool
	paused  chan struct{}
	resumed chan struct{}
	room    chan error // the results of Room
	tried   chan error // the results of Recover
	ended   chan struct{}
}

func runResumer(t *testing.T, recovered func(*pebble.DB) error) *resumedStore {
	t.Helper()
	disk := vfs.NewMem()
	s := &resumedStore{
		closing: make(chan struct{}), paused: make(chan struct{}), resumed: make(chan struct{}),
		room: make(chan error), tried: make(chan error), ended: make(chan struct{}),
	}
	replay := NewReplay(disk, func(*Tear) error { return nil })
	failStop := NewFailStopFS(replay, FailStopOptions{})
	open := func(readOnly bool) (err error) {
		options := &pebble.Options{FS: failStop, Logger: failStop, FormatMajorVersion: FormatVersion, ReadOnly: readOnly}
		if s.db, err = pebble.Open("db", options); err != nil {
			s.db = nil
		}
		return err
	}
	s.resumer = &Resumer{
		FailStop: failStop,
		Closing:  s.closing,
		Room:     func() error { return <-s.room },
		Paused:   func() { s.paused <- struct{}{} },
		Resumed:  func() { s.resumed <- struct{}{} },
		Exclusive: func(reopen func()) {
			if !s.closed.Load() {
				reopen()
			}
		},
		Close: func() {
			if s.db != nil {
				_ = s.db.Close() // it returns the earlier failure
				s.db = nil
			}
		},
		Replay: func() (vfs.FS, *Replay) {
			replay := NewReplay(disk, func(*Tear) error { return nil })
			return replay, replay
		},
		Open:         func() error { return open(false) },
		OpenReadOnly: func() error { return open(true) },
		Recover:      func() error { err := recovered(s.db); s.tried <- err; return err },
	}
	if err := open(false); err != nil {
		t.Fatal(err)
	}
	failStop.Opened()
	replay.Done()
	go func() { defer close(s.ended); s.resumer.Run() }()
	t.Cleanup(func() {
		select {
		case <-s.closing:
		default:
			close(s.closing)
		}
		<-s.ended
		failStop.Closing()
		s.resumer.Close()
	})
	return s
}

func TestResumerReopensTheDatabaseWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	s := runResumer(t, func(db *pebble.DB) error { return db.Set([]byte("resumed"), nil, pebble.Sync) })
	if err := s.db.Set([]byte("before"), nil, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.resumer.FailStop.Pause(syscall.ENOSPC)
		<-s.paused
		s.room <- syscall.ENOSPC
		s.room <- nil
		if err := <-s.tried; err != nil {
			t.Errorf("a write to the reopened database = %v, want nil", err)
		}
		<-s.resumed
		if err := s.resumer.FailStop.Err(); err != nil {
			t.Errorf("FailStopFS.Err = %v after the store has resumed, want nil", err)
		}
	}
	for _, key := range []string{"before", "resumed"} {
		if _, closer, err := s.db.Get([]byte(key)); err != nil {
			t.Errorf("Get(%q) = %v, want nil", key, err)
		} else if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestResumerServesReadsWhileItCannotRecover(t *testing.T) {
	t.Parallel()
	var works atomic.Bool
	s := runResumer(t, func(*pebble.DB) error {
		if works.Load() {
			return nil
		}
		return syscall.EMFILE
	})
	if err := s.db.Set([]byte("before"), nil, pebble.Sync); err != nil {
		t.Fatal(err)
	}
	s.resumer.FailStop.Pause(syscall.ENOSPC)
	<-s.paused
	s.room <- nil
	<-s.tried
	s.room <- syscall.ENOSPC // the Resumer waits for room again: the attempt has ended
	if err, lost := s.resumer.FailStop.Failure(); lost || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("FailStopFS.Failure = %v, %t, want the cause of the second pause", err, lost)
	}
	if _, closer, err := s.db.Get([]byte("before")); err != nil {
		t.Errorf("Get from a paused store = %v, want nil", err)
	} else if err := closer.Close(); err != nil {
		t.Error(err)
	}
	if err := s.db.Set([]byte("during"), nil, pebble.Sync); !errors.Is(err, pebble.ErrReadOnly) {
		t.Errorf("Set of a paused store = %v, want %v", err, pebble.ErrReadOnly)
	}
	works.Store(true)
	s.room <- nil
	<-s.tried
	<-s.resumed
}

func TestResumerEndsAtAPermanentFailure(t *testing.T) {
	t.Parallel()
	broken := errors.New("record is missing")
	s := runResumer(t, func(*pebble.DB) error { return broken })
	s.resumer.FailStop.Pause(syscall.ENOSPC)
	<-s.paused
	s.room <- nil
	<-s.tried
	<-s.ended
	if err, lost := s.resumer.FailStop.Failure(); !lost || !errors.Is(err, broken) {
		t.Errorf("FailStopFS.Failure = %v, %t, want %v and that it is permanent", err, lost, broken)
	}
}

func TestResumerLeavesAClosedStoreAlone(t *testing.T) {
	t.Parallel()
	s := runResumer(t, func(*pebble.DB) error { t.Error("the store was reopened"); return nil })
	s.resumer.FailStop.Pause(syscall.ENOSPC)
	<-s.paused
	s.closed.Store(true)
	s.room <- nil
	s.room <- syscall.ENOSPC // the Resumer waits for room again: the attempt has ended
	close(s.closing)
	<-s.ended
}
