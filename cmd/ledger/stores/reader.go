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

// Read opens the store to read it, calls use with it and closes it. It changes
// nothing in the log and the outputs of a folder, and holds no lock while use runs.
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

// OpenToReadAt opens the store at an address to read it. A folder that a process
// has open is reached through that process, and any other is read as it is: what a
// killed process left is neither recovered nor ended. A folder that does not
// exist is a fault, and is not made.
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

// openReader opens a folder that no process has open, as it is now.
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

// ViewsName is the folder in a store's where commands that only read keep the
// answers of projections.
const ViewsName = "views"

// readerViews keep the answers of projections for commands that only read: in a
// folder of files beside the log, if the store's folder belongs to the user of this
// process, and else nowhere. What the log itself keeps is read as well.
type readerViews struct {
	log    publish.ConsumerStore
	beside checkpointFolder // empty: nothing is saved
}

func viewsBeside(dir string, log publish.ConsumerStore) readerViews {
	v := readerViews{log: log}
	if info, err := os.Stat(dir); err == nil && owned(info) {
		v.beside = checkpointFolder(filepath.Join(dir, ViewsName))
	}
	return v
}

// LoadCheckpoint returns the newer of the answers that the log and the folder keep.
// The caller checks that it belongs to the log: the folder may be a copy of another.
func (v readerViews) LoadCheckpoint(ctx context.Context, name string) ([]byte, error) {
	kept, err := v.log.LoadCheckpoint(ctx, name)
	if err != nil || v.beside == "" {
		return kept, err
	}
	own, err := v.beside.LoadCheckpoint(ctx, name)
	if err != nil || CheckpointPosition(own).Compare(CheckpointPosition(kept)) <= 0 {
		return kept, nil // an answer that cannot be read is folded again
	}
	return own, nil
}

// CheckpointPosition returns the position of an answer that is kept, and the zero Position
// for anything else.
func CheckpointPosition(data []byte) events.Position {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	var at struct{ Position events.Position }
	if json.Unmarshal(line, &at) != nil {
		return events.Position{}
	}
	return at.Position
}

// SaveCheckpoint keeps an answer in the folder of views, which it makes, and returns
// an embedded.ErrReadOnly if the store's folder belongs to another user.
func (v readerViews) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	if v.beside == "" {
		return embedded.ErrReadOnly
	}
	return v.beside.SaveCheckpoint(ctx, name, data)
}

// Sync does nothing: an answer is durable once it is saved.
func (v readerViews) Sync(ctx context.Context) error { return context.Cause(ctx) }
