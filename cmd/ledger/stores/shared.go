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

// OpenSharedFolder opens the store in a folder for writing, together with other
// processes: this process takes the lock of the folder, or becomes a client of the
// process that has the lock. When that process ends, this process may take the lock. It
// then calls the function in Store.TookOver, if the caller has set one.
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

// openServed opens the store in a folder for reading, as a client of the process that
// has the folder's lock. If that process ends and no other process has the lock, the
// Store reads the files of the folder without recovering the sessions of dead processes.
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

// openShared opens the folder s.Name with cfg and fills in the fields of s. Its Close closes
// the clients of other nodes and then the folder.
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

// sharing returns the settings with which this process opens a shared folder.
func (o *Opener) sharing() shared.Config {
	return shared.Config{
		Command: o.Command, Timeout: o.Timeout, Logger: o.NewLogger(slog.LevelWarn),
		Waiting: o.Waiting,
	}
}

// Holds reports whether this process has the lock of the folder, or has read the
// folder's files while no process had the lock. In both cases no other process works in
// the folder, so earlier owners of the lock and processes without a lease are dead.
func (s *Store) Holds() bool {
	return s.Folder != nil || s.Sharing != nil && s.Sharing.Holds()
}

// heldBefore returns the killed processes that had the lock of the folder before. It returns
// nil for a client of another process and for a database.
func (s *Store) heldBefore() []domain.ProcessID {
	if s.Sharing != nil {
		return s.Sharing.Before()
	}
	return s.Before
}
