package main

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

// reading opens the store to read it, calls use with it and closes it. It changes
// nothing in the log and the outputs of a folder, and holds no lock while use runs.
func (a *app) reading(ctx context.Context, use func(*ledgerStore) error) error {
	at, err := a.where()
	if err != nil {
		return err
	}
	s, err := a.openToRead(ctx, at)
	if err != nil {
		return err
	}
	return errors.Join(use(s), s.Close())
}

// openToRead opens the store at an address to read it. A folder that a process
// has open is reached through that process, and any other is read as it is: what a
// killed process left is neither recovered nor ended. A folder that does not
// exist is a fault, and is not made.
func (a *app) openToRead(ctx context.Context, at address) (*ledgerStore, error) {
	if at.database != "" {
		return a.openDatabase(ctx, at)
	}
	if missing(at.folder) {
		return nil, noStore(at.folder)
	}
	s, err := a.openReader(ctx, at.folder)
	if errors.Is(err, events.ErrInUse) || errors.Is(err, outputs.ErrInUse) {
		return a.openServed(ctx, at.folder)
	}
	return s, err
}

// openReader opens a folder that no process has open, as it is now.
func (a *app) openReader(ctx context.Context, dir string) (*ledgerStore, error) {
	store, err := embedded.OpenReader(ctx, dir, embedded.Config{Logger: a.Logger(slog.LevelWarn)})
	if err != nil {
		return nil, unopened(err)
	}
	kept, err := engine.ReadOutputs(ctx, store, dir, a.Logger(slog.LevelWarn))
	if err != nil {
		return nil, unopened(errors.Join(err, store.Close()))
	}
	s := a.openedFolder(dir, store, kept)
	s.checkpoints, s.reader = viewsBeside(dir, store), true
	return s, nil
}

// viewsName is the folder in a store's where commands that only read keep the
// answers of projections.
const viewsName = "views"

// readersViews keep the answers of projections for commands that only read: in a
// folder of files beside the log, if the store's folder belongs to the user of this
// process, and else nowhere. What the log itself keeps is read as well.
type readersViews struct {
	log    publish.ConsumerStore
	beside checkpointFolder // empty: nothing is saved
}

func viewsBeside(dir string, log publish.ConsumerStore) readersViews {
	v := readersViews{log: log}
	if info, err := os.Stat(dir); err == nil && owned(info) {
		v.beside = checkpointFolder(filepath.Join(dir, viewsName))
	}
	return v
}

// LoadCheckpoint returns the newer of the answers that the log and the folder keep.
// The caller checks that it belongs to the log: the folder may be a copy of another.
func (v readersViews) LoadCheckpoint(ctx context.Context, name string) ([]byte, error) {
	kept, err := v.log.LoadCheckpoint(ctx, name)
	if err != nil || v.beside == "" {
		return kept, err
	}
	own, err := v.beside.LoadCheckpoint(ctx, name)
	if err != nil || answeredTo(own).Compare(answeredTo(kept)) <= 0 {
		return kept, nil // an answer that cannot be read is folded again
	}
	return own, nil
}

// answeredTo returns the position of an answer that is kept, and the zero Position
// for anything else.
func answeredTo(data []byte) events.Position {
	line, _, _ := bytes.Cut(data, []byte("\n"))
	var at struct{ Position events.Position }
	if json.Unmarshal(line, &at) != nil {
		return events.Position{}
	}
	return at.Position
}

// SaveCheckpoint keeps an answer in the folder of views, which it makes, and returns
// an embedded.ErrReadOnly if the store's folder belongs to another user.
func (v readersViews) SaveCheckpoint(ctx context.Context, name string, data []byte) error {
	if v.beside == "" {
		return embedded.ErrReadOnly
	}
	return v.beside.SaveCheckpoint(ctx, name, data)
}

// Sync does nothing: an answer is durable once it is saved.
func (v readersViews) Sync(ctx context.Context) error { return context.Cause(ctx) }
