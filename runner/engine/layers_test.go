package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

// A sample is a plugin with one tool, which asks for permission. It notes what its host
// does.
type sample struct {
	name, tool string
	notes      *notes
}

// The notes of all plugins of a test.
type notes struct {
	mu   sync.Mutex
	made []string
}

func (n *notes) add(note string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made = append(n.made, note)
}

// count returns how often a note was made.
func (n *notes) count(note string) (times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, made := range n.made {
		if made == note {
			times++
		}
	}
	return times
}

func (s sample) Name() string { return s.name }

func (s sample) Install(ctx context.Context, scope plugins.PluginScope, at plugins.PluginLocation) error {
	s.notes.add("install " + s.name)
	tool, err := domain.Make(domain.Spec[struct{}, string]{Description: "Acts.", Execute: func(ctx context.Context, _ struct{}, inv domain.Invocation) (string, error) {
		return s.name, at.Permission.Assert(ctx, inv, permission.Ask{Action: s.tool, Resources: []string{at.Folder}})
	}})
	if err != nil {
		return err
	}
	return scope.Register(ctx, map[string]domain.Tool{s.tool: tool})
}

func (s sample) Refresh(context.Context) error {
	s.notes.add("refresh " + s.name)
	return nil
}

func (s sample) Stop(context.Context) error {
	s.notes.add("stop " + s.name)
	return nil
}

// A session is offered the tools of the plugins of the application, of the location and of
// its own layer. A subsession has the layer of its root. Each turn refreshes the plugins of all layers, and
// the end of the process stops them.
func TestASubsessionSharesTheLayerOfItsRoot(t *testing.T) {
	t.Parallel()
	made := new(notes)
	t.Cleanup(func() { // after the process is closed
		for _, name := range []string{"app", "place", "own"} {
			want := 1
			if name == "own" {
				want = 2 // sessions without a parent
			}
			if installs, stops := made.count("install "+name), made.count("stop "+name); installs != want || stops != want {
				t.Errorf("plugin %s was installed %d times and stopped %d times, want %d", name, installs, stops, want)
			}
		}
	})
	f := newFamily(t, scripted{
		"build": {task("general")}, "general": {callPart("three", `{}`)},
	}, map[domain.AgentID]string{"build": "allow * *", "general": "allow * *"}, func(c *engine.WorkspaceConfig) {
		c.ApplicationPlugins = []plugins.Plugin{sample{"app", "one", made}}
		c.Plugins = []plugins.Plugin{sample{"place", "two", made}}
		c.SessionPlugins = func() []plugins.Plugin { return []plugins.Plugin{sample{"own", "three", made}} }
	})
	f.run("build")
	f.run("build")
	all := f.sessions()
	f.wantEnd(all[1], domain.Succeeded, "own")
	layer := func(i int) (id domain.LayerID) {
		for _, tool := range all[i].Turn.Tools {
			if tool.Name == "three" {
				id = tool.Layer
			}
		}
		return id
	}
	if layer(0).IsZero() || layer(0) != layer(1) || layer(2) != layer(3) || layer(0) == layer(2) {
		t.Errorf("the tool three is of the layers %v, %v, %v and %v, want one for each root", layer(0), layer(1), layer(2), layer(3))
	}
	for i := range all {
		var names []string
		for _, tool := range all[i].Turn.Tools {
			names = append(names, string(tool.Name))
		}
		if !slices.Contains(names, "one") || !slices.Contains(names, "two") {
			t.Errorf("session %d is offered %s, want the tools of all layers", i, strings.Join(names, " "))
		}
	}
	if n := made.count("refresh app"); n != made.count("refresh place") || n < 8 {
		t.Errorf("the plugin of the application was refreshed %d times, want once for each of 8 turns at least", n)
	}
}

// A tool of the application asks the gate of the workspace that runs its session. Another
// workspace does not install the plugins again.
func TestAToolOfTheApplicationAsksTheWorkspaceOfItsSession(t *testing.T) {
	t.Parallel()
	made := new(notes)
	one := newFamily(t, scripted{"build": {callPart("one", `{}`)}}, map[domain.AgentID]string{"build": "allow * *"}, func(c *engine.WorkspaceConfig) {
		c.ApplicationPlugins = []plugins.Plugin{sample{"app", "one", made}}
		c.Rules = rules("allow * *\ndeny one /w")
	})
	var err error
	two := &family{t: t, ledger: one.ledger, choice: permission.Once}
	two.Workspace, err = one.Process.Open(t.Context(), engine.WorkspaceConfig{
		Location: "/two", Rules: rules("ask * *"), Approver: two, Runner: runner.Config{Provider: scripted{"build": {callPart("one", `{}`)}}},
		ApplicationPlugins: []plugins.Plugin{sample{"app", "one", made}},
	})
	if err != nil {
		t.Fatal(err)
	}
	one.wantEnd(one.run("build"), domain.DeniedByRule, "Permission denied: one /w")
	two.wantEnd(two.run("build"), domain.Succeeded, "app")
	if len(two.asked.requests) != 1 || len(one.asked.requests) != 0 || made.count("install app") != 1 {
		t.Errorf("%d and %d requests after %d installations, want one of the second workspace after one", len(one.asked.requests), len(two.asked.requests), made.count("install app"))
	}
}
