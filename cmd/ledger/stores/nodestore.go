package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner/engine/shared"
)

// A NodeStore gives this process access to the outputs in the folder of this node, for a
// ledger in a database. If a process of this machine serves the folder, the NodeStore is
// a client of that process. Otherwise it opens the outputs itself. It closes them
// idleTimeout after the last use, so that other processes can open them in between.
// Callers of a NodeStore need not notice when a process starts or stops serving.
type NodeStore struct {
	// dir is the folder of the node.
	dir string
	// mu is held while the outputs are opened or closed, and not while they are used.
	mu struct {
		sync.Mutex
		// local is the outputs store that this process has open, or nil.
		local *outputs.Store
		// users is the number of leases of local.
		users int
		// idle calls closeIdle idleTimeout after the last release. It is nil before
		// the first.
		idle *time.Timer
		// server is the client of the process that serves the folder, or nil if it is
		// not known.
		server *remote.Client
		// closed reports that Close was called.
		closed bool
	}
}

// The timeouts of a node's folder.
const (
	// idleTimeout is the time between the last release and the closing of the
	// outputs. A command that uses them repeatedly does not reopen them each time.
	idleTimeout = 300 * time.Millisecond
	// holdTimeout bounds the wait of Hold for another process to close the outputs.
	holdTimeout = 3 * time.Second
	// acquireTimeout bounds the wait of acquire for another process to close the outputs.
	acquireTimeout = 20 * time.Second
)

// An outputsLease keeps the outputs of a node open for one user, who calls release at
// the end. Unlike the lease of a process it does not expire.
type outputsLease struct {
	remote.BlobStore
	// store is the outputs store of this process, or nil if another process serves
	// the outputs.
	store *outputs.Store
	// release ends the lease. It may be called again.
	release func()
}

// acquire returns a lease of the outputs, which this process opens or another process
// serves. If another process has the outputs open and does not serve them, acquire
// retries for up to acquireTimeout and then returns an outputs.ErrInUse.
func (n *NodeStore) acquire(ctx context.Context) (*outputsLease, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, acquireTimeout, outputs.ErrInUse)
	defer cancel()
	for {
		t, err := n.try()
		if !errors.Is(err, outputs.ErrInUse) {
			return t, err
		}
		if Sleep(waiting, RetryInterval) == nil {
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fault.WithHint(err, "another process of this machine keeps its outputs there: end it, or set LEDGER_NODE to another folder for this one")
	}
}

// Hold opens the outputs in this process, which is about to serve them, and keeps them
// open until Close. If another process has the outputs open or serves them, Hold retries
// for up to holdTimeout. It then returns an outputs.ErrInUse, which names that process
// if it is known.
func (n *NodeStore) Hold(ctx context.Context) (*outputs.Store, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, holdTimeout, outputs.ErrInUse)
	defer cancel()
	for {
		t, err := n.try()
		switch {
		case err == nil && t.store != nil:
			return t.store, nil // the lease is not released: Close closes the outputs
		case err == nil:
			n.forget(t)
		case !errors.Is(err, outputs.ErrInUse):
			return nil, err
		}
		if Sleep(waiting, RetryInterval) == nil {
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		by := "another process"
		if at := shared.LastEndpoint(n.dir); t != nil {
			by = at.String()
		}
		return nil, fault.WithHint(fmt.Errorf("%s is in use by %s: %w", n.dir, by, outputs.ErrInUse), "end that process, or name another folder with LEDGER_NODE")
	}
}

// try returns a lease of the outputs without waiting. It returns an outputs.ErrInUse if
// another process has the outputs open and does not serve them, and an outputs.ErrClosed
// after Close.
func (n *NodeStore) try() (*outputsLease, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.mu.closed:
		return nil, outputs.ErrClosed
	case n.mu.server != nil:
		return &outputsLease{n.mu.server, nil, func() {}}, nil
	case n.mu.local == nil:
		err := n.openLocked()
		if errors.Is(err, outputs.ErrInUse) {
			return n.servedLocked(err)
		}
		if err != nil {
			return nil, err
		}
	}
	if n.mu.idle != nil {
		n.mu.idle.Stop()
	}
	n.mu.users++
	return &outputsLease{remote.Local(n.mu.local), n.mu.local, sync.OnceFunc(n.release)}, nil
}

// openLocked opens the outputs in this process, which thereby has their lock. If the
// folder then has an endpoint file, a killed process left it, and openLocked removes the
// file. The caller holds mu.
func (n *NodeStore) openLocked() error {
	dir := filepath.Join(n.dir, OutputsName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	opened, err := outputs.Open(dir, outputs.Config{})
	if err != nil {
		return err
	}
	if err := shared.RetireKilled(n.dir); err != nil {
		return errors.Join(err, opened.Close())
	}
	n.mu.local = opened
	return nil
}

// servedLocked returns a lease of the outputs through the process that serves the
// folder. If the folder has no endpoint file, no process serves it, and servedLocked
// returns the error in the parameter otherwise. The caller holds mu.
func (n *NodeStore) servedLocked(otherwise error) (*outputsLease, error) {
	at, err := shared.ReadEndpoint(n.dir)
	if errors.Is(err, shared.ErrNoEndpoint) {
		return nil, otherwise
	}
	if err != nil {
		return nil, err
	}
	near, err := shared.NewClient(at)
	if err != nil {
		return nil, err
	}
	client, err := near.Outputs(0)
	if err != nil {
		return nil, err
	}
	n.mu.server = client
	return &outputsLease{client, nil, func() {}}, nil
}

// release ends one lease of n.mu.local. After the last lease it starts the timer that
// closes the outputs.
func (n *NodeStore) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.users--; n.mu.users == 0 && !n.mu.closed {
		n.mu.idle = time.AfterFunc(idleTimeout, n.closeIdle)
	}
}

// closeIdle closes n.mu.local if no lease of it remains. It runs on the goroutine of the
// timer. It ignores the error of closing: finished operations are durable, and the next
// opening fails for the same cause.
func (n *NodeStore) closeIdle() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.users == 0 && n.mu.local != nil && !n.mu.closed {
		_ = n.mu.local.Close()
		n.mu.local = nil
	}
}

// isGone reports whether err shows that the process that served the outputs has ended.
// err is the error of an operation that used the lease t. If so, isGone drops the client
// of that process, and the caller acquires the outputs again. It returns false if this
// process itself has the outputs open, and after Close.
func (n *NodeStore) isGone(t *outputsLease, err error) bool {
	if t.store != nil {
		return false
	}
	for _, sign := range []error{remote.ErrUnreachable, remote.ErrNotANode, remote.ErrDenied, outputs.ErrClosed} {
		if errors.Is(err, sign) {
			return n.forget(t)
		}
	}
	return false
}

// forget closes the client of the process that serves the outputs, if t uses it and n still
// does, so that the next operation searches for the outputs again. It returns false if n is
// closed; the caller then does not try again.
func (n *NodeStore) forget(t *outputsLease) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.server == t.BlobStore && n.mu.server != nil {
		_ = n.mu.server.Close() // it closes idle connections only
		n.mu.server = nil
	}
	return !n.mu.closed
}

// Close closes the outputs, if they are open, and the client of the serving process. Later
// operations return an outputs.ErrClosed.
func (n *NodeStore) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.closed = true
	if n.mu.idle != nil {
		n.mu.idle.Stop()
	}
	var errs []error
	if n.mu.server != nil {
		errs = append(errs, n.mu.server.Close())
	}
	if n.mu.local != nil {
		errs = append(errs, n.mu.local.Close())
	}
	n.mu.local, n.mu.server = nil, nil
	return errors.Join(errs...)
}
