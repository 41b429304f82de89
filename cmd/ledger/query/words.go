package query

import (
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// The functions of this file return the words by which a shell completes an argument or a
// flag. A tab and a description may follow a word.

// lastWord is the completion of @last, which every list of IDs offers.
const lastWord = Last + "\tthe last one"

// maxCompletions is the maximum number of completions of an ID, @last excluded. The shell
// gets the newest.
const maxCompletions = 200

// SessionWords returns the completions of a session ID.
func SessionWords(r *index.Snapshot) ([]string, error) {
	all, err := r.Sessions(index.SessionQuery{Limit: maxCompletions})
	return words(all, func(s index.Session) candidate[calls.Session] { return sessionCandidate(s.Session) }), err
}

// CallWords returns the completions of an argument that is the provider's ID of a call.
func CallWords(r *index.Snapshot) ([]string, error) {
	all, err := r.Calls(index.CallQuery{Limit: maxCompletions})
	var words []string
	for _, c := range all {
		words = append(words, render.OneLine(string(c.ID), 200)+"\t"+render.OneLine(c.Tool+" "+render.OutcomeOf(c), render.TextWidth))
	}
	return append(words, lastWord), err
}

// TurnWords returns the completions of a turn ID.
func TurnWords(r *index.Snapshot) ([]string, error) {
	all, err := r.LastTurns(maxCompletions)
	return words(all, turnCandidate), err
}

// ToolWords returns the completions of an argument that is the name of a tool. It offers
// every tool that a recorded call names, in the order of first use.
func ToolWords(r *index.Snapshot) ([]string, error) {
	all, err := r.Tools()
	return shownNames(all), err
}

// AgentWords returns the completions of an argument that is the name of an agent. It
// offers every agent that has a session.
func AgentWords(r *index.Snapshot) ([]string, error) {
	all, err := r.Agents()
	return shownNames(all), err
}

// shownNames returns names as words of one line, without those that show nothing.
func shownNames(names []string) []string {
	var words []string
	for _, name := range names {
		if word := render.OneLine(name, 100); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// words returns the ID of each element with its description, and @last.
func words[T, C any](all []T, describe func(T) candidate[C]) []string {
	var words []string
	for _, v := range all {
		c := describe(v)
		words = append(words, c.names[0]+"\t"+c.description)
	}
	return append(words, lastWord)
}

// ApprovalWords returns the completions of an approval ID.
func ApprovalWords(r *index.Snapshot) ([]string, error) {
	state, err := SavedApprovals(r)
	if err != nil {
		return nil, err
	}
	all := approvalCandidates(state)
	var words []string
	for _, c := range all[max(0, len(all)-maxCompletions):] {
		words = append(words, c.names[0]+"\t"+c.description)
	}
	return append(words, lastWord), nil
}
