package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// A ledgerStore is a store that is open: the log, and the outputs beside it.
// Whoever opened it closes it.
type ledgerStore struct {
	dir     string
	store   *embedded.Store
	ledger  *events.Ledger
	outputs *outputs.Store
	shared  bool   // other processes may have it open as well
	address string // where other nodes can ask for outputs; empty: nowhere
}

// storeDir returns the folder of the store that is meant.
func (a *app) storeDir() (string, error) {
	if a.store != "" {
		return a.store, nil
	}
	if dir := a.variable("LEDGER_STORE"); dir != "" {
		return dir, nil
	}
	if dir := a.variable("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "ledger"), nil
	}
	if home := a.variable("HOME"); home != "" {
		return filepath.Join(home, ".local", "share", "ledger"), nil
	}
	return "", misuse("no store is named, and HOME is not set: name one with --store")
}

// open opens the store to read it. A store that is not there is a fault, and
// is not made.
func (a *app) open(ctx context.Context) (*ledgerStore, error) {
	dir, err := a.storeDir()
	if err != nil {
		return nil, err
	}
	if missing(dir) {
		f := notFound("ledger run and ledger import make a store; --store or LEDGER_STORE names one", "no store at %s", dir)
		f.code = "no_store"
		return nil, f
	}
	return a.openAt(ctx, dir)
}

// create opens the store to write to it, and makes it where there is none.
func (a *app) create(ctx context.Context) (*ledgerStore, error) {
	dir, err := a.storeDir()
	if err != nil {
		return nil, err
	}
	return a.openAt(ctx, dir)
}

// missing reports whether there is nothing in a folder that could be a store.
func missing(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}

func (a *app) openAt(ctx context.Context, dir string) (*ledgerStore, error) {
	store, err := embedded.Open(ctx, dir, embedded.Config{Owner: embedded.Owner{Command: a.command}})
	if err != nil {
		return nil, unopened(err)
	}
	kept, err := outputs.Open(filepath.Join(dir, "outputs"), outputs.Config{})
	if err != nil {
		return nil, unopened(errors.Join(err, store.Close()))
	}
	mint := domain.NewMint(a.now, a.entropy)
	return &ledgerStore{dir: dir, store: store, ledger: events.NewLedger(store, mint, a.now), outputs: kept}, nil
}

// unopened returns why a store is not opened. A file of it that is missing does
// not mean that there is no store.
func unopened(err error) error {
	f := *faultOf(err)
	if f.exit == exitNotFound {
		f.exit, f.code, f.hint = exitFailed, "failed", "the store is not whole: name another with --store, or put back a copy of it"
	}
	return &f
}

// Close gives the store up.
func (s *ledgerStore) Close() error { return errors.Join(s.outputs.Close(), s.store.Close()) }

// reading opens the store, calls use with it and closes it.
func (a *app) reading(ctx context.Context, use func(*ledgerStore) error) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(s), s.Close())
}

// folded returns the answer of a projection for everything on record. A
// checkpoint that cannot be saved is no error: the answer is current.
func folded[S any](ctx context.Context, s *ledgerStore, p projections.Projection[S]) (answer S, err error) {
	end := s.store.Head()
	view := projections.NewView(p, s.ledger, s.store)
	if err := view.Refresh(ctx); err != nil && view.Position().Compare(end) < 0 {
		return answer, err
	}
	view.Read(func(current S) { answer = current })
	return answer, nil
}

// entries yields the records behind a position, to the end. A record that is
// damaged is an error, after which it goes on with the one behind. Any other
// error is the last.
func (s *ledgerStore) entries(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for {
			at, err := s.passOn(ctx, after, yield)
			if err == nil {
				return
			}
			if !errors.Is(err, events.ErrDamaged) {
				yield(events.Entry{}, err)
				return
			}
			if after = s.behind(ctx, at); !yield(events.Entry{}, fmt.Errorf("read behind position %s: %w", at, err)) {
				return
			}
		}
	}
}

// passOn yields records until there is an error, which it returns with the
// position of the last, or none is wanted.
func (s *ledgerStore) passOn(ctx context.Context, after events.Position, yield func(events.Entry, error) bool) (events.Position, error) {
	for e, err := range s.store.ReadAll(ctx, after) {
		if err != nil {
			return after, err
		}
		if after = e.Position; !yield(e, nil) {
			break
		}
	}
	return after, nil
}

// behind returns the position from which records can be read again, behind one
// from which they cannot. The positions of an embedded store are a sequence.
func (s *ledgerStore) behind(ctx context.Context, at events.Position) events.Position {
	for at.Compare(s.store.Head()) < 0 {
		sequence, _ := at.Parts()
		at = events.NewPosition(sequence+1, sequence+1)
		if s.readable(ctx, at) {
			break
		}
	}
	return at
}

func (s *ledgerStore) readable(ctx context.Context, after events.Position) bool {
	for _, err := range s.store.ReadAll(ctx, after) {
		return !errors.Is(err, events.ErrDamaged)
	}
	return true
}
