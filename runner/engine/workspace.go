package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A WorkspaceConfig describes where sessions run, with which tools, under which
// rules. Location is required.
type WorkspaceConfig struct {
	// Location names the place, such as the absolute path of a directory. An
	// approval that a person saved counts in the location in which it was given.
	Location string
	// Agents are the permission rules of each agent. An agent without rules is
	// asked about everything.
	Agents permission.Agents
	// Approver decides the requests that the rules leave open. Nil: permission.Headless,
	// which rejects them.
	Approver permission.Approver
	// Person names the person behind the Approver, such as a user of the operating
	// system. It is recorded with the decisions of that person. It may be empty.
	Person string
	// ApprovalLife is the lifetime of an approval that a person saves in this workspace.
	// Zero: the approval is valid until it is revoked.
	ApprovalLife time.Duration
	// Tools returns the tools of the location. They ask the gate for permission.
	// Nil: there are none, until the caller registers some in Workspace.Layer.
	Tools func(*permission.Gate) (registry.Tools, error)
	// Registry configures the settlement of calls. If its Outputs are nil, the workspace
	// uses those of the process.
	Registry registry.Config
	// Runner configures how sessions are run. Open sets its Ledger, Registry,
	// Rules, Looping, Allowances and Elsewhere.
	Runner runner.Config
}

// A Workspace runs the sessions of one location. [Process.Open] and [OpenFolder] make
// it. Callers read its fields and do not set them. It is safe for concurrent use.
type Workspace struct {
	Process  *Process
	Layer    *registry.Layer    // of the location; more scopes may be opened in it
	Registry *registry.Registry // over Layer
	Runner   *runner.Runner     // opens, prompts and runs sessions
	Gate     *permission.Gate   // asked by the tools
}

// Open opens a location layer, registers its tools and returns the workspace. A process
// may open several. Process.Close closes the layer. Open returns an ErrBadConfig, the
// error of config.Tools, or that of the store.
func (p *Process) Open(ctx context.Context, config WorkspaceConfig) (*Workspace, error) {
	w, err := p.open(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open workspace %q: %w", config.Location, err)
	}
	return w, nil
}

// open is Open without the operation's name in its errors.
func (p *Process) open(ctx context.Context, config WorkspaceConfig) (*Workspace, error) {
	if config.Location == "" {
		return nil, fmt.Errorf("%w: Location is empty", ErrBadConfig)
	}
	if config.Approver == nil {
		config.Approver = permission.Headless{}
	}
	if config.Registry.Outputs == nil {
		config.Registry.Outputs = p.config.Outputs
	}
	w := &Workspace{Process: p}
	recorder := &permissionRecorder{workspace: w, location: config.Location}
	saved, err := projections.Current(ctx, Approvals(), p.config.Ledger, p.config.Checkpoints)
	if err != nil {
		return nil, err
	}
	allowances := new(permission.Allowances)
	w.Gate, err = permission.NewGate(permission.Config{
		Rules: config.Agents.Of, Approver: config.Approver, Recorder: recorder, Mint: p.config.Ledger.Mint(), Now: p.config.Ledger.Now,
		Approvals: p.approvalsAt(config.Location, saved), ApprovalLifetime: config.ApprovalLife, Person: config.Person, Allowances: allowances,
	})
	if err != nil {
		return nil, err
	}
	if w.Layer, err = p.layers.Location(ctx, config.Location); err != nil {
		return nil, err
	}
	if err := w.register(ctx, config.Tools); err != nil {
		return nil, err
	}
	if w.Registry, err = p.layers.Registry(config.Registry, w.Layer); err != nil {
		return nil, err
	}
	config.Runner.Ledger, config.Runner.Registry = p.config.Ledger, w.Registry
	config.Runner.Rules, config.Runner.Looping, config.Runner.Elsewhere = config.Agents.Of, w.looping, p.otherOwner
	config.Runner.Allowances = allowances
	w.Runner = runner.New(config.Runner)
	return w, nil
}

// register calls tools with the gate of the workspace, and registers the returned tools
// in the layer of the workspace.
func (w *Workspace) register(ctx context.Context, tools func(*permission.Gate) (registry.Tools, error)) error {
	if tools == nil {
		return nil
	}
	made, err := tools(w.Gate)
	if err != nil {
		return err
	}
	return w.Layer.Scope().Register(ctx, made)
}

// Run runs a session until it needs a prompt or has ended, as [runner.Runner.Run] does,
// and returns the same errors. If the process loses its lease, Run returns
// runner.ErrLeaseLost.
func (w *Workspace) Run(ctx context.Context, session domain.SessionID) error {
	alive, cancel := w.Process.LeaseContext(ctx)
	defer cancel()
	return w.Runner.Run(alive, session)
}

// Conversation reads a session from the log and returns its state.
func (w *Workspace) Conversation(ctx context.Context, session domain.SessionID) (*conversation.State, error) {
	p := conversation.Projection()
	return projections.Fold(p, p.Init(), w.Process.config.Ledger.Read(ctx, events.SessionStream(session), 0))
}
