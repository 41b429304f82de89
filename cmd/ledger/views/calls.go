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
	"github.com/settlement-ledger/ledger/projections/index"
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

// query returns the query of the filter for the calls of a session, or of all sessions for
// the zero ID. selects is false if no call can match.
func (f CallFilter) query(session domain.SessionID) (q index.CallQuery, selects bool) {
	q = index.CallQuery{Session: session, Tool: f.Tool, Open: f.Open || slices.Contains(f.Outcomes, render.OpenOutcome), Limit: f.Limit}
	q.From, q.To = f.When.Bounds()
	if f.Open {
		return q, len(f.Outcomes) == 0 || slices.Contains(f.Outcomes, render.OpenOutcome)
	}
	for _, o := range domain.Outcomes() {
		if slices.Contains(f.Outcomes, o.String()) {
			q.Outcomes = append(q.Outcomes, o)
		}
	}
	return q, true
}

// ListCalls prints the calls that filter selects, in the order of the log. An unknown session,
// tool or outcome is an error and not an empty list.
func ListCalls(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, filter CallFilter) error {
	if err := filter.checkOutcomes(); err != nil {
		return err
	}
	if err := filter.When.Resolve(out); err != nil {
		return err
	}
	if err := query.CheckLimit(filter.Limit); err != nil {
		return err
	}
	var session calls.Session
	var err error
	if filter.Session != "" {
		if session, err = query.Session(r, filter.Session); err != nil {
			return err
		}
	}
	if err := query.CheckTool(r, filter.Tool); err != nil {
		return err
	}
	var all []calls.Call
	if q, ok := filter.query(session.ID); ok {
		if all, err = r.Calls(q); err != nil {
			return err
		}
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
