package query

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/spf13/cobra"
)

// unknownName returns the usage error for a flag whose value name is not one of names.
// The hint of the error suggests similar names. If no name is similar it is the
// parameter hint.
func unknownName(flag, name string, names []string, hint string) error {
	f := fault.Usage("--%s: there is no %s %q", flag, flag, name)
	f.Hint = hint
	if f.Candidates = similarNames(name, names); len(f.Candidates) > 0 {
		f.Hint = "did you mean " + strings.Join(f.Candidates, " or ") + "?"
	}
	return f
}

// similarNames returns at most five elements of names that are similar to name, sorted.
// The rules are those by which cobra suggests commands.
func similarNames(name string, names []string) []string {
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

// checkName returns a usage error if name is not in names, which are the names in the
// log. It returns nil if name is empty or the log has no names.
func checkName(flag, name string, names []string) error {
	if name == "" || len(names) == 0 || slices.Contains(names, name) {
		return nil
	}
	return unknownName(flag, name, names, "the log has "+listNames(names))
}

// listNames sorts names and returns the first twelve as a text, which ends with the
// number of the remaining names.
func listNames(names []string) string {
	const most = 12
	slices.Sort(names)
	if len(names) > most {
		return strings.Join(names[:most], ", ") + " and " + render.Count(len(names)-most, "other")
	}
	return strings.Join(names, ", ")
}

// CheckKinds returns a usage error for a kind of event that is neither known to this
// program nor in the log. The log may contain kinds that only a newer program knows.
func CheckKinds(ctx context.Context, s *stores.Store, kinds []string) error {
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

// checkStream returns a not-found error for a stream without records. A stream whose
// records are damaged is found.
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

// CheckTool returns a usage error for a tool that no call of a model names and no
// registration in the log has.
func CheckTool(r *index.Snapshot, tool string) error {
	if tool == "" {
		return nil
	}
	if known, err := r.HasTool(tool); err != nil || known {
		return err
	}
	called, err := r.Tools()
	if err != nil {
		return err
	}
	registered, err := r.RegisteredTools()
	if err != nil {
		return err
	}
	return checkName("tool", tool, slices.Compact(slices.Sorted(slices.Values(slices.Concat(called, registered)))))
}

// AbsoluteLocation returns the path of folder as the log records locations: absolute and
// without symbolic links. If folder does not exist, the result is its absolute path. An
// error names flag.
func AbsoluteLocation(flag, folder string) (string, error) {
	path, err := filepath.Abs(folder)
	if err != nil {
		return "", fault.Usage("--%s: %w", flag, err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real, nil
	}
	return path, nil
}

// CheckAgent returns a usage error for an agent that has no session.
func CheckAgent(r *index.Snapshot, agent string) error {
	if agent == "" {
		return nil
	}
	if known, err := r.HasAgent(agent); err != nil || known {
		return err
	}
	names, err := r.Agents()
	if err != nil {
		return err
	}
	return checkName("agent", agent, names)
}
