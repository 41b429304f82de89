package views

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
)

// A CallFilter selects the calls of call ls that match all of its fields. The zero
// CallFilter selects every call.
type CallFilter struct {
	Session    string       // an ID, shortened or not; empty: all sessions
	Tool       string       // empty: all tools
	Outcomes   []string     // of OutcomeWords; empty: all outcomes
	Open       bool         // only calls without a settlement
	When       query.Period // in which the model asked for the call
	Limit      int          // the number of calls, from the end of the log; 0: no limit
	FullInputs bool         // rows have whole inputs; selects nothing
}

// OutcomeWords returns the values of --outcome: open, and the outcomes of settlements.
func OutcomeWords() []string {
	words := []string{render.OpenOutcome}
	for _, o := range domain.Outcomes() {
		words = append(words, o.String())
	}
	return words
}

// checkOutcomes returns a usage error for an unknown outcome.
func (f CallFilter) checkOutcomes() error {
	for _, word := range f.Outcomes {
		if !slices.Contains(OutcomeWords(), word) {
			return fault.Usage("--outcome: %q is not %s", word, strings.Join(OutcomeWords(), ", "))
		}
	}
	return nil
}

// selects reports whether the filter selects the call c. session is the ID that
// f.Session was resolved to, or zero for all sessions.
func (f CallFilter) selects(c calls.Call, session domain.SessionID) bool {
	word := render.OutcomeOf(c)
	return (session.IsZero() || c.Session == session) && (f.Tool == "" || c.Tool == f.Tool) &&
		(len(f.Outcomes) == 0 || slices.Contains(f.Outcomes, word)) && (!f.Open || word == render.OpenOutcome) && f.When.Contains(c.Asked)
}

// ListCalls prints the calls that filter selects, in the order of the log. An unknown session,
// tool or outcome is an error and not an empty list.
func ListCalls(ctx context.Context, out *render.Printer, s *stores.Store, filter CallFilter) error {
	if err := filter.checkOutcomes(); err != nil {
		return err
	}
	if err := filter.When.Resolve(out); err != nil {
		return err
	}
	state, err := stores.Current(ctx, s, calls.Projection())
	if err != nil {
		return err
	}
	var session calls.Session
	if filter.Session != "" {
		if session, err = query.Session(state, filter.Session); err != nil {
			return err
		}
	}
	if err := query.CheckTool(ctx, s, state, filter.Tool); err != nil {
		return err
	}
	all := slices.DeleteFunc(state.Calls(), func(c calls.Call) bool { return !filter.selects(c, session.ID) })
	if all, err = query.LastN(all, filter.Limit); err != nil {
		return err
	}
	asked, err := query.CallsWithInputs(ctx, s, all)
	if err != nil {
		return err
	}
	return render.Rows(out, newCallRows(asked, filter.FullInputs), func() { out.Table(callTable(out, asked, filter.FullInputs)) })
}

// callTable returns a table of calls. If full is set, the table shows whole inputs and
// may be wider than the terminal.
func callTable(out *render.Printer, all []query.CallWithInput, full bool) render.Table {
	t := render.Table{Head: []string{"CALL", "~TOOL", "OUTCOME", "SESSION", "ASKED", "?>TOOK", "~INPUT", "~TEXT"}, Empty: "No calls.", Unlimited: full}
	for _, c := range all {
		t.Add(render.ShortCallID(c.ID), render.OneLine(c.Tool, 30), out.Outcome(render.OutcomeOf(c.Call)), render.ShortID(c.Session), out.ShortTime(c.Asked), render.Took(c.Call),
			inputText(c.Input, full), render.OneLine(c.Preview, render.TextWidth))
	}
	return t
}

// outcomeCounts returns the number of calls for each outcome, such as "1 open, 3 succeeded",
// in the order of OutcomeWords. It omits outcomes without calls.
func outcomeCounts(out *render.Printer, all []calls.Call) string {
	n := map[string]int{}
	for _, c := range all {
		n[render.OutcomeOf(c)]++
	}
	var parts []string
	for _, word := range OutcomeWords() {
		if n[word] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[word], out.Outcome(word)))
		}
	}
	return strings.Join(parts, ", ")
}
