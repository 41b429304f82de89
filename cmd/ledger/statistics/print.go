package statistics

import (
	"fmt"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/projections/index"
)

// Options are the flags of ledger stats.
type Options struct {
	query.Filter
	By     string // of Kinds; the Filter selects by no decision
	Prices string // a file; empty: no costs
}

// A row is one group in JSON results.
type row struct {
	By         string         `json:"by"`
	Group      *string        `json:"group"` // null: the log does not say it, or --by all
	Calls      int            `json:"calls"`
	Outcomes   map[string]int `json:"outcomes"` // the number of calls of each outcome; open: without a settlement
	StaleRate  *float64       `json:"stale_rate"`
	DeniedRate *float64       `json:"denied_rate"` // by a rule or a person
	RunMS      *percentileRow `json:"run_ms"`
	WaitMS     *percentileRow `json:"wait_ms"`
	InputBytes int64          `json:"input_bytes"`
	ShownBytes int64          `json:"shown_bytes"` // of the texts that the model read
	Replies    *int           `json:"replies"`
	Tokens     *tokenSums     `json:"tokens"`
	Turns      int            `json:"turns"`
	Never      []string       `json:"never_called"` // offered tools without a call; null: the flags select some calls alone
	Cost       *string        `json:"cost"`         // exact
	Currency   *string        `json:"currency"`
	Unpriced   []string       `json:"unpriced"` // models without a price, whose tokens the cost leaves out
}

// A percentileRow has percentiles by nearest rank.
type percentileRow struct {
	N   int   `json:"n"`
	P50 int64 `json:"p50"`
	P95 int64 `json:"p95"`
	P99 int64 `json:"p99"`
}

// A tokenSums has the tokens of replies, as their provider counts them.
type tokenSums struct {
	Input      int64 `json:"input"` // without those of the cache
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
}

// newRow returns the row of a group.
func newRow(g *Group, opts Options, prices *Prices) row {
	r := row{
		By: opts.By, Group: render.OrNull(g.Name), Calls: g.Calls, Outcomes: g.Outcomes, StaleRate: rate(g.Stale(), g.Settled()), DeniedRate: rate(g.Denied(), g.Settled()),
		RunMS: percentilesRow(g.Run), WaitMS: percentilesRow(g.Wait), InputBytes: g.InputBytes, ShownBytes: g.ShownBytes, Turns: g.Turns, Never: g.NeverCalled,
		Unpriced: append([]string{}, g.Unpriced...),
	}
	if opts.By != "tool" {
		tokens := tokenSums(g.Tokens)
		r.Replies, r.Tokens = &g.Replies, &tokens
	}
	if g.Cost != nil {
		r.Cost, r.Currency = render.OrNull(exact(g.Cost)), render.OrNull(prices.Currency)
	}
	return r
}

// rate returns the part that n is of all, or nil if all is 0.
func rate(n, all int) *float64 {
	if all == 0 {
		return nil
	}
	part := float64(n) / float64(all)
	return &part
}

// percentilesRow returns percentiles, or nil without values.
func percentilesRow(p Percentiles) *percentileRow {
	if p.N == 0 {
		return nil
	}
	row := percentileRow(p)
	return &row
}

// Print prints the sums of the calls that the flags select.
func Print(out *render.Printer, r *index.Snapshot, opts Options) error {
	selected, err := opts.Resolve(out, r, query.CallList)
	if err != nil {
		return err
	}
	var prices *Prices
	if opts.Prices != "" {
		if prices, err = ReadPrices(opts.Prices); err != nil {
			return err
		}
	}
	groups, err := Collect(r, selected.Calls, opts.By, func(at time.Time) string { return out.Milliseconds(at)[:len(time.DateOnly)] }, prices)
	if err != nil {
		return err
	}
	rows := make([]row, len(groups))
	for i, g := range groups {
		rows[i] = newRow(g, opts, prices)
	}
	return render.Rows(out, rows, func() { out.Table(table(out, groups, opts, prices)) })
}

// table returns the table of groups for people.
func table(out *render.Printer, groups []*Group, opts Options, prices *Prices) render.Table {
	t := render.Table{Head: []string{"~" + strings.ToUpper(opts.By), ">CALLS", ">OK", ">OPEN", "?>STALE", "?>DENIED", ">RUN P50", ">P95", ">P99", "?>WAIT P50", "?>P95", "?>P99", "?>BYTES IN", "?>SHOWN", ">TURNS"}, Empty: opts.Empty(out, query.CallList)}
	if opts.By == "tool" {
		t.Head = append(t.Head, "~OFFERED")
	} else {
		t.Head = append(t.Head, ">TOKENS IN", ">CACHED", ">OUT")
		if prices != nil {
			t.Head = append(t.Head, ">"+strings.TrimSpace("COST "+render.Printable(prices.Currency)))
		}
		t.Head = append(t.Head, "~NEVER CALLED")
	}
	for _, g := range groups {
		name := render.OneLine(g.Name, 40)
		switch {
		case opts.By == "session":
			name = render.Shorten(g.Name)
		case opts.By == "all":
			name = "all"
		case g.Name == "":
			name = "(not known)"
		}
		cells := []string{name, fmt.Sprint(g.Calls), fmt.Sprint(g.Outcomes["succeeded"]), fmt.Sprint(g.Outcomes[index.OpenOutcome]), percent(g.Stale(), g.Settled()), percent(g.Denied(), g.Settled())}
		for _, p := range []Percentiles{g.Run, g.Wait} {
			for _, ms := range []int64{p.P50, p.P95, p.P99} {
				text := ""
				if p.N > 0 {
					text = render.Duration(time.Duration(ms) * time.Millisecond)
				}
				cells = append(cells, text)
			}
		}
		cells = append(cells, render.Bytes(g.InputBytes), render.Bytes(g.ShownBytes), fmt.Sprint(g.Turns))
		if opts.By == "tool" {
			cells = append(cells, offeredText(g))
		} else {
			cells = append(cells, fmt.Sprint(g.Tokens.Input+g.Tokens.CacheWrite), fmt.Sprint(g.Tokens.CacheRead), fmt.Sprint(g.Tokens.Output))
			if prices != nil {
				cells = append(cells, costText(g))
			}
			cells = append(cells, render.OneLine(strings.Join(g.NeverCalled, ", "), render.TextWidth))
		}
		t.Add(cells...)
	}
	return t
}

// offeredText says whether a tool was offered and called.
func offeredText(g *Group) string {
	switch {
	case g.Turns == 0:
		return "never offered"
	case g.Calls == 0:
		return "never called"
	}
	return ""
}

// costText returns the cost of a group, rounded to four digits.
func costText(g *Group) string {
	text := ""
	if g.Cost != nil {
		text = g.Cost.FloatString(4)
	}
	if len(g.Unpriced) > 0 {
		text = strings.TrimSpace(text + " + ?")
	}
	return text
}

// percent returns the part that n is of all in percent, or the empty text for none.
func percent(n, all int) string {
	if n == 0 || all == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(all))
}
