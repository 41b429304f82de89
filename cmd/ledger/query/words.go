package query

import (
	"context"
	"slices"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/staleness"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// The functions of this file return the words by which a shell completes an argument or a
// flag. A tab and a description may follow a word.

// lastWord is the completion of @last, which every list of IDs offers.
const lastWord = Last + "\tthe last one"

// maxCompletions is the maximum number of completions of an ID, @last excluded. The shell
// gets the newest.
const maxCompletions = 200

// SessionWords returns the completions of a session ID.
func SessionWords(ctx context.Context, s *stores.Store) ([]string, error) {
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return nil, err
	}
	return append(describeCandidates(sessionCandidates(state)), lastWord), nil
}

// CallWords returns the completions of an argument that is the provider's ID of a call.
func CallWords(ctx context.Context, s *stores.Store) ([]string, error) {
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return nil, err
	}
	var words []string
	for _, c := range state.Calls() {
		words = append(words, render.OneLine(string(c.ID), 200)+"\t"+render.OneLine(c.Tool+" "+render.OutcomeOf(c), render.TextWidth))
	}
	return append(words[max(0, len(words)-maxCompletions):], lastWord), nil
}

// TurnWords returns the completions of a turn ID.
func TurnWords(ctx context.Context, s *stores.Store) ([]string, error) {
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return nil, err
	}
	stale, err := stores.Current(ctx, s, staleness.Projection())
	if err != nil {
		return nil, err
	}
	return append(describeCandidates(turnCandidates(stale, state.Sessions())), lastWord), nil
}

// ToolWords returns the completions of an argument that is the name of a tool. It offers
// every tool that a recorded call names, in the order of first use.
func ToolWords(ctx context.Context, s *stores.Store) ([]string, error) {
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
}

// AgentWords returns the completions of an argument that is the name of an agent. It
// offers every agent that has a session.
func AgentWords(ctx context.Context, s *stores.Store) ([]string, error) {
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
}

// describeCandidates returns the IDs of the last maxCompletions candidates, each with its
// description.
func describeCandidates[T any](all []candidate[T]) []string {
	all = all[max(0, len(all)-maxCompletions):]
	words := make([]string, len(all))
	for i, c := range all {
		words[i] = c.names[0] + "\t" + c.description
	}
	return words
}

// ApprovalWords returns the completions of an approval ID.
func ApprovalWords(ctx context.Context, s *stores.Store) ([]string, error) {
	state, err := stores.Current(ctx, s, engine.Approvals())
	if err != nil {
		return nil, err
	}
	return append(describeCandidates(approvalCandidates(state)), lastWord), nil
}
