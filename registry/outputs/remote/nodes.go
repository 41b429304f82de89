package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// Nodes reads the blobs of all processes of a ledger: from the local store, or from
// the node of the process that settled the call, according to the log. It writes to
// the local store only. The caller of OpenNodes closes it. It is safe for concurrent
// use; no lock is held during a request.
//
// It sends the credentials of its Config to every node in the log, but only over TLS
// or on this machine.
type Nodes struct {
	// BlobStore is the local store. Nodes does not close it.
	BlobStore
	ledger *events.Ledger
	config Config
	mu     struct {
		sync.Mutex
		// closed is set by Close.
		closed bool
		// clients has the open client of each address.
		clients map[string]*Client
		// unreachable has the cached failures by address.
		unreachable map[string]unreachableNode
	}
}

// An unreachableNode is the cached failure of a node, and the time at which the
// failure expires.
type unreachableNode struct {
	err   error
	until time.Time
}

// unreachableTTL is how long Nodes sends no request to a node after it was
// unreachable.
const unreachableTTL = 5 * time.Second

// OpenNodes combines the local blobs with the blobs at the nodes of a ledger. The caller
// stays the owner of local and ledger. The config applies to all nodes. If local is nil,
// there is no local store, and Keep returns an outputs.ErrNotKept.
func OpenNodes(local BlobStore, ledger *events.Ledger, cfg Config) *Nodes {
	if local == nil {
		local = emptyStore{}
	}
	n := &Nodes{BlobStore: local, ledger: ledger, config: cfg}
	n.mu.clients = map[string]*Client{}
	n.mu.unreachable = map[string]unreachableNode{}
	return n
}

// Close closes the clients of other nodes. Reading a remote blob afterwards returns an
// outputs.ErrClosed. A second Close has no effect.
func (n *Nodes) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.closed = true
	var err error
	for _, c := range n.mu.clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Open opens a blob from the local store or from a node; the caller closes the Reader.
// Besides the errors of [outputs.Store.Open] it returns an [ErrUnreachable] that names
// the process that settled the call and a remedy, and an outputs.ErrDamaged if every
// node that answers has another blob than the settlement event references.
func (n *Nodes) Open(ctx context.Context, ref domain.Ref) (Reader, error) {
	o, err := n.BlobStore.Open(ctx, ref)
	if !errors.Is(err, outputs.ErrNotFound) {
		return o, err
	}
	return n.openRemote(ctx, ref)
}

// openRemote opens a blob at the first node that has the blob.
func (n *Nodes) openRemote(ctx context.Context, ref domain.Ref) (Reader, error) {
	var o Reader
	err := n.tryNodes(ctx, ref, func(c *Client) (domain.Retained, error) {
		opened, err := c.open(ctx, ref)
		if err != nil {
			return domain.Retained{}, err
		}
		o = opened
		return o.Retained(), nil
	})
	if err != nil {
		return nil, fmt.Errorf("open %v: %w", ref, err)
	}
	return o, nil
}

// Stat returns the metadata of a blob from the local store or from a node. It returns the
// errors of Open; for a pruned blob it returns the metadata as well.
func (n *Nodes) Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error) {
	retained, err := n.BlobStore.Stat(ctx, ref)
	if !errors.Is(err, outputs.ErrNotFound) {
		return retained, err
	}
	err = n.tryNodes(ctx, ref, func(c *Client) (_ domain.Retained, err error) {
		retained, err = c.stat(ctx, ref)
		return retained, err
	})
	if err != nil {
		return retained, fmt.Errorf("stat %v: %w", ref, err)
	}
	return retained, nil
}

// Verify reads a whole blob from the local store or from a node, and compares it with its
// metadata and with the settlement event. It returns the errors of Open.
func (n *Nodes) Verify(ctx context.Context, ref domain.Ref) error {
	err := n.BlobStore.Verify(ctx, ref)
	if !errors.Is(err, outputs.ErrNotFound) {
		return err
	}
	o, err := n.openRemote(ctx, ref)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	defer o.Close()
	return readToEnd(o)
}

// tryNodes calls try with a client of each node that may have a blob, one node after
// the other. It returns nil after the first node that has the blob, an
// outputs.PrunedError after a node where the blob was pruned, and the result of the
// method notFound after the last node. It stops when ctx ends or n is closed.
//
// It goes on to the next node if a node is unreachable, does not have the blob, or has
// a blob that differs from the settlement event. Such a node may be another machine
// with the same host name.
func (n *Nodes) tryNodes(ctx context.Context, ref domain.Ref, try func(*Client) (domain.Retained, error)) error {
	location, err := locate(ctx, n.ledger, ref)
	if err != nil {
		return err
	}
	var failures []error
	var damageErr error
	for _, address := range location.Addresses {
		retained, err := n.tryNode(address, try)
		pruned, isPruned := errors.AsType[*outputs.PrunedError](err)
		if isPruned {
			retained = pruned.Retained
		}
		switch {
		case (err == nil || isPruned) && retained != location.Retained:
			damageErr = fmt.Errorf("%w: node %s has %d bytes with SHA-256 %s, and the settlement names %d and %s", outputs.ErrDamaged,
				address, retained.Bytes, retained.SHA256, location.Retained.Bytes, location.Retained.SHA256)
		case err == nil, isPruned:
			return err
		case errors.Is(err, outputs.ErrDamaged):
			damageErr = err
		case errors.Is(err, outputs.ErrNotFound):
		case n.isDone(ctx):
			return err
		default:
			failures = append(failures, location.explain(address, err))
		}
	}
	return n.notFound(location, failures, damageErr)
}

// isDone reports whether n was closed or ctx has ended, so that further nodes need not
// be tried.
func (n *Nodes) isDone(ctx context.Context) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.closed || ctx.Err() != nil
}

// notFound returns the error for a blob that no node returned. The first rule that
// applies decides:
//
//   - A node has damaged or different bytes: damageErr.
//   - The process that settled the call stored its outputs in the local store:
//     outputs.ErrNotFound.
//   - Requests to nodes failed: the joined failures.
//   - The process that settled the call registered an address: outputs.ErrNotFound.
//   - Otherwise: ErrUnreachable.
func (n *Nodes) notFound(location Location, failures []error, damageErr error) error {
	switch {
	case damageErr != nil:
		return fmt.Errorf("it was settled by %s: %w", location, damageErr)
	case n.config.Colocated && (location.Process.InStore || location.Process.Until.IsZero()):
		// The process that settled the call wrote to this store.
		return fmt.Errorf("%w, where it was kept by %s", outputs.ErrNotFound, location)
	case len(failures) > 0:
		return fmt.Errorf("it was settled by %s: %w: start ledger serve there, or copy its outputs here", location, joinedErrors(failures))
	case location.Process.Address != "":
		return fmt.Errorf("%w, neither here nor where it was settled, by %s", outputs.ErrNotFound, location)
	}
	// Later processes of its host responded, but they may have another store.
	return fmt.Errorf("it was settled by %s, which registered no address: %w: start ledger serve there, or copy its outputs here", location, ErrUnreachable)
}

// tryNode calls try with a client of the node at an address. If the node is
// unreachable, tryNode caches the error. While the error is cached, tryNode returns it
// without calling try.
func (n *Nodes) tryNode(address string, try func(*Client) (domain.Retained, error)) (domain.Retained, error) {
	c, err := n.client(address)
	if err != nil {
		return domain.Retained{}, err
	}
	retained, err := try(c)
	if errors.Is(err, ErrUnreachable) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.mu.unreachable[address] = unreachableNode{err, time.Now().Add(unreachableTTL)}
	}
	return retained, err
}

// client returns the client of an address. It opens the client at the first call for
// that address. While an error of the node is cached, it returns that error.
func (n *Nodes) client(address string) (*Client, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return nil, outputs.ErrClosed
	}
	if f, ok := n.mu.unreachable[address]; ok && time.Now().Before(f.until) {
		return nil, f.err
	}
	if c, ok := n.mu.clients[address]; ok {
		return c, nil
	}
	c, err := Open(address, n.config)
	if err == nil {
		n.mu.clients[address] = c
	}
	return c, err
}

// joinedErrors are several errors with a text of one line. errors.Is matches each of
// the errors.
type joinedErrors []error

func (j joinedErrors) Unwrap() []error { return j }

func (j joinedErrors) Error() string {
	text := j[0].Error()
	for _, err := range j[1:] {
		text += "; " + err.Error()
	}
	return text
}

// An emptyStore is a BlobStore without blobs. Keep always fails.
type emptyStore struct{}

// Keep returns an outputs.ErrNotKept.
func (emptyStore) Keep(_ context.Context, ref domain.Ref, _ string, _ io.Reader) (domain.Retained, error) {
	return domain.Retained{}, fmt.Errorf("keep %v: %w: this process has no store of outputs", ref, outputs.ErrNotKept)
}

// Confirm returns nil: there is no blob to confirm.
func (emptyStore) Confirm(context.Context, domain.EventID) error { return nil }

func (emptyStore) Open(context.Context, domain.Ref) (Reader, error) { return nil, outputs.ErrNotFound }

func (emptyStore) Stat(context.Context, domain.Ref) (domain.Retained, error) {
	return domain.Retained{}, outputs.ErrNotFound
}

func (emptyStore) Verify(context.Context, domain.Ref) error { return outputs.ErrNotFound }

// All yields no blob.
func (emptyStore) All(context.Context) iter.Seq2[domain.Retained, error] {
	return func(func(domain.Retained, error) bool) {}
}
