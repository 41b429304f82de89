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

// A NodeStore is where this node keeps what a database does not: the outputs,
// and checkpoints beside them. The outputs are asked of the process of this machine
// that serves the node. Where none does, they are opened for as long as something
// is asked of them, and a little longer: processes keep outputs there one after the
// other. One that stops serving, or begins to, changes nothing for those at work.
type NodeStore struct {
	dir string
	mu  struct {
		sync.Mutex // held while the outputs are opened
		local      *outputs.Store
		users      int            // of local
		idle       *time.Timer    // closes local, where it has no users
		server     *remote.Client // of who serves the node
		closed     bool
	}
}

// The times of a node's folder.
const (
	idleTimeout    = 300 * time.Millisecond // for which open outputs wait for more to do
	holdTimeout    = 3 * time.Second        // within which one that begins to serve must have them
	acquireTimeout = 20 * time.Second       // for which others wait for them
)

// A outputsLease is the use of the outputs of a node. Whoever has it leaves.
type outputsLease struct {
	remote.BlobStore
	store   *outputs.Store // nil: another process serves them
	release func()
}

// acquire returns the outputs from wherever they are to be had now. It waits for
// another process that has them open.
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
		return nil, fault.WithHint(err, "another process of this machine keeps its outputs there: end it, or give this one a folder of its own with LEDGER_NODE")
	}
}

// Hold opens the outputs until n is closed, for the process that serves them.
func (n *NodeStore) Hold(ctx context.Context) (*outputs.Store, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, holdTimeout, outputs.ErrInUse)
	defer cancel()
	for {
		t, err := n.try()
		switch {
		case err == nil && t.store != nil:
			return t.store, nil // and never leaves
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

// try returns the outputs if they are to be had, and an outputs.ErrInUse if
// another process that does not serve them has them open.
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

// openLocked opens the outputs. A process that is said to serve them was killed,
// or it would have them open.
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

// servedLocked returns the outputs of the process that serves them, and otherwise
// if there is none.
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

// release ends a use of the outputs, which are closed if there is no other for a
// while.
func (n *NodeStore) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.users--; n.mu.users == 0 && !n.mu.closed {
		n.mu.idle = time.AfterFunc(idleTimeout, n.closeIdle)
	}
}

// closeIdle closes the outputs if nobody uses them. What was asked of them is durable:
// an error of closing loses nothing, and the next use meets its cause.
func (n *NodeStore) closeIdle() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.users == 0 && n.mu.local != nil && !n.mu.closed {
		_ = n.mu.local.Close()
		n.mu.local = nil
	}
}

// isGone reports whether an error says that the process that served the outputs
// serves them no more. If so they are looked for again.
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

// forget has the outputs looked for again that were found at a server. It reports
// whether they can be.
func (n *NodeStore) forget(t *outputsLease) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.server == t.BlobStore && n.mu.server != nil {
		_ = n.mu.server.Close() // of idle connections
		n.mu.server = nil
	}
	return !n.mu.closed
}

// Close closes the outputs if they are open. What is asked for after it is an
// outputs.ErrClosed.
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
