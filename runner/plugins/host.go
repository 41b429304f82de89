package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/settlement-ledger/ledger/builtins/process"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
)

// ErrBadPlugin reports an incomplete Config, and a plugin whose name is invalid or in use.
var ErrBadPlugin = errors.New("plugin cannot be installed")

// The deadlines of a plugin if Config sets no deadline.
const (
	DefaultInstallTimeout = 30 * time.Second
	DefaultRefreshTimeout = 10 * time.Second
)

// A Config configures a [Host]. Layer and Location.Permission are required.
type Config struct {
	// Layer is the layer in which the plugins register their tools.
	Layer *registry.Layer
	// Location is the place that each plugin gets, with its own Settings. A nil Start is
	// process.StartPiped.
	Location PluginLocation
	// Settings are the settings of each plugin by its name.
	Settings map[string]json.RawMessage
	// InstallTimeout is how long one Install, and one Stop, may take. Zero:
	// DefaultInstallTimeout.
	InstallTimeout time.Duration
	// RefreshTimeout is how long one Refresh may take. Zero: DefaultRefreshTimeout.
	RefreshTimeout time.Duration
}

// A Host installs plugins in one layer. Close closes it. It is safe for concurrent use.
type Host struct {
	config Config
	// refusals records the failures of plugins.
	refusals *registry.Scope
	// turn admits one operation at a time. The fields below belong to the operation.
	turn chan struct{}
	// installed has all plugins that were installed, in order, also failed ones.
	installed []*installedPlugin
	closed    bool
}

// An installedPlugin is a plugin with its scope.
type installedPlugin struct {
	plugin Plugin
	name   string
	scope  *layerScope
	// failed is set if the plugin is no longer refreshed, because its scope was closed.
	failed bool
	// reported is the text of the last recorded error of Refresh. Empty: the last Refresh
	// succeeded.
	reported string
}

// New returns a host without plugins. It returns an ErrBadPlugin that names a missing
// field.
func New(c Config) (*Host, error) {
	switch {
	case c.Layer == nil:
		return nil, fmt.Errorf("make plugin host: %w: Config.Layer is not set", ErrBadPlugin)
	case c.Location.Permission == nil:
		return nil, fmt.Errorf("make plugin host: %w: Config.Location.Permission is not set", ErrBadPlugin)
	}
	if c.Location.Start == nil {
		c.Location.Start = process.StartPiped
	}
	if c.InstallTimeout == 0 {
		c.InstallTimeout = DefaultInstallTimeout
	}
	if c.RefreshTimeout == 0 {
		c.RefreshTimeout = DefaultRefreshTimeout
	}
	return &Host{config: c, refusals: c.Layer.Scope(), turn: make(chan struct{}, 1)}, nil
}

// enter waits for the running operation of the host. The caller calls leave after nil.
// enter returns registry.ErrClosed after Close, or the cause of ctx.
func (h *Host) enter(ctx context.Context) (leave func(), err error) {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	leave = func() { <-h.turn }
	if h.closed {
		leave()
		return nil, registry.ErrClosed
	}
	return leave, nil
}

// Install installs plugins in order. It closes a plugin that fails, records the failure as
// a refusal, and installs the next one. If ctx ends, the plugin that is being installed
// fails, and Install returns the cause without installing further plugins.
func (h *Host) Install(ctx context.Context, plugins ...Plugin) error {
	leave, err := h.enter(ctx)
	if err != nil {
		return fmt.Errorf("install plugins: %w", err)
	}
	defer leave()
	for _, p := range plugins {
		if err := h.install(ctx, p); err != nil {
			return fmt.Errorf("install plugins: %w", err)
		}
	}
	return nil
}

// install installs one plugin, or closes its scope and records why it failed.
func (h *Host) install(ctx context.Context, p Plugin) error {
	i := &installedPlugin{plugin: p, scope: newLayerScope(h.config.Layer)}
	var reason error
	if i.name, reason = h.nameOf(ctx, p); reason != nil {
		return h.record(ctx, i.name, reason)
	}
	h.installed = append(h.installed, i)
	at := h.config.Location
	at.Environment, at.Settings = slices.Clone(at.Environment), slices.Clone(h.config.Settings[i.name])
	err := guarded(ctx, h.config.InstallTimeout, func(ctx context.Context) error { return p.Install(ctx, i.scope, at) })
	if err == nil {
		return nil
	}
	if err := h.fail(ctx, i, fmt.Errorf("install: %w", err)); err != nil || ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// nameOf returns the name of a plugin, and ErrBadPlugin if the name is invalid or another
// plugin of the host has it.
func (h *Host) nameOf(ctx context.Context, p Plugin) (string, error) {
	var name string
	err := guarded(ctx, h.config.InstallTimeout, func(context.Context) error {
		n := p.Name()
		name = n
		return nil
	})
	if err != nil {
		return "(without a name)", fmt.Errorf("%w: Name: %w", ErrBadPlugin, err)
	}
	if _, err := domain.ParseName(name); err != nil {
		return name, fmt.Errorf("%w: %w", ErrBadPlugin, err)
	}
	if slices.ContainsFunc(h.installed, func(i *installedPlugin) bool { return i.name == name }) {
		return name, fmt.Errorf("%w: another plugin is named %s", ErrBadPlugin, name)
	}
	return name, nil
}

// fail closes the scope of a plugin and records the reason, also after ctx has ended. The
// plugin is not refreshed again.
func (h *Host) fail(ctx context.Context, i *installedPlugin, reason error) error {
	i.failed = true
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.config.InstallTimeout)
	defer cancel()
	return errors.Join(i.scope.close(within), h.record(within, i.name, reason))
}

// record records why a plugin, or its last Refresh, failed.
func (h *Host) record(ctx context.Context, name string, reason error) error {
	_, err := h.refusals.RegisterValid(ctx, nil, registry.Refusal{Name: "plugin " + name, Err: reason})
	return err
}

// Refresh calls Refresh of each plugin that is a Refresher, in order. The failure of a
// plugin is recorded and is no error of Refresh.
func (h *Host) Refresh(ctx context.Context) error {
	leave, err := h.enter(ctx)
	if err != nil {
		return fmt.Errorf("refresh plugins: %w", err)
	}
	defer leave()
	for _, i := range h.installed {
		if err := h.refresh(ctx, i); err != nil {
			return fmt.Errorf("refresh plugins: %w", err)
		}
	}
	return nil
}

// refresh refreshes one plugin. It records an error of the plugin that differs from the
// last one. It closes the scope of a plugin that panics, ends its goroutine or exceeds its
// deadline.
func (h *Host) refresh(ctx context.Context, i *installedPlugin) error {
	r, ok := i.plugin.(Refresher)
	if !ok || i.failed {
		return nil
	}
	err := guarded(ctx, h.config.RefreshTimeout, r.Refresh)
	switch {
	case err == nil:
		i.reported = ""
		return nil
	case errors.Is(err, errBroken):
		return h.fail(ctx, i, fmt.Errorf("refresh: %w", err))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err.Error() == i.reported:
		return nil
	}
	if err := h.record(ctx, i.name, fmt.Errorf("refresh: %w", err)); err != nil {
		return err
	}
	i.reported = err.Error()
	return nil
}

// Close closes the scopes of all plugins in reverse order, and stops each plugin that is a
// Stopper. It waits for a running operation. It returns the joined errors. A second Close
// repeats only the closings that the log does not have yet.
func (h *Host) Close(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("close plugins: %w", context.Cause(ctx))
	}
	defer func() { <-h.turn }()
	var errs []error
	for _, i := range slices.Backward(h.installed) {
		errs = append(errs, i.scope.close(ctx))
		if s, ok := i.plugin.(Stopper); ok && !h.closed {
			if err := guarded(ctx, h.config.InstallTimeout, s.Stop); err != nil {
				errs = append(errs, fmt.Errorf("stop plugin %s: %w", i.name, err))
			}
		}
	}
	h.closed = true
	return errors.Join(append(errs, h.refusals.Close(ctx))...)
}
