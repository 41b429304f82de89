package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// A SessionRunner runs sessions in a workspace, whose tools it has registered. It is safe
// for concurrent use.
type SessionRunner struct {
	*ActiveProcess
	*engine.Workspace
	Root *workspace.Root // the folder; the caller of OpenWorkspace closes it
}

// A Setup configures how sessions of a workspace run.
type Setup struct {
	Workspace   string          // the folder that the tools work in
	Rules       domain.Rules    // the permission rules of the agent
	Agent       string          // the agent of the session; resume takes it from the log
	Steps       int             // most replies to one prompt; 0: unlimited
	Provider    runner.Provider // the source of replies
	Environment []string        // the environment of bash commands, NAME=VALUE

	ApprovalLife time.Duration // how long a saved approval is valid; 0: until it is revoked
}

// OpenWorkspace opens the workspace of s and registers the builtin tools for it. The
// caller closes the Root of the result.
func (p *ActiveProcess) OpenWorkspace(ctx context.Context, s Setup) (*SessionRunner, error) {
	root, err := workspace.Open(s.Workspace)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("--workspace: %w", err), "name a folder that exists")
	}
	r := &SessionRunner{ActiveProcess: p, Root: root}
	r.Workspace, err = p.Open(ctx, engine.WorkspaceConfig{
		Location: root.Path(),
		Agents:   permission.Agents{Default: domain.AgentID(s.Agent), Rules: map[domain.AgentID]domain.Rules{domain.AgentID(s.Agent): s.Rules}},
		Approver: p.launcher.Approver(ctx), Person: p.launcher.Person, ApprovalLife: s.ApprovalLife,
		Tools: func(gate *permission.Gate) (registry.Tools, error) {
			return builtins.Tools(builtins.Config{Workspace: root, Permission: gate, Outputs: outputReader{p.Outputs}, Environment: s.Environment})
		},
		Runner: runner.Config{Provider: s.Provider, Steps: s.Steps},
	})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return r, nil
}

// An outputReader adapts the output store to builtins.OutputOpener. It converts the
// errors of the store to ErrAbsent and Pruned of package builtins.
type outputReader struct{ remote.BlobStore }

// Open opens the output of ref, and returns it with its description. A pruned output
// is a *builtins.Pruned, an unknown one builtins.ErrAbsent. The caller closes the
// reader.
func (o outputReader) Open(ctx context.Context, ref domain.Ref) (io.ReadCloser, domain.Retained, error) {
	out, err := o.BlobStore.Open(ctx, ref)
	if pruned, ok := errors.AsType[*outputs.PrunedError](err); ok {
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
