package views

import (
	"context"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
)

// A CallFilter selects the calls of call ls that match all of its fields. The zero
// CallFilter selects every call.
type CallFilter struct {
	query.Filter
	Open       bool // only calls without a settlement
	FullInputs bool // rows have whole inputs; selects nothing
}

// ListCalls prints the calls that filter selects, in the order of the log.
func ListCalls(ctx context.Context, out *render.Printer, s *stores.Store, r *index.Snapshot, filter CallFilter) error {
	selected, err := filter.Resolve(out, r, query.CallList)
	if err != nil {
		return err
	}
	q, none := selected.Calls, false
	if filter.Open {
		none = len(filter.Outcomes) > 0 && !q.Open
		q.Open, q.Outcomes = true, nil
	}
	var all []calls.Call
	if !none {
		if all, err = r.Calls(q); err != nil {
			return err
		}
	}
	asked, err := query.CallsWithInputs(ctx, s, all)
	if err != nil {
		return err
	}
	return render.Rows(out, newCallRows(asked, filter.FullInputs), func() {
		t := callTable(out, asked, filter.FullInputs)
		t.Empty = filter.Empty(out, query.CallList)
		out.Table(t)
	})
}

// callTable returns a table of calls. If full is set, the table shows whole inputs and
// may be wider than the terminal.
func callTable(out *render.Printer, all []query.CallWithInput, full bool) render.Table {
	t := render.Table{Head: []string{"CALL", "~TOOL", "OUTCOME", "SESSION", "ASKED", "?>TOOK", "~INPUT", "~TEXT"}, Unlimited: full}
	for _, c := range all {
		t.Add(render.ShortCallID(c.ID), render.OneLine(c.Tool, 30), out.Outcome(render.OutcomeOf(c.Call)), render.ShortID(c.Session), out.ShortTime(c.Asked), render.Took(c.Call),
			inputText(c.Input, full), render.OneLine(c.Preview, render.TextWidth))
	}
	return t
}

// outcomeCounts returns the number of calls for each outcome, such as "1 open, 3 succeeded",
// in the order of query.OutcomeWords. It omits outcomes without calls.
func outcomeCounts(out *render.Printer, all []calls.Call) string {
	n := map[string]int{}
	for _, c := range all {
		n[render.OutcomeOf(c)]++
	}
	return countedOutcomes(out, n)
}

// countedOutcomes returns the text of outcomeCounts for counts.
func countedOutcomes(out *render.Printer, n map[string]int) string {
	var parts []string
	for _, word := range query.OutcomeWords() {
		if n[word] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[word], out.Outcome(word)))
		}
	}
	return strings.Join(parts, ", ")
}
