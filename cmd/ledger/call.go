package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/spf13/cobra"
)

func (a *app) callCommand() *cobra.Command {
	return a.group("call", "Calls: list them, show one", a.callList(), a.callShow())
}

// A callFilter says which calls are listed.
type callFilter struct {
	session  string
	tool     string
	outcomes []string
	open     bool
	since    string
	limit    int
}

func (a *app) callList() *cobra.Command {
	var filter callFilter
	cmd := &cobra.Command{
		Use: "ls", Short: "List calls and how they ended, in the order of the log",
		Example: "  ledger call ls --session @last\n  ledger call ls --outcome denied,stale --since 2d\n  ledger call ls --open -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.reading(cmd.Context(), func(s *ledgerStore) error { return a.listCalls(cmd.Context(), s, filter) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.session, "session", "", "only those of this session")
	flags.StringVar(&filter.tool, "tool", "", "only those of this tool")
	flags.StringSliceVar(&filter.outcomes, "outcome", nil, "only those that ended so: "+strings.Join(outcomeWords(), ", "))
	flags.BoolVar(&filter.open, "open", false, "only those without an end")
	flags.StringVar(&filter.since, "since", "", "only those asked for since: 10m, 2d, 2026-09-01")
	flags.IntVar(&filter.limit, "limit", 0, "only so many, the last ones (0: all)")
	must(cmd.RegisterFlagCompletionFunc("session", a.completeSessions))
	must(cmd.RegisterFlagCompletionFunc("tool", a.completeTools))
	must(cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(outcomeWords(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// outcomeWords returns the words that --outcome takes.
func outcomeWords() []string {
	words := []string{open}
	for _, o := range domain.Outcomes() {
		words = append(words, o.String())
	}
	return words
}

func (f callFilter) check() error {
	for _, word := range f.outcomes {
		if !slices.Contains(outcomeWords(), word) {
			return misuse("--outcome: %q is not %s", word, strings.Join(outcomeWords(), ", "))
		}
	}
	return nil
}

func (f callFilter) takes(c calls.Call, session domain.SessionID, since time.Time) bool {
	word := outcomeWord(c)
	return (session.IsZero() || c.Session == session) && (f.tool == "" || c.Tool == f.tool) &&
		(len(f.outcomes) == 0 || slices.Contains(f.outcomes, word)) && (!f.open || word == open) && !c.Asked.Before(since)
}

func (a *app) listCalls(ctx context.Context, s *ledgerStore, filter callFilter) error {
	if err := filter.check(); err != nil {
		return err
	}
	since, err := a.sinceFlag(filter.since)
	if err != nil {
		return err
	}
	state, err := folded(ctx, s, calls.Projection())
	if err != nil {
		return err
	}
	var session calls.Session
	if filter.session != "" {
		if session, err = pickSession(state, filter.session); err != nil {
			return err
		}
	}
	all := slices.DeleteFunc(state.Calls(), func(c calls.Call) bool { return !filter.takes(c, session.ID, since) })
	if all, err = latest(all, filter.limit); err != nil {
		return err
	}
	return emit(a, rowsOf(all), func() { a.write(a.callTable(all)) })
}

func (a *app) callTable(all []calls.Call) table {
	t := table{head: []string{"CALL", "TOOL", "OUTCOME", "SESSION", "ASKED", ">TOOK", "TEXT"}, empty: "No calls."}
	for _, c := range all {
		t.add(shortCall(c.ID), oneLine(c.Tool, 30), a.outcome(outcomeWord(c)), short(c.Session), a.ago(c.Asked), took(c), oneLine(c.Preview, textWidth))
	}
	return t
}

// outcomeCounts returns how many calls ended how, in the order of outcomes.
func (a *app) outcomeCounts(all []calls.Call) string {
	n := map[string]int{}
	for _, c := range all {
		n[outcomeWord(c)]++
	}
	var parts []string
	for _, word := range outcomeWords() {
		if n[word] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[word], a.outcome(word)))
		}
	}
	return strings.Join(parts, ", ")
}
