package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/settlement-ledger/ledger/builtins"
	"github.com/settlement-ledger/ledger/builtins/lsp"
	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/builtins/workspace"
	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/registry/outputs"
	"github.com/settlement-ledger/ledger/registry/outputs/remote"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/agents"
	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/versioncontrol"
)

// A SessionRunner runs sessions in a workspace, whose tools it has registered. It is safe
// for concurrent use.
type SessionRunner struct {
	*ActiveProcess
	*engine.Workspace
	Root *workspace.Root // the folder
	// servers are the language servers of the tool lsp.
	servers []*lsp.Servers
	// progress receives the parts of replies. Nil: a trajectory is replayed, or no session runs.
	progress atomic.Pointer[progressPrinter]
}

// onPart passes a part of a reply to the progress of the session that runs.
func (r *SessionRunner) onPart(turn runner.Turn, part runner.Part) {
	if w := r.progress.Load(); w != nil {
		w.part(turn, part)
	}
}

// Close ends the language servers and closes the folder.
func (r *SessionRunner) Close() error {
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, r.Root.Close())...)
}

// A Setup configures how sessions of a workspace run.
type Setup struct {
	Workspace   string          // the folder that the tools work in
	Rules       domain.Rules    // the configured permission rules, which bind every agent
	Agent       string          // the agent of the session; resume takes it from the log
	Agents      *agents.Set     // the agents that a session can run as
	Steps       int             // most replies to one prompt; 0: unlimited
	TaskDepth   int             // most subsessions below each other; 0: engine.DefaultTaskDepth
	Flags       []string        // the names that the user set, on which tools may depend
	Provider    runner.Provider // the source of replies
	Environment []string        // the environment of commands and servers, NAME=VALUE

	Getenv       func(string) string // the environment of this process; nil: empty
	ConfigFolder string              // the configuration folder of the user; empty: none
	StateFolder  string              // the folder of state that outlives sessions; empty: none
	ToolFolder   string              // the folder of tools for this session; empty: none

	instructions string // of the project, for the system prompt; OpenWorkspace reads them

	// Approver and Questioner take the place of the terminal. Nil: the terminal, if there
	// is one.
	Approver   permission.Approver
	Questioner permission.Questioner
	// WrapTools returns the tools to register in place of the built-in ones. Nil: these.
	WrapTools func(registry.Tools) (registry.Tools, error)

	ApprovalLife time.Duration // how long a saved approval is valid; 0: until it is revoked
}

// OpenWorkspace opens the workspace of s and registers the built-in tools for it. The
// caller closes the result.
func (p *ActiveProcess) OpenWorkspace(ctx context.Context, s Setup) (*SessionRunner, error) {
	root, err := workspace.Open(s.Workspace)
	if err != nil {
		return nil, fault.WithHint(fmt.Errorf("--workspace: %w", err), "name a folder that exists")
	}
	if s.instructions, err = instructions(root.Path()); err != nil {
		fmt.Fprintf(p.launcher.Err, "warning: %s not used: %s\n", instructionsFile, render.OneLine(err.Error(), 400))
	}
	r := &SessionRunner{ActiveProcess: p, Root: root}
	config := engine.WorkspaceConfig{
		Location: root.Path(),
		Rules:    s.Rules, Agents: s.profile, TaskDepth: s.TaskDepth,
		Person: p.launcher.Person, ApprovalLife: s.ApprovalLife, Environment: s.Environment, UserEnvironment: os.Environ(),
		Tools: func(w *engine.Workspace) (registry.Tools, error) {
			keep := func(servers *lsp.Servers) { r.servers = append(r.servers, servers) }
			made, err := s.tools(toolParts{Workspace: w, root: root, outputs: outputReader{p.Outputs}, version: p.launcher.Version, keepServers: keep})
			if err != nil || s.WrapTools == nil {
				return made, err
			}
			return s.WrapTools(made)
		},
		Runner: runner.Config{
			Provider: s.Provider, Steps: s.Steps, Client: clientName, Flags: s.Flags, Has: s.has, OnPart: r.onPart, VersionControl: versioncontrol.Read,
		},
	}
	if terminal := p.launcher.Terminal(ctx); terminal != nil {
		config.Approver, config.Questioner = terminal, terminal
	}
	if s.Approver != nil {
		config.Approver, config.Questioner = s.Approver, s.Questioner
	}
	if err := s.addToolFolders(&config, root.Path()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	s.addMCPServers(&config, root.Path())
	if r.Workspace, err = p.Open(ctx, config); err != nil {
		return nil, errors.Join(err, r.Close())
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
