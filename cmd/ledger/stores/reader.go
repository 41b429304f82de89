package stores

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/publish"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// Read opens the store for reading, calls use with it and closes it. It never changes the
// log or the outputs of a folder, and holds no lock while use runs.
func (o *Opener) Read(ctx context.Context, use func(*Store) error) error {
	at, err := o.Where()
	if err != nil {
		return err
	}
	s, err := o.OpenToReadAt(ctx, at)
	if err != nil {
		return err
	}
	return errors.Join(use(s), s.Close())
}

// OpenToReadAt opens the store at an address for reading. If a process has the folder open,
// the Store is a client of that process. Otherwise it reads the files as they are, and does
// not recover the sessions of a killed process. It returns the fault of [NoStore] for a
// folder that is missing or empty.
func (o *Opener) OpenToReadAt(ctx context.Context, at Address) (*Store, error) {
	if at.Database != "" {
		return o.OpenDatabase(ctx, at)
	}
	if Missing(at.Folder) {
		return nil, NoStore(at.Folder)
	}
	s, err := o.openReader(ctx, at.Folder)
	if errors.Is(err, events.ErrInUse) || errors.Is(err, outputs.ErrInUse) {
		return o.openServed(ctx, at.Folder)
	}
	return s, err
}

// openReader opens the files of a folder that no process has open. The Store shows the log
// as it is now. It returns an events.ErrInUse or outputs.ErrInUse if a process has the
// folder open.
func (o *Opener) openReader(ctx context.Context, dir string) (*Store, error) {
	store, err := embedded.OpenReader(ctx, dir, embedded.Config{Logger: o.NewLogger(slog.LevelWarn)})
	if err != nil {
		return nil, unopened(err)
	}
	kept, err := engine.ReadOutputs(ctx, store, dir, o.NewLogger(slog.LevelWarn))
	if err != nil {
		return nil, unopened(errors.Join(err, store.Close()))
	}
	s := o.openedFolder(dir, store, kept)
	s.Checkpoints, s.ReadOnly = viewsBeside(dir, store), true
	return s, nil
}

// ViewsName is the name of the folder, in the folder of a store, in which read-only
// commands cache the states of projections.
const ViewsName = "views"

// readerViews caches the states of projections for read-only commands. It reads the
// checkpoints of the log and of the folder ViewsName. It writes only to that folder,
// and only if the user of this process owns the store's folder, so that another user
// leaves no file there.
type readerViews struct {
	// log has the log's own checkpoints. It is only read.
	log publish.ConsumerStore
	// beside has the checkpoints in the folder ViewsName. It is empty if another user
	// owns the store's folder.
	beside checkpointFolder
}

// viewsBeside returns the readerViews for the store in the folder dir. log has the
// checkpoints of that store's log.
func viewsBeside(dir string, log publish.ConsumerStore) readerViews {
	v := readerViews{log: log}
	if info, err := os.Stat(dir); err == nil && owned(info) {
		v.beside = checkpointFolder(filepath.Join(dir, ViewsName))
	}
	return v
}

// LoadCheckpoint returns the checkpoint name from the log or from the folder ViewsName,
// whichever is newer, or nil if neither has one. The folder may be a copy from another
// store: the caller checks that the checkpoint belongs to the log.
func (v readerViews) LoadCheckpoint(ctx context.Context, name string) ([]byte, error) {
	kept, err := v.log.LoadCheckpoint(ctx, name)
	if err != nil || v.beside == "" {
		return kept, err
	}
	own, err := v.beside.LoadCheckpoint(ctx, name)
	if err != nil || CheckpointPosition(own).Compare(CheckpointPosition(kept)) <= 0 {
		return kept, nil // the caller folds again if the cache is unreadable
	}
	return own, nil
}

// CheckpointPosition returns the log position of a checkpoint, which is in the JSON
// of its first line. It returns the zero Position for other data.
func CheckpointPosition(data []byte) events.Position {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	var at struct{ Position events.Position }
	if json.Unmarshal(line, &at) != nil {
		return events.Position{}
	}
	return at.Position
}

// SaveCheckpoint writes a checkpoint to the folder ViewsName, which it makes if
// necessary. It returns an embedded.ErrReadOnly if another user owns the store's
// folder.
func (v readerViews) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	if v.beside == "" {
		return embedded.ErrReadOnly
	}
	return v.beside.SaveCheckpoint(ctx, name, data)
}

// Sync returns the cause of ctx and does no work: SaveCheckpoint is durable when it returns.
func (v readerViews) Sync(ctx context.Context) error { return context.Cause(ctx) }
