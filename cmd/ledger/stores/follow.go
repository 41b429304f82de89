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
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// followInterval is how long a command that follows a folder waits before it looks
// again whether a process has opened it.
const followInterval = 200 * time.Millisecond

// Follow yields the records behind a position of a store that reading opened,
// and waits for more. It calls caughtUp each time that it has yielded all there
// is.
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

// errLeft says that the body of the loop left it.
var errLeft = errors.New("following was left")

// A folderFollower follows the log in a folder past the processes that have the
// folder open: through each of them while it serves the folder, and by reading the
// folder when there is none. It holds no lock while it waits.
type folderFollower struct {
	opener   *Opener
	dir      string
	store    *Store
	holder   embedded.Owner  // the process that had the folder open before the store was opened
	after    events.Position // of the last record that was yielded
	caughtUp func(events.Position)
	yield    func(events.Entry, error) bool
}

// run follows until there is an error, which it returns. It does not return nil.
func (f *folderFollower) run(ctx context.Context) error {
	if f.store.ReadOnly { // else the process that serves the store may have ended already
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
		// The process that served the folder may be about to end.
		if failures > 1 || f.store.ReadOnly || ctx.Err() != nil || errors.Is(err, errLeft) || errors.Is(err, events.ErrDamaged) {
			return err
		}
	}
}

// pass yields what the store has. It returns nil at the end of a store that was
// opened to read, and when the process that serves the folder has ended.
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

// errHolderEnded says that the process that served the folder has ended.
var errHolderEnded = errors.New("the process that served the folder has ended")

// holderEnds waits until the process that had the folder open before the store was
// opened no longer has it, and returns an errHolderEnded then.
func (f *folderFollower) holderEnds(ctx context.Context) error {
	for {
		now, held, err := embedded.Holder(f.dir)
		if err != nil || !held || now != f.holder {
			return errHolderEnded
		}
		if err := Sleep(ctx, followInterval); err != nil {
			return err
		}
	}
}

// giveAll yields entries up to an error, which it returns.
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

func (f *folderFollower) give(e events.Entry) error {
	if !f.yield(e, nil) {
		return errLeft
	}
	f.after = e.Position
	return nil
}

// reopen opens the folder: at once after a process served it, and otherwise when
// it does not look any more as seen says. It returns how it looks now. It waits for
// a process that does not serve the folder.
func (f *folderFollower) reopen(ctx context.Context, seen string) (string, error) {
	now := !f.store.ReadOnly
	for {
		looks, err := folderState(f.dir)
		if err != nil {
			return "", err
		}
		if now || looks != seen {
			if f.holder, _, err = embedded.Holder(f.dir); err != nil {
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

// folderState returns a text that differs once a process has opened a folder: Pebble
// writes files of other names then.
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
