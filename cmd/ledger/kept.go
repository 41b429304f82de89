package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// An outputStore keeps outputs, here or elsewhere. Its methods promise what
// those of outputs.Store do.
type outputStore interface {
	registry.Outputs
	Open(context.Context, domain.Ref) (openOutput, error)
	Stat(context.Context, domain.Ref) (domain.Retained, error)
	Verify(context.Context, domain.Ref) error
	All(context.Context) iter.Seq2[domain.Retained, error]
	Sweep(context.Context, func(context.Context, domain.EventID) (bool, error)) (outputs.Swept, error)
	Close() error
}

// An openOutput is an output that is read.
type openOutput interface {
	io.ReadCloser
	Retained() domain.Retained
}

// localOutputs are those in a folder of this machine.
type localOutputs struct{ *outputs.Store }

// Open opens one output.
func (l localOutputs) Open(ctx context.Context, ref domain.Ref) (openOutput, error) {
	out, err := l.Store.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// kept opens managed outputs for the builtin tools.
type kept struct{ outputStore }

// Open opens one output.
func (k kept) Open(ctx context.Context, ref domain.Ref) (io.ReadCloser, domain.Retained, error) {
	out, err := k.outputStore.Open(ctx, ref)
	if pruned, ok := errors.AsType[*outputs.Pruned](err); ok {
		return nil, domain.Retained{}, &builtins.Pruned{At: pruned.At, Policy: pruned.Policy, SHA256: pruned.Retained.SHA256}
	}
	if errors.Is(err, outputs.ErrNotFound) {
		return nil, domain.Retained{}, fmt.Errorf("%w: %w", builtins.ErrAbsent, err)
	}
	if err != nil {
		return nil, domain.Retained{}, err
	}
	return out, out.Retained(), nil
}
