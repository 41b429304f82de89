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

// Nodes are the outputs of all processes of a ledger. They are kept here; one
// that is not here is read from the node of the process that settled it, which
// the log names. Whoever opened it closes it.
//
// The credentials are sent to every node that the log names, over TLS or on this
// machine alone.
type Nodes struct {
	BlobStore // that are here
	ledger    *events.Ledger
	config    Config
	mu        struct {
		sync.Mutex
		closed      bool
		clients     map[string]*Client
		unreachable map[string]unreachableNode // nodes that could not be reached a moment ago
	}
}

// A fault is why a node could not be reached, and until when that is believed.
type unreachableNode struct {
	err   error
	until time.Time
}

// belief is for how long a node that could not be reached is not asked again.
const unreachableTTL = 5 * time.Second

// OpenNodes returns the outputs that are here, which are their owner's, with
// those of the nodes that a ledger names, which are asked as the config says.
// Where here is nil, nothing is kept here.
func OpenNodes(local BlobStore, ledger *events.Ledger, cfg Config) *Nodes {
	if local == nil {
		local = emptyStore{}
	}
	n := &Nodes{BlobStore: local, ledger: ledger, config: cfg}
	n.mu.clients = map[string]*Client{}
	n.mu.unreachable = map[string]unreachableNode{}
	return n
}

// Close ends the use of other nodes. An output that has to be read from one is
// an outputs.ErrClosed from then on. A second Close does nothing.
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

// Open opens an output wherever it is. Beside the errors of [outputs.Store.Open]
// it returns an [ErrUnreachable] that names the process that settled it and says
// what can be done, and an outputs.ErrDamaged for an output that is not the one
// that its settlement names.
func (n *Nodes) Open(ctx context.Context, ref domain.Ref) (Reader, error) {
	o, err := n.BlobStore.Open(ctx, ref)
	if !errors.Is(err, outputs.ErrNotFound) {
		return o, err
	}
	return n.openRemote(ctx, ref)
}

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

// Stat returns what is known of an output wherever it is, with the errors of
// Open; for a pruned output as [outputs.Store.Stat] does.
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

// Verify reads a whole output, wherever it is, and compares it with what is
// known of it and with what its settlement names. Its errors are those of Open.
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

// reach asks the nodes that may have an output, until one does. What another
// machine of the same name answers decides nothing: an output that is not the
// one that its settlement names is looked for at the next address.
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

// ended reports whether what n was asked can have no answer any more.
func (n *Nodes) isDone(ctx context.Context) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.closed || ctx.Err() != nil
}

// missing returns why an output was to be had from no node.
func (n *Nodes) notFound(location Location, failures []error, damageErr error) error {
	switch {
	case damageErr != nil:
		return fmt.Errorf("it was settled by %s: %w", location, damageErr)
	case n.config.Colocated && (location.Process.InStore || location.Process.Until.IsZero()):
		// The process that settled it kept its outputs in the store that is here.
		return fmt.Errorf("%w, where it was kept by %s", outputs.ErrNotFound, location)
	case len(failures) > 0:
		return fmt.Errorf("it was settled by %s: %w: start ledger serve there, or copy its outputs here", location, joinedErrors(failures))
	case location.Process.Address != "":
		return fmt.Errorf("%w, neither here nor where it was settled, by %s", outputs.ErrNotFound, location)
	}
	// Others of its host do not have it, which may be because they have another store.
	return fmt.Errorf("it was settled by %s, which told no address: %w: start ledger serve there, or copy its outputs here", location, ErrUnreachable)
}

// askAt asks the node at an address, but not one that could not be reached a
// moment ago.
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

// joined errors are told in one line.
type joinedErrors []error

func (j joinedErrors) Unwrap() []error { return j }

func (j joinedErrors) Error() string {
	text := j[0].Error()
	for _, err := range j[1:] {
		text += "; " + err.Error()
	}
	return text
}

// nowhere is a place in which no output is.
type emptyStore struct{}

func (emptyStore) Keep(_ context.Context, ref domain.Ref, _ string, _ io.Reader) (domain.Retained, error) {
	return domain.Retained{}, fmt.Errorf("keep %v: %w: there is no storage for outputs here", ref, outputs.ErrNotKept)
}

func (emptyStore) Confirm(context.Context, domain.EventID) error { return nil }

func (emptyStore) Open(context.Context, domain.Ref) (Reader, error) { return nil, outputs.ErrNotFound }

func (emptyStore) Stat(context.Context, domain.Ref) (domain.Retained, error) {
	return domain.Retained{}, outputs.ErrNotFound
}

func (emptyStore) Verify(context.Context, domain.Ref) error { return outputs.ErrNotFound }

func (emptyStore) All(context.Context) iter.Seq2[domain.Retained, error] {
	return func(func(domain.Retained, error) bool) {}
}
