package stores

import (
	"io"
	"time"

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

// A Store is a store that is open: the log, and what is kept beside it.
// Whoever opened it closes it.
type Store struct {
	Name         string // where it is, without credentials
	Log          events.Scanner
	Checkpoints  publish.ConsumerStore
	ClaimsDir    string // the folder of the claims on consumers
	Ledger       *events.Ledger
	Outputs      remote.BlobStore                       // wherever they are
	LocalOutputs remote.BlobStore                       // those that are kept where this process keeps its own
	Shared       bool                                   // other processes may have it open as well
	NodeAddress  string                                 // where other nodes can ask for outputs; empty: nowhere
	Folder       *Folder                                // nil: in a database, or a folder that another process has open
	Sharing      *shared.Store                          // nil: in a database, or a folder that this process opened for itself
	Process      domain.ProcessID                       // under which this process goes on record; zero: a new one
	Before       []domain.ProcessID                     // killed holders of a folder that this process opened for itself
	TookOver     *atomic.Pointer[func(context.Context)] // recovers what the holder before left
	Node         *NodeStore                             // nil: in a folder
	ReadOnly     bool                                   // opened to read, as the folder was then
	close        func() error
}

// A Folder is a store in a folder that this process has alone.
type Folder struct {
	dir     string
	Log     *embedded.Store
	Outputs *outputs.Store
}

// An Opener opens the store that a command line names. Its fields are set before the
// first use, and not changed while a method runs.
type Opener struct {
	Getenv    func(string) string // of the environment; empty: not set
	Clock     func() time.Time
	Entropy   io.Reader                     // of the IDs that are minted
	NewLogger func(slog.Level) *slog.Logger // for warnings of the stores
	Waiting   func(shared.LockWait)         // is called when opening waits for another process

	Named       string        // --store as given
	NamedByFlag bool          // --store was given
	Command     string        // the path of the command that runs; other processes are shown it
	Timeout     time.Duration // timeout of a server that does not respond; 0: the default
}

// Open opens the store to write to it. A folder that is not there is a fault, and
// is not made.
func (o *Opener) Open(ctx context.Context) (*Store, error) {
	at, err := o.Where()
	if err != nil {
		return nil, err
	}
	return o.OpenAt(ctx, at)
}

// OpenAt opens the store at an address to write to it, if there is one.
func (o *Opener) OpenAt(ctx context.Context, at Address) (*Store, error) {
	if at.Database == "" && Missing(at.Folder) {
		return nil, NoStore(at.Folder)
	}
	return o.OpenOrCreateAt(ctx, at)
}

// NoStore returns the fault of a folder without a store.
func NoStore(dir string) error {
	f := fault.NotFound("ledger run and ledger import make a store; --store or LEDGER_STORE names one", "no store at %s", dir)
	f.Code = "no_store"
	return f
}

// OpenOrCreate opens the store to write to it, and makes it where there is none.
func (o *Opener) OpenOrCreate(ctx context.Context) (*Store, error) {
	at, err := o.Where()
	if err != nil {
		return nil, err
	}
	return o.OpenOrCreateAt(ctx, at)
}

// OpenOrCreateAt opens the store at an address, and makes a folder where there is none.
// A folder that ledger serve has open is reached through that.
func (o *Opener) OpenOrCreateAt(ctx context.Context, at Address) (*Store, error) {
	if at.Database != "" {
		return o.OpenDatabase(ctx, at)
	}
	return o.OpenSharedFolder(ctx, at.Folder)
}

// Missing reports whether there is nothing in a folder that could be a store.
func Missing(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}

// OpenFolder opens the store in a folder for this process alone.
func (o *Opener) OpenFolder(ctx context.Context, dir string, owner embedded.Owner) (*Store, error) {
	store, err := embedded.Open(ctx, dir, embedded.Config{Owner: owner, Logger: o.NewLogger(slog.LevelWarn)})
	if err != nil {
		return nil, unopened(err)
	}
	kept, err := engine.OpenOutputs(ctx, store, dir, o.NewLogger(slog.LevelWarn))
	if err != nil {
		return nil, unopened(errors.Join(err, store.Close()))
	}
	return o.openedFolder(dir, store, kept), nil
}

// openedFolder returns the store in a folder whose log and outputs this process has
// open. Its Close closes both.
func (o *Opener) openedFolder(dir string, store *embedded.Store, kept *outputs.Store) *Store {
	ledger, here := o.newLedger(store), remote.Local(kept)
	// Processes that worked on it through ledger serve may keep their outputs on a node.
	nodes := remote.OpenNodes(here, ledger, remote.Config{Colocated: true})
	return &Store{
		Name: dir, Log: store, Checkpoints: store, ClaimsDir: filepath.Join(dir, claimsName), Ledger: ledger, Outputs: nodes, LocalOutputs: here,
		Folder: &Folder{dir, store, kept}, Before: shared.UnfinishedHolders(dir, domain.ProcessID{}),
		close: func() error { return errors.Join(nodes.Close(), kept.Close(), store.Close()) },
	}
}

func (o *Opener) newLedger(store events.Store) *events.Ledger {
	return events.NewLedger(store, o.Mint(), o.Clock)
}

func (o *Opener) Mint() *domain.Mint { return domain.NewMint(o.Clock, o.Entropy) }

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

// Close closes the log and the outputs.
func (s *Store) Close() error { return s.close() }

// Borrowed returns the store for a user that does not own it: its Close does nothing.
func (s *Store) Borrowed() *Store {
	lent := *s
	lent.close = func() error { return nil }
	return &lent
}

// A header store knows its end without being asked to read.
type header interface{ Head() events.Position }

// Head returns the position of the last record, and the zero Position where
// there is none.
func (s *Store) Head(ctx context.Context) (events.Position, error) {
	if store, ok := s.Log.(header); ok {
		return store.Head(), nil
	}
	h, _, err := s.Ledger.Head(ctx)
	return h.Position, err
}

// Write opens the store to write to it, calls use with it and closes it.
func (o *Opener) Write(ctx context.Context, use func(*Store) error) error {
	s, err := o.Open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(s), s.Close())
}

// Current returns the answer of a projection for everything on record.
func Current[S any](ctx context.Context, s *Store, p projections.Projection[S]) (S, error) {
	return projections.Current(ctx, p, s.Ledger, s.Checkpoints)
}

// Entries yields the records behind a position, to the end. A record that is
// damaged is an error, after which it goes on with the one behind, where that
// can be found. Any other error is the last.
func (s *Store) Entries(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
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
func (s *Store) passOn(ctx context.Context, after events.Position, yield func(events.Entry, error) bool) (events.Position, error) {
	for e, err := range s.Log.ReadAll(ctx, after) {
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
func (s *Store) behind(ctx context.Context, at events.Position, err error) events.Position {
	if d, ok := errors.AsType[*events.DamagedRecord](err); ok && d.Position.Compare(at) > 0 {
		return d.Position
	}
	store, ok := s.Log.(header)
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

func (s *Store) readable(ctx context.Context, after events.Position) bool {
	for _, err := range s.Log.ReadAll(ctx, after) {
		return !errors.Is(err, events.ErrDamaged)
	}
	return true
}

// OutputsName is the folder of the outputs in a folder of a store.
const OutputsName = engine.OutputsFolder

// claimsName is the folder of the claims on consumers, in that of a store or of
// a node.
const claimsName = "claims"

// Backup makes a backup of the folder.
func (f *Folder) Backup(ctx context.Context, dir string) (made shared.BackupReport, err error) {
	made.Backup, made.Written, err = f.Log.Backup(ctx, dir, embedded.NamedPart{Name: OutputsName, Part: engine.BackedUpOutputs{Store: f.Outputs}})
	return made, err
}

// Sweep removes outputs that crashes left, if this process holds the folder.
func (s *Store) Sweep(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) (outputs.Swept, error) {
	if s.Sharing != nil {
		return s.Sharing.Sweep(ctx, recorded)
	}
	return s.Folder.Outputs.Sweep(ctx, recorded)
}
