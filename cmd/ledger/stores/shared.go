package stores

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// OpenSharedFolder opens the store in a folder to write to it, alongside the other processes
// that have it open: this process holds the folder, or uses it through the one that
// does.
func (o *Opener) OpenSharedFolder(ctx context.Context, dir string) (*Store, error) {
	s := &Store{Name: dir, ClaimsDir: filepath.Join(dir, claimsName), Shared: true, TookOver: &atomic.Pointer[func(context.Context)]{}}
	cfg := o.sharing()
	s.Process = o.Mint().Process()
	cfg.Process, cfg.TookOver = s.Process, func(ctx context.Context) {
		if recover := s.TookOver.Load(); recover != nil {
			(*recover)(ctx)
		}
	}
	return o.openShared(ctx, s, cfg)
}

// openServed opens the store in a folder to read it, through the process that holds
// the folder. When that is gone the folder is read as the others left it.
func (o *Opener) openServed(ctx context.Context, dir string) (*Store, error) {
	s := &Store{Name: dir, ClaimsDir: filepath.Join(dir, claimsName), Shared: true}
	cfg := o.sharing()
	cfg.ReadOnly = func(ctx context.Context) (shared.Backend, error) {
		read, err := o.openReader(ctx, dir)
		if err != nil {
			return shared.Backend{}, err
		}
		return shared.Backend{Log: read.Log, Outputs: read.LocalOutputs, Checkpoints: read.Checkpoints, Close: read.Close}, nil
	}
	return o.openShared(ctx, s, cfg)
}

func (o *Opener) openShared(ctx context.Context, s *Store, cfg shared.Config) (*Store, error) {
	store, err := shared.Open(ctx, s.Name, cfg)
	if err != nil {
		return nil, unopened(err)
	}
	s.Log, s.Checkpoints, s.Sharing, s.LocalOutputs, s.NodeAddress = store, store, store, store.Outputs(), store.Node()
	s.Ledger = o.newLedger(store)
	nodes := remote.OpenNodes(s.LocalOutputs, s.Ledger, remote.Config{Colocated: true})
	s.Outputs = nodes
	s.close = func() error { return errors.Join(nodes.Close(), store.Close(context.Background())) }
	return s, nil
}

// sharing says how this process uses a folder that others use too.
func (o *Opener) sharing() shared.Config {
	return shared.Config{
		Command: o.Command, Timeout: o.Timeout, Logger: o.NewLogger(slog.LevelWarn),
		Waiting: o.Waiting,
	}
}

// Holds reports whether this process has the lock of the folder, so that processes
// without a lease and those that held the folder before are dead.
func (s *Store) Holds() bool {
	return s.Folder != nil || s.Sharing != nil && s.Sharing.Holds()
}

// HeldBefore returns the processes that held the folder before this one and were
// killed, if this process has the lock or reads a folder that none has.
func (s *Store) HeldBefore() []domain.ProcessID {
	if s.Sharing != nil {
		return s.Sharing.Before()
	}
	return s.Before
}
