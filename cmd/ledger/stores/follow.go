package stores

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// followInterval is the interval at which a command that follows a folder checks
// whether a process has opened or closed the folder.
const followInterval = 200 * time.Millisecond

// Follow yields the records after a position and waits for more, for a Store that
// Read or OpenToReadAt opened. It calls caughtUp with the position each time it has
// yielded all records. The loop ends with an error: the cause of ctx, or the error of
// the store.
//
// A folder can change its access while Follow waits: a process opens it, serves it,
// or closes it. Follow then reopens the folder and continues after the last record
// that it yielded, so that each record comes once.
func (o *Opener) Follow(ctx context.Context, s *Store, after events.Position, caughtUp func(events.Position)) iter.Seq2[events.Entry, error] {
	following := events.Following{CaughtUp: caughtUp}
	if s.Node != nil || s.Folder != nil && !s.ReadOnly {
		return s.Log.Follow(ctx, after, following)
	}
	return func(yield func(events.Entry, error) bool) {
		f := &folderFollower{opener: o, dir: s.Name, store: s, after: after, caughtUp: caughtUp, yield: yield}
		if err := f.run(ctx); !errors.Is(err, errLeft) {
			yield(events.Entry{}, err)
		}
	}
}

// errLeft reports that the body of the caller's loop has ended the loop. It ends the
// methods of a folderFollower.
var errLeft = errors.New("following was left")

// A folderFollower follows the log in a folder while processes open and close the
// folder. It alternates between two kinds of pass. While a process serves the folder,
// the follower is its client and waits for records. While no process has the folder
// open, it reads the files to their end, holds no lock, and waits until the names of
// the files change. The goroutine of the caller's loop owns it.
type folderFollower struct {
	opener *Opener
	// dir is the path of the folder.
	dir string
	// store is the Store that was opened last. The caller of Follow closes the first
	// one, run the others.
	store *Store
	// holder is the process that had the lock just before store was opened.
	holder storedir.Owner
	// after is the position of the last record that was yielded.
	after events.Position
	// caughtUp is called at each end of the log.
	caughtUp func(events.Position)
	yield    func(events.Entry, error) bool
}

// run follows the log until an error and returns that error, never nil. After an error
// of a serving process it reopens the folder once, because the process may be about to
// end. If the next pass fails before it yields a record, run returns that error.
func (f *folderFollower) run(ctx context.Context) error {
	if f.store.ReadOnly { // for a client, reopen first: the serving process may have ended
		if err := f.pass(ctx); err != nil {
			return err
		}
	}
	failures := 0
	for seen := ""; ; {
		var err error
		if seen, err = f.reopen(ctx, seen); err != nil {
			return err
		}
		before := f.after
		err = f.pass(ctx)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err = errors.Join(err, f.store.Close()); err == nil {
			failures = 0
			continue
		}
		if failures++; f.after != before {
			failures = 1
		}
		// Retry once: the serving process may be about to end.
		if failures > 1 || f.store.ReadOnly || ctx.Err() != nil || errors.Is(err, errLeft) || errors.Is(err, events.ErrDamaged) {
			return err
		}
	}
}

// pass yields the records of f.store after the position f.after. A store that reads the
// files ends with the last record, and pass returns nil. With a client of a serving
// process, pass waits for more records and returns nil when that process has ended.
func (f *folderFollower) pass(ctx context.Context) error {
	if f.store.ReadOnly {
		err := f.giveAll(f.store.Log.ReadAll(ctx, f.after))
		if err == nil {
			f.caughtUp(f.after)
		}
		return err
	}
	serving, ended := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer ended(nil)
	watching.Go(func() { ended(f.holderEnds(serving)) })
	err := f.giveAll(f.store.Log.Follow(serving, f.after, events.Following{CaughtUp: f.caughtUp}))
	if errors.Is(context.Cause(serving), errHolderEnded) && !errors.Is(err, errLeft) {
		err = nil
	}
	return err
}

// errHolderEnded cancels a pass through the process that served the folder.
var errHolderEnded = errors.New("the process that served the folder has ended")

// holderEnds polls the lock of the folder every followInterval. It returns
// errHolderEnded when the process f.holder no longer has the lock, or when the lock
// cannot be read. It returns the cause of ctx if ctx ends first.
func (f *folderFollower) holderEnds(ctx context.Context) error {
	for {
		now, held, err := storedir.Holder(f.dir)
		if err != nil || !held || now != f.holder {
			return errHolderEnded
		}
		if err := Sleep(ctx, followInterval); err != nil {
			return err
		}
	}
}

// giveAll yields entries to the caller's loop. It returns nil after the last entry, the
// first error of entries, or errLeft if the caller's loop has ended.
func (f *folderFollower) giveAll(entries iter.Seq2[events.Entry, error]) error {
	for e, err := range entries {
		if err != nil {
			return err
		}
		if err := f.give(e); err != nil {
			return err
		}
	}
	return nil
}

// give yields one entry and remembers its position. It returns errLeft if the
// caller's loop has ended.
func (f *folderFollower) give(e events.Entry) error {
	if !f.yield(e, nil) {
		return errLeft
	}
	f.after = e.Position
	return nil
}

// reopen opens the folder, stores it in f.store and returns the folderState. After a
// pass through a serving process it opens the folder at once. After a pass over the
// files it first waits until the folderState differs from seen. While a process has the
// lock and does not serve the folder, reopen tries again at intervals.
func (f *folderFollower) reopen(ctx context.Context, seen string) (string, error) {
	now := !f.store.ReadOnly
	for {
		looks, err := folderState(f.dir)
		if err != nil {
			return "", err
		}
		if now || looks != seen {
			if f.holder, _, err = storedir.Holder(f.dir); err != nil {
				return "", err
			}
			s, err := f.opener.OpenToReadAt(ctx, Address{Folder: f.dir})
			if err == nil {
				f.store = s
				return looks, nil
			}
			if !errors.Is(err, events.ErrInUse) && !errors.Is(err, outputs.ErrInUse) {
				return "", err
			}
		}
		if err := Sleep(ctx, followInterval); err != nil {
			return "", err
		}
	}
}

// folderState returns the names of the log's files, one a line. The text changes whenever a
// process opens the folder, because Pebble then creates files with new names.
func folderState(dir string) (string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "log"))
	if err != nil {
		return "", err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return strings.Join(names, "\n"), nil
}
