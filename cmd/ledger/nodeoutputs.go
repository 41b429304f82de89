package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"sync"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
)

// nodeOutputs are the outputs that this node keeps of a ledger in a database.
// Their folder is opened when it is first asked for something, so that a
// command that needs none of them does not keep another from it.
type nodeOutputs struct {
	dir string
	mu  struct {
		sync.Mutex // held while the folder is opened
		open       *outputs.Store
		closed     bool
	}
}

// store opens the folder. Two processes that need it at once are told of each
// other.
func (n *nodeOutputs) store() (*outputs.Store, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return nil, outputs.ErrClosed
	}
	if n.mu.open != nil {
		return n.mu.open, nil
	}
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return nil, err
	}
	opened, err := outputs.Open(n.dir, outputs.Config{})
	if errors.Is(err, outputs.ErrInUse) {
		return nil, hinted(err, "another process of this machine keeps its outputs there: wait for it, or give this one a folder of its own with LEDGER_NODE")
	}
	if err != nil {
		return nil, err
	}
	n.mu.open = opened
	return opened, nil
}

// with calls use with the store of a folder.
func with[T any](n *nodeOutputs, use func(*outputs.Store) (T, error)) (result T, err error) {
	store, err := n.store()
	if err != nil {
		return result, err
	}
	return use(store)
}

// Keep is outputs.Store's.
func (n *nodeOutputs) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	return with(n, func(s *outputs.Store) (domain.Retained, error) { return s.Keep(ctx, ref, mime, r) })
}

// Confirm is outputs.Store's.
func (n *nodeOutputs) Confirm(ctx context.Context, id domain.EventID) error {
	store, err := n.store()
	if err != nil {
		return err
	}
	return store.Confirm(ctx, id)
}

// Open is outputs.Store's.
func (n *nodeOutputs) Open(ctx context.Context, ref domain.Ref) (remote.Output, error) {
	return with(n, func(s *outputs.Store) (remote.Output, error) { return remote.Local(s).Open(ctx, ref) })
}

// Stat is outputs.Store's.
func (n *nodeOutputs) Stat(ctx context.Context, ref domain.Ref) (domain.Retained, error) {
	return with(n, func(s *outputs.Store) (domain.Retained, error) { return s.Stat(ctx, ref) })
}

// Verify is outputs.Store's.
func (n *nodeOutputs) Verify(ctx context.Context, ref domain.Ref) error {
	store, err := n.store()
	if err != nil {
		return err
	}
	return store.Verify(ctx, ref)
}

// All is outputs.Store's.
func (n *nodeOutputs) All(ctx context.Context) iter.Seq2[domain.Retained, error] {
	return func(yield func(domain.Retained, error) bool) {
		store, err := n.store()
		if err != nil {
			yield(domain.Retained{}, err)
			return
		}
		store.All(ctx)(yield)
	}
}

// Close closes the folder if it was opened.
func (n *nodeOutputs) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.closed = true
	if n.mu.open == nil {
		return nil
	}
	return n.mu.open.Close()
}
