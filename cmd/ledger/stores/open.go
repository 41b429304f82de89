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
	"github.com/settlement-ledger/ledger/events/embedded/backup"
	"github.com/settlement-ledger/ledger/events/embedded/storedir"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// A Store is an open store: a log, a ledger over it, checkpoints and outputs. The
// caller that opened it closes it. It may be used by several goroutines at once; its
// fields do not change after opening.
type Store struct {
	// Name is the path of the folder, or the address of the database without
	// credentials.
	Name        string
	Log         events.Scanner
	Checkpoints publish.ConsumerStore
	// ClaimsDir is the folder of the lock files of consumers.
	ClaimsDir string
	Ledger    *events.Ledger
	// Outputs has the outputs of all nodes. LocalOutputs has the ones of this node,
	// to which this process writes.
	Outputs      remote.BlobStore
	LocalOutputs remote.BlobStore
	// Shared reports that other processes may have the store open as well.
	Shared bool
	// NodeAddress is the address of this node's outputs for other nodes, or empty if
	// they cannot reach it.
	NodeAddress string
	// Folder is the folder that this process has open alone or to read, or nil for a
	// database or a shared folder.
	Folder *Folder
	// Sharing is the shared folder, or nil for a database or a Folder.
	Sharing *shared.Store
	// Process is the ID under which this process is recorded in the log, or zero if
	// the caller mints one.
	Process domain.ProcessID
	// Before are the killed holders of the lock of Folder.
	Before []domain.ProcessID
	// TookOver holds the function that is called after this process took over the
	// lock of Sharing, to recover the sessions of the process before. It is nil for a
	// Store that cannot take over.
	TookOver *atomic.Pointer[func(context.Context)]
	// Node has the outputs of this node for a database, or is nil for a folder.
	Node *NodeStore
	// ReadOnly reports that Log reads the files as they were at opening, without a
	// lock.
	ReadOnly bool
	// close closes everything that opening has opened.
	close func() error
}

// A Folder is a store in a folder that this process opened by itself: alone under its lock,
// or for reading the files.
type Folder struct {
	// dir is the path of the folder.
	dir     string
	Log     *embedded.Store
	Outputs *outputs.Store
}

// An Opener opens the store that a command line names. Its owner sets the fields before the
// first use and does not change them while a method runs.
type Opener struct {
	// Getenv returns an environment variable, or an empty string if it is not set.
	Getenv func(string) string
	Clock  func() time.Time
	// Entropy is the randomness of new IDs.
	Entropy io.Reader
	// NewLogger returns a logger for warnings of the stores.
	NewLogger func(slog.Level) *slog.Logger
	// Waiting is called while opening waits for the process that has the lock.
	Waiting func(shared.LockWait)

	// Named is the value of --store, and NamedByFlag reports that the flag was given.
	Named       string
	NamedByFlag bool
	// Command is the running command, such as "ledger run". Other processes show it
	// to their users.
	Command string
	// Timeout bounds requests to a server that does not respond. 0 selects the
	// default of the store.
	Timeout time.Duration
}

// Open opens the store for writing. It returns the fault of [NoStore] for a folder that is
// missing or empty.
func (o *Opener) Open(ctx context.Context) (*Store, error) {
	at, err := o.Where()
	if err != nil {
		return nil, err
	}
	return o.OpenAt(ctx, at)
}

// OpenAt opens the store at an address for writing. It returns the fault of [NoStore] for a
// folder that is missing or empty.
func (o *Opener) OpenAt(ctx context.Context, at Address) (*Store, error) {
	if at.Database == "" && Missing(at.Folder) {
		return nil, NoStore(at.Folder)
	}
	return o.OpenOrCreateAt(ctx, at)
}

// NoStore returns the fault of a folder without a store: code no_store, with a hint.
func NoStore(dir string) error {
	f := fault.NotFound("ledger run and ledger import make a store; --store or LEDGER_STORE names one", "no store at %s", dir)
	f.Code = "no_store"
	return f
}

// OpenOrCreate opens the store for writing and creates it if it does not exist.
func (o *Opener) OpenOrCreate(ctx context.Context) (*Store, error) {
	at, err := o.Where()
	if err != nil {
		return nil, err
	}
	return o.OpenOrCreateAt(ctx, at)
}

// OpenOrCreateAt opens the store at an address for writing, and creates a folder if it does
// not exist. If another process serves the folder, the Store is a client of that process.
func (o *Opener) OpenOrCreateAt(ctx context.Context, at Address) (*Store, error) {
	if at.Database != "" {
		return o.OpenDatabase(ctx, at)
	}
	return o.OpenSharedFolder(ctx, at.Folder)
}

// Missing reports whether a folder does not exist or is empty.
func Missing(dir string) bool {
	entries, err := os.ReadDir(dir)
	return errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0
}

// OpenFolder opens the store in a folder for this process alone and records owner as
// the holder of its lock. It returns an events.ErrInUse if another process has the
// lock, and does not wait for it.
func (o *Opener) OpenFolder(ctx context.Context, dir string, owner storedir.Owner) (*Store, error) {
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

// openedFolder returns the Store of a folder whose log is store and whose outputs are
// kept, both opened by this process. Its Close closes the clients of other nodes, the
// outputs and the log.
func (o *Opener) openedFolder(dir string, store *embedded.Store, kept *outputs.Store) *Store {
	ledger, here := o.newLedger(store), remote.Local(kept)
	// Clients of an earlier ledger serve may have stored their outputs on other nodes.
	nodes := remote.OpenNodes(here, ledger, remote.Config{Colocated: true})
	return &Store{
		Name: dir, Log: store, Checkpoints: store, ClaimsDir: filepath.Join(dir, claimsName), Ledger: ledger, Outputs: nodes, LocalOutputs: here,
		Folder: &Folder{dir, store, kept}, Before: shared.UnfinishedHolders(dir, domain.ProcessID{}),
		close: func() error { return errors.Join(nodes.Close(), kept.Close(), store.Close()) },
	}
}

// newLedger returns a ledger over a store with a new mint and the clock of o.
func (o *Opener) newLedger(store events.Store) *events.Ledger {
	return events.NewLedger(store, o.Mint(), o.Clock)
}

// Mint returns a new mint of IDs with the clock and the randomness of o.
func (o *Opener) Mint() *domain.Mint { return domain.NewMint(o.Clock, o.Entropy) }

// unopened maps an error of opening a store to a fault. A missing file becomes a general
// failure instead of a not-found fault, because the store exists and is incomplete. A damaged
// store gets the hint to run ledger store check.
func unopened(err error) error {
	f := *fault.Of(err)
	if f.Exit == fault.ExitNotFound {
		f.Exit, f.Code, f.Hint = fault.ExitFailed, "failed", "the store is incomplete: name another with --store, or restore a copy of it"
	}
	if f.Code == "damaged" {
		f.Hint, f.Command = "the store is incomplete: ledger store check lists the damage; restore a backup into another folder", "ledger store check"
	}
	return &f
}

// Close closes the log and the outputs.
func (s *Store) Close() error { return s.close() }

// Borrowed returns a copy of s whose Close does nothing. The caller that opened s closes
// it.
func (s *Store) Borrowed() *Store {
	lent := *s
	lent.close = func() error { return nil }
	return &lent
}

// A header is a log that knows the position of its last record without reading: an
// embedded store.
type header interface{ Head() events.Position }

// Head returns the position of the last record, or the zero Position of an empty log.
func (s *Store) Head(ctx context.Context) (events.Position, error) {
	if store, ok := s.Log.(header); ok {
		return store.Head(), nil
	}
	h, _, err := s.Ledger.Head(ctx)
	return h.Position, err
}

// Write opens the store for writing, calls use with it and closes it.
func (o *Opener) Write(ctx context.Context, use func(*Store) error) error {
	s, err := o.Open(ctx)
	if err != nil {
		return err
	}
	return errors.Join(use(s), s.Close())
}

// Current returns the state of a projection at the end of the log. It starts from the
// checkpoint in s if that is usable, and saves a newer checkpoint.
func Current[S any](ctx context.Context, s *Store, p projections.Projection[S]) (S, error) {
	return projections.Current(ctx, p, s.Ledger, s.Checkpoints)
}

// Entries yields the records after a position, to the end of the log. For a damaged
// record it yields an error and continues with the next readable record, if it finds
// one. Any other error ends the loop. The commands that examine or copy a damaged store
// use it.
func (s *Store) Entries(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return s.each(ctx, after, s.Log.ReadAll)
}

// LentEntries is Entries without copies: data and metadata of an entry belong to the store,
// and are valid until the body of the loop ends.
func (s *Store) LentEntries(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return s.each(ctx, after, func(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
		return s.Log.Lend(ctx, events.Query{After: after})
	})
}

// A readFunc yields the records after a position.
type readFunc func(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error]

// each does the work of Entries with a function that reads.
func (s *Store) each(ctx context.Context, after events.Position, read readFunc) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for {
			at, err := passOn(read(ctx, after), after, yield)
			if err == nil {
				return
			}
			if !errors.Is(err, events.ErrDamaged) {
				yield(events.Entry{}, err)
				return
			}
			next := s.behind(ctx, at, err)
			if !yield(events.Entry{}, fmt.Errorf("read after position %s: %w", at, err)) || next == at {
				return
			}
			after = next
		}
	}
}

// passOn calls yield with records that follow a position. It returns the position of the
// last record that it yielded, and the error that ended the reading. The error is nil at
// the end of the log, and if yield returned false.
func passOn(records iter.Seq2[events.Entry, error], after events.Position, yield func(events.Entry, error) bool) (events.Position, error) {
	for e, err := range records {
		if err != nil {
			return after, err
		}
		if after = e.Position; !yield(e, nil) {
			break
		}
	}
	return after, nil
}

// behind returns a position after damage in the log, from which reading can continue.
// err is the error of a read that began after the position at. If err contains the
// position of the damaged record, and that is after at, behind returns that position.
// Otherwise, in an embedded store, it tries the following positions, which are
// consecutive, one read each, until a record is readable. For any other store it returns
// its argument unchanged.
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

// readable reports whether the first read after a position returns no events.ErrDamaged.
func (s *Store) readable(ctx context.Context, after events.Position) bool {
	for _, err := range s.Log.ReadAll(ctx, after) {
		return !errors.Is(err, events.ErrDamaged)
	}
	return true
}

// OutputsName is the name of the folder of outputs in the folder of a store or node.
const OutputsName = engine.OutputsFolder

// claimsName is the name of the folder of consumer locks in the folder of a store or node.
const claimsName = "claims"

// Backup writes a backup of the log and the outputs to the folder dir.
func (f *Folder) Backup(ctx context.Context, dir string) (made shared.BackupReport, err error) {
	made.Backup, made.Written, err = f.Log.Backup(ctx, dir, backup.NamedComponent{Name: OutputsName, Component: engine.BackupOutputs{Store: f.Outputs}})
	return made, err
}

// Sweep removes outputs that a crash left without a settlement on record. The
// function recorded reports whether the log has a settlement. If another process has
// the lock of the folder, Sweep leaves the outputs to that process and returns a zero
// outputs.Swept. It panics for a database.
func (s *Store) Sweep(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) (outputs.Swept, error) {
	if s.Sharing != nil {
		return s.Sharing.Sweep(ctx, recorded)
	}
	return s.Folder.Outputs.Sweep(ctx, recorded)
}
