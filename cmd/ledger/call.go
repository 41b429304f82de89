package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/spf13/cobra"
)

// callCommand returns the command call: ls and show.
func (a *app) callCommand() *cobra.Command {
	return a.group("call", "Calls: list them, show one", a.callList(), a.callShow())
}

// A callFilter selects the calls of call ls that match all of its fields. The zero
// callFilter selects every call.
type callFilter struct {
	session  string       // an ID, shortened or not; empty: all sessions
	tool     string       // empty: all tools
	outcomes []string     // of outcomeWords; empty: all outcomes
	open     bool         // only calls without a settlement
	when     query.Period // in which the model asked for the call
	limit    int          // the number of calls, from the end of the log; 0: no limit
	full     bool         // rows have whole inputs; selects nothing
}

// callList returns the command call ls.
func (a *app) callList() *cobra.Command {
	var filter callFilter
	cmd := &cobra.Command{
		Use: "ls", Short: "List calls and how they ended, in the order of the log",
		Example: "  ledger call ls --session @last\n  ledger call ls --outcome denied,stale --since 2d\n  ledger call ls --open -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Read(cmd.Context(), func(s *stores.Store) error { return a.listCalls(cmd.Context(), s, filter) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.session, "session", "", "only those of this session")
	flags.StringVar(&filter.tool, "tool", "", "only those of this tool")
	flags.StringSliceVar(&filter.outcomes, "outcome", nil, "only those that ended so: "+strings.Join(outcomeWords(), ", "))
	flags.BoolVar(&filter.open, "open", false, "only those without an end")
	filter.when.AddFlags(cmd, "those asked for")
	flags.IntVar(&filter.limit, "limit", 0, "only so many, the last ones (0: all)")
	fullFlag(cmd, &filter.full)
	must(cmd.RegisterFlagCompletionFunc("session", a.complete(query.SessionWords)))
	must(cmd.RegisterFlagCompletionFunc("tool", a.complete(query.ToolWords)))
	must(cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(outcomeWords(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// outcomeWords returns the values of --outcome: open, and the outcomes of settlements.
func outcomeWords() []string {
	words := []string{render.OpenOutcome}
	for _, o := range domain.Outcomes() {
		words = append(words, o.String())
	}
	return words
}

// check returns a usage error for an unknown outcome.
func (f callFilter) check() error {
	for _, word := range f.outcomes {
		if !slices.Contains(outcomeWords(), word) {
			return fault.Usage("--outcome: %q is not %s", word, strings.Join(outcomeWords(), ", "))
		}
	}
	return nil
}

// takes reports whether the filter selects a call. The session is the resolved f.session, or
// zero for all sessions.
func (f callFilter) takes(c calls.Call, session domain.SessionID) bool {
	word := render.OutcomeOf(c)
	return (session.IsZero() || c.Session == session) && (f.tool == "" || c.Tool == f.tool) &&
		(len(f.outcomes) == 0 || slices.Contains(f.outcomes, word)) && (!f.open || word == render.OpenOutcome) && f.when.Contains(c.Asked)
}

// listCalls prints the calls that filter selects, in the order of the log. An unknown session,
// tool or outcome is an error and not an empty list.
func (a *app) listCalls(ctx context.Context, s *stores.Store, filter callFilter) error {
	if err := filter.check(); err != nil {
		return err
	}
	if err := filter.when.Resolve(a.Printer); err != nil {
		return err
	}
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return err
	}
	var session calls.Session
	if filter.session != "" {
		if session, err = query.Session(state, filter.session); err != nil {
			return err
		}
	}
	if err := query.CheckTool(ctx, s, state, filter.tool); err != nil {
		return err
	}
	all := slices.DeleteFunc(state.Calls(), func(c calls.Call) bool { return !filter.takes(c, session.ID) })
	if all, err = query.LastN(all, filter.limit); err != nil {
		return err
	}
	asked, err := query.CallsWithInputs(ctx, s, all)
	if err != nil {
		return err
	}
	return render.Rows(a.Printer, rowsOf(asked, filter.full), func() { a.Table(a.callTable(asked, filter.full)) })
}

// callTable returns a table of calls. If full is set, the table has whole inputs and is not fitted
// to the terminal.
func (a *app) callTable(all []query.CallWithInput, full bool) render.Table {
	t := render.Table{Head: []string{"CALL", "~TOOL", "OUTCOME", "SESSION", "ASKED", "?>TOOK", "~INPUT", "~TEXT"}, Empty: "No calls.", Unlimited: full}
	for _, c := range all {
		t.Add(render.ShortCallID(c.ID), render.OneLine(c.Tool, 30), a.Outcome(render.OutcomeOf(c.Call)), render.ShortID(c.Session), a.ShortTime(c.Asked), render.Took(c.Call),
			inputText(c.Input, full), render.OneLine(c.Preview, render.TextWidth))
	}
	return t
}

// outcomeCounts returns the number of calls for each outcome, such as "1 open, 3 succeeded",
// in the order of outcomeWords. It omits outcomes without calls.
func (a *app) outcomeCounts(all []calls.Call) string {
	n := map[string]int{}
	for _, c := range all {
		n[render.OutcomeOf(c)]++
	}
	var parts []string
	for _, word := range outcomeWords() {
		if n[word] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[word], a.Outcome(word)))
		}
	}
	return strings.Join(parts, ", ")
}
