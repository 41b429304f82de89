package plugins_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner/plugins"
)

// scope installs a plugin and returns its scope.
func (w *world) scope() plugins.PluginScope {
	w.t.Helper()
	var scope plugins.PluginScope
	must(w.t, w.host.Install(context.Background(), &plugin{name: "one", install: func(_ context.Context, s plugins.PluginScope, _ plugins.PluginLocation) error {
		scope = s
		return nil
	}}))
	return scope
}

// replace makes tools of names the content of a part; each says generation.
func (w *world) replace(s plugins.PluginScope, part, generation string, names ...string) error {
	tools := map[string]domain.Tool{}
	for _, name := range names {
		tools[name] = tool(w.t, generation)
	}
	_, err := s.Replace(context.Background(), part, tools, nil)
	return err
}

func (w *world) wantGenerations(want map[string]string) {
	w.t.Helper()
	if got := w.offered(); !maps.Equal(got, want) {
		w.t.Errorf("offered %v, want %v", got, want)
	}
}

// Replace changes one part: its new generation is on record before the old one is closed,
// so that a name of both is never absent.
func TestReplaceMakesBeforeItBreaks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.scope()
	must(t, w.replace(s, "x", "old", "a", "b"))
	must(t, w.replace(s, "y", "old", "c"))
	must(t, w.replace(s, "x", "new", "b", "d"))
	w.wantGenerations(map[string]string{"b": "new", "c": "old", "d": "new"})
	var kinds []string
	for _, e := range w.layerEvents() {
		kinds = append(kinds, e.Kind())
	}
	want := []string{"LayerOpened", "ToolsRegistered", "ToolsRegistered", "ToolsRegistered", "RegistrationClosed"}
	if !slices.Equal(kinds, want) {
		t.Errorf("events = %v, want %v", kinds, want)
	}
	must(t, w.replace(s, "x", ""))
	must(t, w.replace(s, "unknown", ""))
	w.wantGenerations(map[string]string{"c": "old"})
}

// If the new generation cannot be recorded, the old one stays in effect.
func TestFailedReplaceKeepsTheOldGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.scope()
	must(t, w.replace(s, "x", "old", "a"))
	w.store.broken.Store(true)
	if err := w.replace(s, "x", "new", "a"); !errors.Is(err, errPower) {
		t.Errorf("Replace = %v, want the error of the log", err)
	}
	w.store.broken.Store(false)
	w.wantGenerations(map[string]string{"a": "old"})
	must(t, w.replace(s, "x", "newer", "a"))
	w.wantGenerations(map[string]string{"a": "newer"})
}

// Entries that the plugin refuses and entries that the registry refuses are returned and on
// record together, with the good tools of the list. A reason that is missing is said to be.
func TestRefusedEntriesAreOnRecordWithTheGoodOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.scope()
	for part, register := range map[string]func(map[string]domain.Tool, map[string]error) (map[string]error, error){
		"whole": func(tools map[string]domain.Tool, refused map[string]error) (map[string]error, error) {
			return s.RegisterValid(t.Context(), tools, refused)
		},
		"part": func(tools map[string]domain.Tool, refused map[string]error) (map[string]error, error) {
			return s.Replace(t.Context(), "x", tools, refused)
		},
	} {
		broken, given := errors.New("ends early"), map[string]error{"broken": nil, "silent": nil}
		given["broken"] = broken
		all, err := register(map[string]domain.Tool{part: tool(t, "good"), "no.dots": tool(t, "bad")}, given)
		if err != nil || len(all) != 3 || !errors.Is(all["broken"], broken) || !errors.Is(all["no.dots"], domain.ErrBadName) || all["silent"] == nil {
			t.Errorf("%s: refused %v, %v, want broken, silent and no.dots", part, all, err)
		}
		if given["silent"] != nil {
			t.Errorf("%s: the caller's map was changed", part)
		}
		recorded := w.layerEvents()
		e := recorded[len(recorded)-1].(events.ToolsRegistered)
		if len(e.Tools) != 1 || len(e.Refused) != 3 || e.Refused[0].Name != "broken" || e.Refused[1].Name != "silent" || e.Refused[1].Reason != "the plugin gave no reason" {
			t.Errorf("%s: on record is %+v, want one tool and three refusals", part, e)
		}
	}
	w.wantOffered("part", "whole")
}
