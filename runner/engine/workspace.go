package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

// A WorkspaceConfig describes where sessions run, with which tools, under which
// rules. Location is required.
type WorkspaceConfig struct {
	// Location names the place, such as the absolute path of a directory. An
	// approval that a person saved counts in the location in which it was given.
	Location string
	// Rules are the configured permission rules. They bind every agent. Nil: there are
	// none, so a request is asked about, unless an agent has rules.
	Rules domain.Rules
	// Agents returns the profile of an agent, or an error for an unknown one. The rules of
	// the profile bind the agent and the subsessions below it, besides the configured
	// ones. Nil: every name is an agent without a profile.
	Agents func(domain.AgentID) (runner.Profile, error)
	// TaskDepth is the maximum depth of subsessions. Zero: DefaultTaskDepth. A negative
	// number allows no subsession.
	TaskDepth int
	// Approver decides the requests that the rules leave open. Nil: permission.Headless,
	// which rejects them.
	Approver permission.Approver
	// Questioner answers the questions of tools to a person. Nil: permission.Headless,
	// which dismisses them.
	Questioner permission.Questioner
	// Person names the person behind the Approver, such as a user of the operating
	// system. It is recorded with the decisions of that person. It may be empty.
	Person string
	// ApprovalLife is the lifetime of an approval that a person saves in this workspace.
	// Zero: the approval is valid until it is revoked.
	ApprovalLife time.Duration
	// Tools returns the tools of the location. They ask the Gate of the workspace for
	// permission, and reach the session of a call by its methods. Nil: there are none,
	// until the caller registers some in Workspace.Layer.
	Tools func(*Workspace) (registry.Tools, error)
	// ApplicationPlugins are installed in the layer that all locations of the process
	// share, once for each process: those of the first workspace count. Plugins are
	// installed in the layer of the location, and SessionPlugins returns those of the
	// layer of one session. A session shares its layer with its subsessions. Each may be
	// nil.
	ApplicationPlugins []plugins.Plugin
	Plugins            []plugins.Plugin
	SessionPlugins     func() []plugins.Plugin
	// PluginSettings are the settings of each plugin by its name.
	PluginSettings map[string]json.RawMessage
	// Environment is the environment that the plugins of the location get, as KEY=VALUE.
	// They may come with a project, so it should have no secrets. UserEnvironment is that
	// of the plugins of the application and of sessions, which the user chose.
	Environment     []string
	UserEnvironment []string
	// Registry configures the settlement of calls. If its Outputs are nil, the workspace
	// uses those of the process.
	Registry registry.Config
	// Runner configures how sessions are run. Open sets its Ledger, Registry,
	// Profile, Refresh, Looping, Allowances and Elsewhere.
	Runner runner.Config
}

// A Workspace runs the sessions of one location. [Process.Open] and [OpenFolder] make
// it. Callers read its fields and do not set them. It is safe for concurrent use.
type Workspace struct {
	Process  *Process
	Layer    *registry.Layer    // of the location; more scopes may be opened in it
	Registry *registry.Registry // over the application layer, if there is one, and Layer
	Runner   *runner.Runner     // opens, prompts and runs sessions
	Gate     *permission.Gate   // asked by the tools

	config WorkspaceConfig
	// layers are those of Registry, in rising precedence.
	layers []*registry.Layer
	mu     struct {
		sync.Mutex
		// sessions has the sessions that have run in this workspace.
		sessions map[domain.SessionID]*boundSession
	}
}

// Open opens a location layer, registers its tools, installs its plugins and returns the
// workspace. A process may open several. Process.Close closes the layer. Open returns an
// ErrBadConfig, the error of config.Tools, or that of the store. A plugin that cannot be
// installed is recorded as a refusal and is no error.
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
	if config.TaskDepth == 0 {
		config.TaskDepth = DefaultTaskDepth
	}
	w := &Workspace{Process: p, config: config}
	w.mu.sessions = map[domain.SessionID]*boundSession{}
	saved, err := projections.Saved(ctx, Approvals(), p.config.Ledger, p.config.Checkpoints)
	if err != nil {
		return nil, err
	}
	allowances := new(permission.Allowances)
	w.Gate, err = permission.NewGate(permission.Config{
		Rules: w.rulesOf, Approver: config.Approver, Questioner: config.Questioner, Recorder: &permissionRecorder{workspace: w, location: config.Location},
		Mint: p.config.Ledger.Mint(), Now: p.config.Ledger.Now,
		Approvals: p.approvalsAt(config.Location, saved), ApprovalLifetime: config.ApprovalLife, Person: config.Person, Allowances: allowances,
	})
	if err != nil {
		return nil, err
	}
	if err := w.openLayers(ctx); err != nil {
		return nil, err
	}
	if w.Registry, err = p.layers.Registry(config.Registry, w.layers...); err != nil {
		return nil, err
	}
	run := config.Runner
	run.Ledger, run.Registry, run.Allowances = p.config.Ledger, w.Registry, allowances
	run.Profile, run.Refresh, run.Looping, run.Elsewhere = w.profile, w.refresh, w.looping, p.otherOwner
	w.Runner = runner.New(run)
	return w, nil
}

// register calls config.Tools and registers the returned tools in the layer of the
// workspace.
func (w *Workspace) register(ctx context.Context) error {
	if w.config.Tools == nil {
		return nil
	}
	made, err := w.config.Tools(w)
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

// Conversation reads a session from the log and returns its state, with the past of a fork.
func (w *Workspace) Conversation(ctx context.Context, session domain.SessionID) (*conversation.State, error) {
	return conversation.Read(ctx, w.Process.config.Ledger, session)
}
