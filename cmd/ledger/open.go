package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// A ledgerStore is a store that is open: the log, and what is kept beside it.
// Whoever opened it closes it.
type ledgerStore struct {
	name        string // where it is, without credentials
	store       events.Scanner
	checkpoints publish.ConsumerStore
	claims      string // the folder of the claims on consumers
	ledger      *events.Ledger
	outputs     remote.BlobStore                       // wherever they are
	here        remote.BlobStore                       // those that are kept where this process keeps its own
	shared      bool                                   // other processes may have it open as well
	address     string                                 // where other nodes can ask for outputs; empty: nowhere
	folder      *folderStore                           // nil: in a database, or a folder that another process has open
	sharing     *shared.Store                          // nil: in a database, or a folder that this process opened for itself
	process     domain.ProcessID                       // under which this process goes on record; zero: a new one
	before      []domain.ProcessID                     // killed holders of a folder that this process opened for itself
	tookOver    *atomic.Pointer[func(context.Context)] // recovers what the holder before left
	node        *nodeFolder                            // nil: in a folder
	reader      bool                                   // opened to read, as the folder was then
	close       func() error
}

// A folderStore is a store in a folder that this process has alone.
type folderStore struct {
	dir     string
	store   *embedded.Store
	outputs *outputs.Store
}

// open opens the store to write to it. A folder that is not there is a fault, and
// is not made.
func (a *app) open(ctx context.Context) (*ledgerStore, error) {
	at, err := a.where()
	if err != nil {
		return nil, err
	}
	return a.openThere(ctx, at)
}

// openThere opens the store at an address to write to it, if there is one.
func (a *app) openThere(ctx context.Context, at address) (*ledgerStore, error) {
	if at.database == "" && missing(at.folder) {
		return nil, noStore(at.folder)
	}
	return a.createAt(ctx, at)
}

// noStore returns the fault of a folder without a store.
func noStore(dir string) error {
	f := fault.NotFound("ledger run and ledger import make a store; --store or LEDGER_STORE names one", "no store at %s", dir)
	f.Code = "no_store"
	return f
}

// create opens the store to write to it, and makes it where there is none.
func (a *app) create(ctx context.Context) (*ledgerStore, error) {
	at, err := a.where()
	if err != nil {
		return nil, err
	}
	return a.createAt(ctx, at)
}

// createAt opens the store at an address, and makes a folder where there is none.
// A folder that ledger serve has open is reached through that.
func (a *app) createAt(ctx context.Context, at address) (*ledgerStore, error) {
	if at.database != "" {
		return a.openDatabase(ctx, at)
	}
	return a.openAt(ctx, at.folder)
}

// missing reports whether there is nothing in a folder that could be a store.
func missing(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}

// openFolder opens the store in a folder for this process alone.
func (a *app) openFolder(ctx context.Context, dir string, owner embedded.Owner) (*ledgerStore, error) {
	store, err := embedded.Open(ctx, dir, embedded.Config{Owner: owner, Logger: a.Logger(slog.LevelWarn)})
	if err != nil {
		return nil, unopened(err)
	}
	kept, err := engine.OpenOutputs(ctx, store, dir, a.Logger(slog.LevelWarn))
	if err != nil {
		return nil, unopened(errors.Join(err, store.Close()))
	}
	return a.openedFolder(dir, store, kept), nil
}

// openedFolder returns the store in a folder whose log and outputs this process has
// open. Its Close closes both.
func (a *app) openedFolder(dir string, store *embedded.Store, kept *outputs.Store) *ledgerStore {
	ledger, here := a.ledgerOver(store), remote.Local(kept)
	// Processes that worked on it through ledger serve may keep their outputs on a node.
	nodes := remote.OpenNodes(here, ledger, remote.Config{Colocated: true})
	return &ledgerStore{
		name: dir, store: store, checkpoints: store, claims: filepath.Join(dir, claimsName), ledger: ledger, outputs: nodes, here: here,
		folder: &folderStore{dir, store, kept}, before: shared.UnfinishedHolders(dir, domain.ProcessID{}),
		close: func() error { return errors.Join(nodes.Close(), kept.Close(), store.Close()) },
	}
}

func (a *app) ledgerOver(store events.Store) *events.Ledger {
	return events.NewLedger(store, a.mint(), a.Now)
}

func (a *app) mint() *domain.Mint { return domain.NewMint(a.Now, a.entropy) }

// unopened returns why a store is not opened. A file of it that is missing does
// not mean that there is no store.
func unopened(err error) error {
	f := *fault.Of(err)
	if f.Exit == fault.ExitNotFound {
		f.Exit, f.Code, f.Hint = fault.ExitFailed, "failed", "the store is not whole: name another with --store, or put back a copy of it"
	}
	if f.Code == "damaged" {
		f.Hint, f.Command = "the store is not whole: ledger store check lists what is damaged; restore a backup beside it", "ledger store check"
	}
	return &f
}

// Close gives the store up.
func (s *ledgerStore) Close() error { return s.close() }

// A headed store knows its end without being asked to read.
type headed interface{ Head() events.Position }

// head returns the position of the last record, and the zero Position where
// there is none.
func (s *ledgerStore) head(ctx context.Context) (events.Position, error) {
	if store, ok := s.store.(headed); ok {
		return store.Head(), nil
	}
	h, _, err := s.ledger.Head(ctx)
	return h.Position, err
}

// writing opens the store to write to it, calls use with it and closes it.
func (a *app) writing(ctx context.Context, use func(*ledgerStore) error) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(s), s.Close())
}

// folded returns the answer of a projection for everything on record.
func folded[S any](ctx context.Context, s *ledgerStore, p projections.Projection[S]) (S, error) {
	return projections.Current(ctx, p, s.ledger, s.checkpoints)
}

// entries yields the records behind a position, to the end. A record that is
// damaged is an error, after which it goes on with the one behind, where that
// can be found. Any other error is the last.
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
			next := s.behind(ctx, at, err)
			if !yield(events.Entry{}, fmt.Errorf("read behind position %s: %w", at, err)) || next == at {
				return
			}
			after = next
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
// from which they cannot: that of the damage where the error says it, and else
// the next one, as the positions of an embedded store are a sequence. It returns
// the same one where nothing is known.
func (s *ledgerStore) behind(ctx context.Context, at events.Position, err error) events.Position {
	if d, ok := errors.AsType[*events.DamagedRecord](err); ok && d.Position.Compare(at) > 0 {
		return d.Position
	}
	store, ok := s.store.(headed)
	if !ok {
		return at
	}
	for at.Compare(store.Head()) < 0 {
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
