package main

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/spf13/cobra"
)

// filters are the flags that restrict a list.
var filters = []string{"session", "tool", "kind", "agent", "outcome", "stream", "location", "since", "until", "after"}

// emptyFilter returns the fault of a filter that is given and empty, such as a
// script passes from an unset variable. An empty filter would list everything.
func emptyFilter(cmd *cobra.Command) error {
	for _, name := range filters {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && (f.Value.String() == "" || f.Value.String() == "[]") {
			return fault.Usage("--%s is empty: name what it takes, or leave it out", name)
		}
	}
	return nil
}

// unknownName returns the fault of a flag whose value names nothing, with the names
// that are nearly the same.
func unknownName(flag, name string, names []string, hint string) error {
	f := fault.Usage("--%s: there is no %s %q", flag, flag, name)
	f.Hint = hint
	if f.Candidates = near(name, names); len(f.Candidates) > 0 {
		f.Hint = "did you mean " + strings.Join(f.Candidates, " or ") + "?"
	}
	return f
}

// near returns at most five names that resemble a name.
func near(name string, names []string) []string {
	known := &cobra.Command{SuggestionsMinimumDistance: max(2, len(name)/3)}
	for _, other := range names {
		if other != "" && !strings.ContainsAny(other, " \t\n") {
			known.AddCommand(&cobra.Command{Use: other, Run: func(*cobra.Command, []string) {}})
		}
	}
	found := known.SuggestionsFor(name)
	slices.Sort(found)
	return found[:min(len(found), 5)]
}

// checkName refuses a name that is not in the log. It accepts every name if the log
// has no names.
func checkName(flag, name string, names []string) error {
	if name == "" || len(names) == 0 || slices.Contains(names, name) {
		return nil
	}
	return unknownName(flag, name, names, "the log has "+someOf(names))
}

// someOf returns some names of a list, for a person.
func someOf(names []string) string {
	const most = 12
	slices.Sort(names)
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and " + render.Count(len(names)-most, "other")
	}
	return strings.Join(names, ", ")
}

// checkKinds refuses a kind of event that this program does not know and that the log
// does not have.
func checkKinds(ctx context.Context, s *stores.Store, kinds []string) error {
	for _, kind := range kinds {
		if events.Knows(kind) {
			continue
		}
		found := false
		if kind != "" {
			for e, err := range events.Lend(ctx, s.Log, events.Query{Filter: events.Filter{Kinds: []string{kind}}}) {
				if err != nil && !errors.Is(err, events.ErrDamaged) {
					return err
				}
				found = found || e.Kind == kind
				break
			}
		}
		if !found {
			return unknownName("kind", kind, events.Kinds(), "the kinds are "+strings.Join(events.Kinds(), ", "))
		}
	}
	return nil
}

// checkStream refuses the name of a stream that is empty.
func checkStream(ctx context.Context, s *stores.Store, stream string) error {
	if stream == "" {
		return nil
	}
	for _, err := range s.Log.Read(ctx, events.Stream(stream), 0) {
		if errors.Is(err, events.ErrDamaged) {
			return nil
		}
		return err
	}
	return fault.NotFound("ledger event ls -o jsonl has the stream of each event", "--stream: no stream %q", stream)
}

// checkTool refuses the name of a tool that the log does not have: no call asked for
// it, and no registration has it.
func checkTool(ctx context.Context, s *stores.Store, state *calls.State, tool string) error {
	names := map[string]bool{}
	for _, c := range state.Calls() {
		names[c.Tool] = true
	}
	if tool == "" || names[tool] {
		return nil
	}
	registered, err := stores.Current(ctx, s, catalog.Projection())
	if err != nil {
		return err
	}
	for _, l := range registered.Layers() {
		for _, r := range l.Registrations {
			for _, t := range r.Tools {
				names[string(t.Name)] = true
			}
		}
	}
	return checkName("tool", tool, slices.Collect(maps.Keys(names)))
}

// located returns a folder as locations are on record: absolute, without symbolic
// links. One that is gone is as it is named.
func located(flag, folder string) (string, error) {
	path, err := filepath.Abs(folder)
	if err != nil {
		return "", fault.Usage("--%s: %w", flag, err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	return path, nil
}

// checkAgent refuses the name of an agent that no session has.
func checkAgent(state *calls.State, agent string) error {
	names := map[string]bool{}
	for _, known := range state.Sessions() {
		names[string(known.Agent)] = true
	}
	return checkName("agent", agent, slices.Collect(maps.Keys(names)))
}
