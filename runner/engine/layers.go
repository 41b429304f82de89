package engine

import (
	"context"
	"fmt"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

// openLayers opens the application layer of the process, if there are plugins for it, and
// the layer of the location. It registers the tools of the workspace and installs its
// plugins.
func (w *Workspace) openLayers(ctx context.Context) (err error) {
	application, err := w.Process.openApplication(ctx, w)
	if err != nil {
		return err
	}
	if application != nil {
		w.layers = append(w.layers, application)
	}
	if w.Layer, err = w.Process.layers.Location(ctx, w.config.Location); err != nil {
		return err
	}
	w.layers = append(w.layers, w.Layer)
	if err := w.register(ctx); err != nil {
		return err
	}
	return w.install(ctx, w.Layer, w.Gate, w.config.Plugins)
}

// openSessionLayer opens the layer of a session, installs its plugins, and returns a
// registry over it and the layers of the workspace.
func (w *Workspace) openSessionLayer(ctx context.Context, session domain.SessionID) (*registry.Registry, error) {
	layer, err := w.Process.layers.Session(ctx, session)
	if err != nil {
		return nil, err
	}
	if err := w.install(ctx, layer, w.Gate, w.config.SessionPlugins()); err != nil {
		return nil, err
	}
	return w.Process.layers.Registry(w.config.Registry, append(w.layers[:len(w.layers):len(w.layers)], layer)...)
}

// A pluginGate decides requests and asks questions for the calls of plugins.
type pluginGate interface {
	permission.Asserter
	plugins.QuestionAsker
}

// install installs plugins in a layer. The host is closed with the process.
func (w *Workspace) install(ctx context.Context, layer *registry.Layer, gate pluginGate, list []plugins.Plugin) error {
	if len(list) == 0 {
		return nil
	}
	environment := w.config.UserEnvironment
	if layer == w.Layer {
		environment = w.config.Environment
	}
	host, err := plugins.New(plugins.Config{
		Layer: layer, Settings: w.config.PluginSettings,
		Location: plugins.PluginLocation{Folder: w.config.Location, Environment: environment, Permission: gate, Questions: gate},
	})
	if err != nil {
		return err
	}
	p := w.Process
	p.mu.Lock()
	p.mu.hosts = append(p.mu.hosts, host)
	p.mu.Unlock()
	return host.Install(ctx, list...)
}

// refresh calls Refresh of every plugin host of the process.
func (w *Workspace) refresh(ctx context.Context) error {
	for _, h := range w.Process.hosts() {
		if err := h.Refresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// hosts returns the plugin hosts of the process, in order of creation.
func (p *Process) hosts() []*plugins.Host {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.hosts[:len(p.mu.hosts):len(p.mu.hosts)]
}

// openApplication returns the application layer of the process. The first workspace that
// has plugins for the layer opens it and installs its plugins. Before that,
// openApplication returns nil. Calls of these plugins ask the gate of the workspace that
// runs the session.
func (p *Process) openApplication(ctx context.Context, w *Workspace) (*registry.Layer, error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	p.mu.Lock()
	p.mu.workspaces = append(p.mu.workspaces, w)
	p.mu.Unlock()
	if p.application != nil || len(w.config.ApplicationPlugins) == 0 {
		return p.application, nil
	}
	layer, err := p.layers.Application(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.install(ctx, layer, processGate{p}, w.config.ApplicationPlugins); err != nil {
		return nil, err
	}
	p.application = layer
	return layer, nil
}

// A processGate asks the gate of the workspace that runs the session of a call.
type processGate struct{ process *Process }

// Assert implements permission.Asserter. A call of a session that no workspace runs is
// denied.
func (g processGate) Assert(ctx context.Context, inv domain.Invocation, ask permission.Ask) error {
	gate, err := g.of(inv, ask.Action)
	if err != nil {
		return err
	}
	return gate.Assert(ctx, inv, ask)
}

// AskQuestions implements plugins.QuestionAsker. A question of a session that no workspace
// runs is denied.
func (g processGate) AskQuestions(ctx context.Context, inv domain.Invocation, questions []domain.Question) ([][]string, error) {
	gate, err := g.of(inv, "question")
	if err != nil {
		return nil, err
	}
	return gate.AskQuestions(ctx, inv, questions)
}

// of returns the gate of the workspace that runs the session of a call. It returns a
// *domain.Denied of the action if no workspace does.
func (g processGate) of(inv domain.Invocation, action string) (*permission.Gate, error) {
	g.process.mu.Lock()
	workspaces := g.process.mu.workspaces[:len(g.process.mu.workspaces):len(g.process.mu.workspaces)]
	g.process.mu.Unlock()
	for _, w := range workspaces {
		if w.session(inv.Session) != nil {
			return w.Gate, nil
		}
	}
	return nil, &domain.Denied{Action: action, Resource: "*", Reason: fmt.Sprintf("no workspace runs session %s", inv.Session)}
}
