package plugins_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

// names are names that several goroutines add.
type names struct {
	mu    sync.Mutex
	added []string
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.added = append(n.added, name)
}

func (n *names) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.added)
}

// A plugin that fails, panics, ends its goroutine or hangs costs its own tools only. The
// reason is on record, and the plugins after it are installed, in order.
func TestFailedPluginCostsItsOwnToolsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		defer close(release)
		var order names
		for _, p := range []*plugin{
			offers(t, "first", nil),
			offers(t, "fails", func(context.Context) error { return errors.New("no server") }),
			offers(t, "panics", func(context.Context) error { panic("index out of range") }),
			offers(t, "exits", func(context.Context) error { runtime.Goexit(); return nil }),
			offers(t, "hangs", func(context.Context) error { <-release; return nil }),
			offers(t, "waits", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }),
			offers(t, "first", nil),
			offers(t, "no.name", nil),
			offers(t, "last", nil),
		} {
			install := p.install
			p.install = func(ctx context.Context, s plugins.PluginScope, at plugins.PluginLocation) error {
				order.add(p.name)
				return install(ctx, s, at)
			}
			must(t, w.host.Install(t.Context(), p))
		}
		w.wantOffered("first", "last")
		if want := []string{"first", "fails", "panics", "exits", "hangs", "waits", "last"}; !slices.Equal(order.all(), want) {
			t.Errorf("installed %v, want %v", order.all(), want)
		}
		want := []string{
			"plugin fails: install: no server", "plugin panics: install: the plugin is broken: panic: index out of range",
			"plugin exits: install: the plugin is broken: it ended its goroutine", "plugin hangs: install: the plugin is broken: it did not return within 30s",
			"plugin waits: install: context deadline exceeded", "plugin first: plugin cannot be installed: another plugin is named first",
			"plugin no.name: plugin cannot be installed: Invalid tool name",
		}
		got := w.refusals()
		for i, prefix := range want {
			if i >= len(got) || !strings.HasPrefix(got[i], prefix) {
				t.Fatalf("refusals = %q, want them to begin as %q", got, want)
			}
		}
	})
}

// A plugin that was left behind cannot register tools any more.
func TestClosedScopeRegistersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release, late := make(chan struct{}), make(chan error, 3)
		must(t, w.host.Install(t.Context(), &plugin{name: "slow", install: func(_ context.Context, s plugins.PluginScope, _ plugins.PluginLocation) error {
			<-release
			ctx, tools := context.Background(), map[string]domain.Tool{"late": tool(t, "late")}
			late <- s.Register(ctx, tools)
			_, err := s.RegisterValid(ctx, tools, nil)
			late <- err
			_, err = s.Replace(ctx, "part", tools, nil)
			late <- err
			return nil
		}}))
		close(release)
		for range 3 {
			if err := <-late; !errors.Is(err, registry.ErrClosed) {
				t.Errorf("a registration in a closed scope = %v, want ErrClosed", err)
			}
		}
		w.wantOffered()
	})
}

// An error of Refresh keeps the tools, and is on record once until it changes.
func TestErrorOfRefreshIsOnRecordOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var fault error
	p := offers(t, "server", nil)
	p.refresh = func(context.Context) error { return fault }
	must(t, w.host.Install(t.Context(), p))
	for _, fault = range []error{nil, errors.New("a"), errors.New("a"), errors.New("b"), nil, errors.New("b")} {
		must(t, w.host.Refresh(t.Context()))
		w.wantOffered("server")
	}
	if got, want := w.refusals(), []string{"plugin server: refresh: a", "plugin server: refresh: b", "plugin server: refresh: b"}; !slices.Equal(got, want) {
		t.Errorf("refusals = %q, want %q", got, want)
	}
}

// A plugin whose Refresh panics or hangs is closed and never refreshed again. The others
// are refreshed.
func TestBrokenRefreshClosesThePlugin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		release := make(chan struct{})
		defer close(release)
		var runs names
		for name, refresh := range map[string]func(context.Context) error{
			"panics": func(context.Context) error { panic("nil map") },
			"hangs":  func(context.Context) error { <-release; return nil },
			"works":  func(context.Context) error { return nil },
		} {
			p := offers(t, name, nil)
			p.refresh = func(ctx context.Context) error { runs.add(name); return refresh(ctx) }
			must(t, w.host.Install(t.Context(), p))
		}
		must(t, w.host.Refresh(t.Context()))
		must(t, w.host.Refresh(t.Context()))
		w.wantOffered("works")
		if got := slices.Sorted(slices.Values(runs.all())); !slices.Equal(got, []string{"hangs", "panics", "works", "works"}) {
			t.Errorf("refreshed %v, want a broken one once", got)
		}
		if got := strings.Join(w.refusals(), "\n"); !strings.Contains(got, "panic: nil map") || !strings.Contains(got, "did not return within 10s") {
			t.Errorf("refusals = %q, want both reasons", got)
		}
	})
}

// An interruption of Refresh is no failure of a plugin that returns because of it.
func TestInterruptedRefreshKeepsThePlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refreshing := make(chan struct{}, 1)
	p := offers(t, "server", nil)
	p.refresh = func(ctx context.Context) error {
		refreshing <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	must(t, w.host.Install(t.Context(), p))
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-refreshing; cancel(domain.ByUser) }()
	if err := w.host.Refresh(ctx); !errors.Is(err, domain.ByUser) {
		t.Errorf("Refresh = %v, want the cause of its context", err)
	}
	w.wantOffered("server")
	if got := w.refusals(); len(got) != 0 {
		t.Errorf("refusals = %q, want none", got)
	}
}

// One Refresh runs at a time, and each caller gets one that began after its call.
func TestRefreshesRunOneAtATime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var running, most, runs atomic.Int64
	p := offers(t, "server", nil)
	p.refresh = func(context.Context) error {
		most.Store(max(most.Load(), running.Add(1)))
		runtime.Gosched()
		running.Add(-1)
		runs.Add(1)
		return nil
	}
	must(t, w.host.Install(t.Context(), p))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { must(t, w.host.Refresh(t.Context())) })
	}
	all.Wait()
	if most.Load() != 1 || runs.Load() != 20 {
		t.Errorf("%d refreshes ran, %d at a time, want 20 and 1", runs.Load(), most.Load())
	}
}

// Close takes all tools out of effect and stops the plugins in reverse order, also failed
// ones. A closed host installs and refreshes nothing.
func TestCloseStopsPluginsInReverseOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var stopped []string
	for _, name := range []string{"a", "b", "c"} {
		p := offers(t, name, func(context.Context) error {
			if name == "b" {
				return errors.New("no server")
			}
			return nil
		})
		p.stop = func(context.Context) error { stopped = append(stopped, name); return nil }
		must(t, w.host.Install(t.Context(), p))
	}
	w.wantOffered("a", "c")
	must(t, w.host.Close(t.Context()))
	must(t, w.host.Close(t.Context()))
	w.wantOffered()
	if want := []string{"c", "b", "a"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped %v, want %v", stopped, want)
	}
	open := map[domain.RegistrationID]bool{}
	for v, err := range w.ledger.Read(t.Context(), events.LayerStream(w.layer.ID()), 0) {
		must(t, err)
		switch e := v.Event.(type) {
		case events.ToolsRegistered:
			open[domain.RegistrationOf(v.ID)] = true
		case events.RegistrationClosed:
			delete(open, e.Registration)
		}
	}
	if len(open) != 0 {
		t.Errorf("registrations %v are open on record", open)
	}
	if err := w.host.Install(t.Context(), offers(t, "d", nil)); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("Install after Close = %v, want ErrClosed", err)
	}
	if err := w.host.Refresh(t.Context()); !errors.Is(err, registry.ErrClosed) {
		t.Errorf("Refresh after Close = %v, want ErrClosed", err)
	}
}

// A plugin gets its folder, settings and environment, and cannot change those of others.
func TestPluginGetsItsLocation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"configured", "plain"} {
		must(t, w.host.Install(t.Context(), &plugin{name: name, install: func(_ context.Context, _ plugins.PluginScope, at plugins.PluginLocation) error {
			if at.Folder != "/src" || at.Environment[0] != "A=b" || at.Start == nil || at.Permission == nil {
				t.Errorf("location of %s = %+v, want folder, environment, starter and permission", name, at)
			}
			if got := string(at.Settings); (got == `{"a":1}`) != (name == "configured") {
				t.Errorf("settings of %s = %q", name, got)
			}
			at.Environment[0] = "A=changed"
			return nil
		}}))
	}
}

// A log that fails is an error of the host and not of a plugin.
func TestFailedLogIsAnErrorOfTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.store.broken.Store(true)
	if err := w.host.Install(t.Context(), offers(t, "a", nil)); !errors.Is(err, errPower) {
		t.Errorf("Install = %v, want the error of the log", err)
	}
	w.store.broken.Store(false)
	w.wantOffered()
}

// A host needs a layer and a permission gate.
func TestIncompleteHostIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []plugins.Config{{Layer: w.layer}, {Location: plugins.PluginLocation{Permission: yes{}}}} {
		if _, err := plugins.New(c); !errors.Is(err, plugins.ErrBadPlugin) {
			t.Errorf("New(%+v) = %v, want ErrBadPlugin", c, err)
		}
	}
}
