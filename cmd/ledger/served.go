package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// openAt opens the store in a folder to write to it, alongside the other processes
// that have it open: this process holds the folder, or uses it through the one that
// does.
func (a *app) openAt(ctx context.Context, dir string) (*ledgerStore, error) {
	s := &ledgerStore{name: dir, claims: filepath.Join(dir, claimsName), shared: true, tookOver: &atomic.Pointer[func(context.Context)]{}}
	cfg := a.sharing()
	s.process = a.mint().Process()
	cfg.Process, cfg.TookOver = s.process, func(ctx context.Context) {
		if recover := s.tookOver.Load(); recover != nil {
			(*recover)(ctx)
		}
	}
	return a.openShared(ctx, s, cfg)
}

// openServed opens the store in a folder to read it, through the process that holds
// the folder. When that is gone the folder is read as the others left it.
func (a *app) openServed(ctx context.Context, dir string) (*ledgerStore, error) {
	s := &ledgerStore{name: dir, claims: filepath.Join(dir, claimsName), shared: true}
	cfg := a.sharing()
	cfg.ReadOnly = func(ctx context.Context) (shared.Backend, error) {
		read, err := a.openReader(ctx, dir)
		if err != nil {
			return shared.Backend{}, err
		}
		return shared.Backend{Log: read.store, Outputs: read.here, Checkpoints: read.checkpoints, Close: read.Close}, nil
	}
	return a.openShared(ctx, s, cfg)
}

func (a *app) openShared(ctx context.Context, s *ledgerStore, cfg shared.Config) (*ledgerStore, error) {
	store, err := shared.Open(ctx, s.name, cfg)
	if err != nil {
		return nil, unopened(err)
	}
	s.store, s.checkpoints, s.sharing, s.here, s.address = store, store, store, store.Outputs(), store.Node()
	s.ledger = a.ledgerOver(store)
	nodes := remote.OpenNodes(s.here, s.ledger, remote.Config{Colocated: true})
	s.outputs = nodes
	s.close = func() error { return errors.Join(nodes.Close(), store.Close(context.Background())) }
	return s, nil
}

// sharing says how this process uses a folder that others use too.
func (a *app) sharing() shared.Config {
	return shared.Config{
		Command: a.command, Timeout: a.patience, Logger: a.Logger(slog.LevelWarn),
		Waiting: func(w shared.LockWait) { fmt.Fprintf(a.Err, "waiting for %s\n", render.Printable(w.String())) },
	}
}

// holds reports whether this process has the lock of the folder, so that processes
// without a lease and those that held the folder before are dead.
func (s *ledgerStore) holds() bool {
	return s.folder != nil || s.sharing != nil && s.sharing.Holds()
}

// heldBefore returns the processes that held the folder before this one and were
// killed, if this process has the lock or reads a folder that none has.
func (s *ledgerStore) heldBefore() []domain.ProcessID {
	if s.sharing != nil {
		return s.sharing.Before()
	}
	return s.before
}
