package pebblefiles

import (
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A Resumer makes a store writable again after its [FailStopFS] stopped at a full disk
// or at the open-files limit. Pebble cannot continue after a failed write, so the
// Resumer waits for room, closes the database and opens it again, which replays the log
// as after a kill. If the database cannot be opened for writing, the Resumer opens it
// read-only, so that reads work until the next attempt.
//
// The owner of the database sets all fields before it calls [Resumer.Run]. Run calls the
// functions from one goroutine, and Close, Replay, Open, OpenReadOnly and Recover only
// within Exclusive.
type Resumer struct {
	FailStop *FailStopFS
	Closing  <-chan struct{} // closed when the store begins to close

	Room    func() error // returns nil if there is room to open the database; see [Room]
	Paused  func()       // reports that the store takes no writes; called once for each pause
	Resumed func()       // reports that the store takes writes again

	// Exclusive calls reopen while no other operation uses the database. If the store is
	// closed, it does not call reopen.
	Exclusive func(reopen func())

	Close        func()                   // closes the database if it is open
	Replay       func() (vfs.FS, *Replay) // returns the storage and its Replay for the next opening
	Open         func() error             // opens the database for writing
	OpenReadOnly func() error             // opens the database for reading
	Recover      func() error             // updates the store from the database opened for writing
}

// Run resumes the store each time that it is paused. It returns when Closing is closed or
// the failure is permanent.
func (r *Resumer) Run() {
	for {
		select {
		case <-r.FailStop.Stopped():
		case <-r.Closing:
			return
		}
		r.Paused()
		if !r.await() {
			return
		}
		r.Resumed()
	}
}

// The first and the longest pause between two checks for room.
const (
	firstLook = 20 * time.Millisecond
	laterLook = 5 * time.Second
)

// await waits until the store takes writes again and returns true. It checks for room
// with exponential backoff and then resumes the store, and repeats both until that
// succeeds. It returns false when the failure is permanent or the store closes.
func (r *Resumer) await() bool {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = firstLook, laterLook
	for {
		select {
		case <-r.FailStop.Lost():
			return false
		case <-r.Closing:
			return false
		case <-time.After(waits.NextBackOff()):
		}
		if r.Room() == nil && r.resume() {
			return true
		}
	}
}

// resume closes and reopens the database and reports whether the store takes writes.
func (r *Resumer) resume() (resumed bool) {
	r.Exclusive(func() { resumed = r.reopen() })
	return resumed
}

// reopen does the work of resume, within Exclusive. A failure while it opens the database
// or while the store recovers pauses the store again, with that failure as the cause.
func (r *Resumer) reopen() bool {
	r.FailStop.Wait() // a running sync may still fail and make the failure permanent
	if r.lost() {
		return false
	}
	r.close()
	if r.lost() {
		return false
	}
	err := r.open(r.Open)
	if err == nil {
		err = r.Recover()
	}
	if err != nil && r.FailStop.Err() == nil {
		r.FailStop.Pause(err)
	}
	cause := r.FailStop.Err()
	if cause == nil {
		return true
	}
	if r.lost() {
		return false // reads continue with the database as it is
	}
	r.close()
	if r.open(r.OpenReadOnly) != nil {
		r.FailStop.Closing()
	}
	r.FailStop.Pause(cause) // opening the database has reset it
	return false
}

// lost reports whether the failure is permanent, so that writes resume only after the
// store is opened anew.
func (r *Resumer) lost() bool {
	_, lost := r.FailStop.Failure()
	return lost
}

// close closes the database. Its unwritten data is dropped.
func (r *Resumer) close() {
	r.FailStop.Closing()
	r.Close()
}

// open resets the fail-stop file system and opens the database with the given function.
func (r *Resumer) open(open func() error) error {
	storage, replay := r.Replay()
	r.FailStop.Reset(storage)
	if err := open(); err != nil {
		return err
	}
	r.FailStop.Opened()
	replay.Done()
	return nil
}
