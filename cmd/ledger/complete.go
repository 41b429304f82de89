package main

import (
	"context"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/staleness"
	"github.com/spf13/cobra"
)

// A completion is cobra's completion function. It returns candidate words, each followed by a
// tab and a description.
type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// lastWord is the completion of @last, which every list of IDs offers.
const lastWord = last + "\tthe last one"

// mostCompletions is the maximum number of completions of an ID, @last excluded. The shell
// gets the newest.
const mostCompletions = 200

// completing returns a completion of the words that the function words reads from the store,
// filtered by the typed prefix. It ignores errors of the store, since a shell cannot show
// them, and completes nothing then.
func (a *app) completing(words func(context.Context, *stores.Store) ([]string, error)) completion {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		var found []string
		_ = a.Read(cmd.Context(), func(s *stores.Store) (err error) {
			found, err = words(cmd.Context(), s)
			return err
		})
		var fitting []string
		for _, word := range found {
			if strings.HasPrefix(word, typed) {
				fitting = append(fitting, word)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeSessions completes a session ID.
func (a *app) completeSessions(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completing(func(ctx context.Context, s *stores.Store) ([]string, error) {
		state, err := stores.Current(ctx, s, calls.Projection())
		if err != nil {
			return nil, err
		}
		return append(described(sessionCandidates(state)), lastWord), nil
	})(cmd, args, typed)
}

// completeCalls completes the provider's ID of a call.
func (a *app) completeCalls(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completing(func(ctx context.Context, s *stores.Store) ([]string, error) {
		state, err := stores.Current(ctx, s, calls.Projection())
		if err != nil {
			return nil, err
		}
		var words []string
		for _, c := range state.Calls() {
			words = append(words, render.OneLine(string(c.ID), 200)+"\t"+render.OneLine(c.Tool+" "+render.OutcomeOf(c), render.TextWidth))
		}
		return append(words[max(0, len(words)-mostCompletions):], lastWord), nil
	})(cmd, args, typed)
}

// completeTurns completes a turn ID.
func (a *app) completeTurns(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completing(func(ctx context.Context, s *stores.Store) ([]string, error) {
		state, err := stores.Current(ctx, s, calls.Projection())
		if err != nil {
			return nil, err
		}
		stale, err := stores.Current(ctx, s, staleness.Projection())
		if err != nil {
			return nil, err
		}
		return append(described(turnCandidates(stale, state.Sessions())), lastWord), nil
	})(cmd, args, typed)
}

// completeTools completes the name of a tool that a call named, in the order of first use.
func (a *app) completeTools(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completing(func(ctx context.Context, s *stores.Store) ([]string, error) {
		state, err := stores.Current(ctx, s, calls.Projection())
		if err != nil {
			return nil, err
		}
		var words []string
		seen := map[string]bool{}
		for _, c := range state.Calls() {
			if !seen[c.Tool] {
				seen[c.Tool] = true
				words = append(words, render.OneLine(c.Tool, 100))
			}
		}
		return words, nil
	})(cmd, args, typed)
}

// completeAgents completes the name of an agent that has a session.
func (a *app) completeAgents(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completing(func(ctx context.Context, s *stores.Store) ([]string, error) {
		state, err := stores.Current(ctx, s, calls.Projection())
		if err != nil {
			return nil, err
		}
		var words []string
		for _, known := range state.Sessions() {
			if word := render.OneLine(string(known.Agent), 100); word != "" && !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
		return words, nil
	})(cmd, args, typed)
}

// described returns the IDs of the last mostCompletions candidates, each with its description.
func described[T any](all []candidate[T]) []string {
	all = all[max(0, len(all)-mostCompletions):]
	words := make([]string, len(all))
	for i, c := range all {
		words[i] = c.names[0] + "\t" + c.what
	}
	return words
}
