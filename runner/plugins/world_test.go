package plugins_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

var errPower = errors.New("power went away")

// A store is a store in memory whose appends can be made to fail.
type store struct {
	*eventstest.Slice
	broken atomic.Bool
}

func (s *store) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	if s.broken.Load() {
		return errPower
	}
	return s.Slice.Append(ctx, stream, after, records...)
}

// A world is one process with a layer and a plugin host.
type world struct {
	t        testing.TB
	store    *store
	mint     *domain.Mint
	ledger   *events.Ledger
	layer    *registry.Layer
	registry *registry.Registry
	host     *plugins.Host
}

// A yes allows everything.
type yes struct{}

func (yes) Assert(context.Context, domain.Invocation, permission.Ask) error { return nil }

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, store: &store{Slice: eventstest.NewSlice()}}
	w.mint = domain.NewMint(time.Now, rand.NewChaCha8([32]byte{1}))
	w.ledger = events.NewLedger(w.store, w.mint, time.Now)
	layers := registry.NewLayers(w.ledger, w.mint.Process())
	var err error
	w.layer, err = layers.Location(context.Background(), "/src")
	must(t, err)
	w.registry, err = layers.Registry(registry.Config{}, w.layer)
	must(t, err)
	w.host, err = plugins.New(plugins.Config{
		Layer: w.layer, Location: plugins.PluginLocation{Folder: "/src", Environment: []string{"A=b"}, Permission: yes{}},
		Settings: map[string]json.RawMessage{"configured": json.RawMessage(`{"a":1}`)},
	})
	must(t, err)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tool returns a tool that answers with a text.
func tool(t testing.TB, text string) domain.Tool {
	t.Helper()
	made, err := domain.Make(domain.Spec[struct{}, string]{Description: text, Execute: func(context.Context, struct{}, domain.Invocation) (string, error) { return text, nil }})
	must(t, err)
	return made
}

// offered returns the descriptions of the offered tools by name.
func (w *world) offered() map[string]string {
	w.t.Helper()
	m, err := w.registry.Materialize(context.Background(), registry.TurnSpec{ID: w.mint.Turn()})
	must(w.t, err)
	all := map[string]string{}
	for _, d := range m.Definitions() {
		all[string(d.Name)] = d.Description
	}
	return all
}

func (w *world) wantOffered(want ...string) {
	w.t.Helper()
	got := []string{}
	for name := range w.offered() {
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("offered %v, want %v", got, want)
	}
}

// layerEvents returns the events of the layer.
func (w *world) layerEvents() []events.Event {
	w.t.Helper()
	var all []events.Event
	for v, err := range w.ledger.Read(context.Background(), events.LayerStream(w.layer.ID()), 0) {
		must(w.t, err)
		all = append(all, v.Event)
	}
	return all
}

// refusals returns the recorded refusals, as "NAME: REASON", in order.
func (w *world) refusals() []string {
	w.t.Helper()
	all := []string{}
	for _, e := range w.layerEvents() {
		if e, ok := e.(events.ToolsRegistered); ok {
			for _, r := range e.Refused {
				all = append(all, r.Name+": "+r.Reason)
			}
		}
	}
	return all
}

// A plugin is a Plugin, a Refresher and a Stopper made of functions. A nil function does
// nothing.
type plugin struct {
	name    string
	install func(context.Context, plugins.PluginScope, plugins.PluginLocation) error
	refresh func(context.Context) error
	stop    func(context.Context) error
}

func (p *plugin) Name() string { return p.name }

func (p *plugin) Install(ctx context.Context, s plugins.PluginScope, at plugins.PluginLocation) error {
	if p.install == nil {
		return nil
	}
	return p.install(ctx, s, at)
}

func (p *plugin) Refresh(ctx context.Context) error {
	if p.refresh == nil {
		return nil
	}
	return p.refresh(ctx)
}

func (p *plugin) Stop(ctx context.Context) error {
	if p.stop == nil {
		return nil
	}
	return p.stop(ctx)
}

// offers returns a plugin that registers one tool of its own name and then calls then.
func offers(t testing.TB, name string, then func(context.Context) error) *plugin {
	return &plugin{name: name, install: func(ctx context.Context, s plugins.PluginScope, _ plugins.PluginLocation) error {
		if err := s.Register(ctx, map[string]domain.Tool{name: tool(t, name)}); err != nil {
			return err
		}
		if then == nil {
			return nil
		}
		return then(ctx)
	}}
}
