package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/registry/outputs"
)

// OutputsFolder is the name of the subfolder of the outputs in the folder of a store.
const OutputsFolder = "outputs"

// A FolderWorkspace is a Workspace over a store in a folder that this process has
// locked. [OpenFolder] makes it. It is safe for concurrent use.
type FolderWorkspace struct {
	*Workspace
	Ledger  *events.Ledger // of the store
	store   *embedded.Store
	outputs *outputs.Store
}

// OpenFolder opens the store in dir, starts a process named program in it, recovers the
// work of dead processes, and opens a workspace. It creates a missing folder. The
// ledger command can read the folder. The caller closes the result. OpenFolder returns
// the errors of [Start], [Process.Open] and embedded.Open, such as events.ErrInUse if
// another process has locked the folder.
func OpenFolder(ctx context.Context, dir, program string, config WorkspaceConfig) (*FolderWorkspace, error) {
	store, err := embedded.Open(ctx, dir, embedded.Config{})
	if err != nil {
		return nil, err
	}
	kept, err := OpenOutputs(ctx, store, dir, nil)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	f := &FolderWorkspace{store: store, outputs: kept}
	f.Ledger = events.NewLedger(store, domain.NewMint(time.Now, rand.Reader), time.Now)
	p, err := Start(ctx, ProcessConfig{
		Ledger: f.Ledger, Checkpoints: store, Outputs: kept, Program: program,
		SweepOutputs: func(ctx context.Context, recorded func(context.Context, domain.EventID) (bool, error)) error {
			_, err := kept.Sweep(ctx, recorded)
			return err
		},
	})
	if err != nil {
		return nil, errors.Join(err, f.closeStores())
	}
	if f.Workspace, err = p.Open(ctx, config); err != nil {
		return nil, errors.Join(err, p.Close(ctx), f.closeStores())
	}
	return f, nil
}

// Close closes the process, as [Process.Close] does, and then the store and the outputs.
// Nothing of the FolderWorkspace may be used afterwards.
func (f *FolderWorkspace) Close(ctx context.Context) error {
	return errors.Join(f.Process.Close(ctx), f.closeStores())
}

// closeStores closes the outputs and the store and joins their errors.
func (f *FolderWorkspace) closeStores() error { return errors.Join(f.outputs.Close(), f.store.Close()) }
