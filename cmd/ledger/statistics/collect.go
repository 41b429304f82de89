package statistics

import (
	"cmp"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/index"
)

// Kinds are the kinds of groups.
var Kinds = []string{"tool", "agent", "model", "session", "day", "all"}

// A Group has the sums of the calls of one tool, agent, model, session or day.
type Group struct {
	Name     string // empty: the log does not say it
	Calls    int
	Outcomes map[string]int // the number of calls of each outcome; index.OpenOutcome: open
	Run      Percentiles    // of the run times
	Wait     Percentiles    // of the waits
	// InputBytes and ShownBytes are the sizes of the inputs, and of the texts that the model
	// read.
	InputBytes, ShownBytes int64
	Replies                int
	Tokens                 events.Tokens
	Cost                   *big.Rat // nil: there is no price table, or no model of the group has a price
	Unpriced               []string // the models without a price, sorted
	Turns                  int      // the turns; of a tool those that offered it
	// NeverCalled are the tools that were offered and not called, sorted; nil if the query
	// selects calls by more than session, agent and period.
	NeverCalled []string

	run, wait []int64
	byModel   map[string]events.Tokens
	offers    map[int64]int // turns by offer
	called    map[string]bool
}

// Settled returns the number of settled calls.
func (g *Group) Settled() int { return g.Calls - g.Outcomes[index.OpenOutcome] }

// Stale returns the number of stale calls, and Denied that of the calls that a rule or a
// person denied.
func (g *Group) Stale() int { return g.Outcomes[domain.Stale.String()] }

// Denied is described at Stale.
func (g *Group) Denied() int {
	return g.Outcomes[domain.DeniedByRule.String()] + g.Outcomes[domain.DeclinedByUser.String()]
}

// Percentiles are percentiles of durations in milliseconds, by nearest rank. N is the number
// of durations; if it is 0, the others are too.
type Percentiles struct {
	N             int
	P50, P95, P99 int64
}

// percentiles sorts durations and returns their percentiles.
func percentiles(all []int64) Percentiles {
	if len(all) == 0 {
		return Percentiles{}
	}
	slices.Sort(all)
	rank := func(percent int) int64 { return all[(percent*len(all)+99)/100-1] }
	return Percentiles{len(all), rank(50), rank(95), rank(99)}
}

// A collector groups facts.
type collector struct {
	kind   string
	day    func(time.Time) string
	groups map[string]*Group
}

// group returns the group of a fact.
func (c *collector) group(tool, agent, model string, session domain.SessionID, at time.Time) *Group {
	name := ""
	switch c.kind {
	case "tool":
		name = tool
	case "agent":
		name = agent
	case "model":
		name = model
	case "session":
		name = session.String()
	case "day":
		name = c.day(at)
	}
	g := c.groups[name]
	if g == nil {
		g = &Group{Name: name, Outcomes: map[string]int{}, byModel: map[string]events.Tokens{}, offers: map[int64]int{}, called: map[string]bool{}}
		c.groups[name] = g
	}
	return g
}

// Collect sums the calls of a query up by a kind of Kinds, with the replies and turns of its
// session, agent and period; if the query has further conditions, of those with such a call.
// day returns the day of a time. prices may be nil. The groups are in the order of their
// names, tools by falling number of calls.
func Collect(r *index.Snapshot, q index.CallQuery, kind string, day func(time.Time) string, prices *Prices) ([]*Group, error) {
	if !slices.Contains(Kinds, kind) {
		return nil, fault.Usage("--by: %q is not %s", kind, strings.Join(Kinds, ", "))
	}
	c := &collector{kind, day, map[string]*Group{}}
	err := r.CallFacts(q, func(f index.CallFact) {
		g := c.group(f.Tool, f.Agent, f.Model, f.Session, f.Asked)
		g.Calls++
		g.Outcomes[f.Outcome]++
		g.InputBytes, g.ShownBytes, g.called[f.Tool] = g.InputBytes+f.InputBytes, g.ShownBytes+f.ShownBytes, true
		if f.Ran {
			g.run = append(g.run, f.RanMS)
		}
		if f.Requests > 0 {
			g.wait = append(g.wait, f.WaitedMS)
		}
	})
	if err == nil && kind != "tool" {
		err = r.ReplyFacts(q, func(f index.ReplyFact) {
			g := c.group("", f.Agent, f.Model, f.Session, f.Time)
			g.Replies++
			g.Tokens = plus(g.Tokens, f.Tokens)
			g.byModel[f.Model] = plus(g.byModel[f.Model], f.Tokens)
		})
	}
	if err == nil {
		err = c.offered(r, q)
	}
	if err != nil {
		return nil, err
	}
	all := slices.Collect(maps.Values(c.groups))
	for _, g := range all {
		g.Run, g.Wait = percentiles(g.run), percentiles(g.wait)
		g.price(prices)
	}
	slices.SortFunc(all, func(a, b *Group) int {
		if kind == "tool" && a.Calls != b.Calls {
			return cmp.Compare(b.Calls, a.Calls)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, nil
}

// plus adds tokens.
func plus(a, b events.Tokens) events.Tokens {
	return events.Tokens{Input: a.Input + b.Input, Output: a.Output + b.Output, CacheRead: a.CacheRead + b.CacheRead, CacheWrite: a.CacheWrite + b.CacheWrite}
}

// offered counts the turns of each group, and finds the tools that were offered and not
// called. A tool that was never called is a group of its own.
func (c *collector) offered(r *index.Snapshot, q index.CallQuery) error {
	offers := map[int64]int{}
	err := r.TurnFacts(q, func(f index.TurnFact) {
		if c.kind == "tool" {
			offers[f.Offer]++
			return
		}
		g := c.group("", f.Agent, f.Model, f.Session, f.Time)
		g.Turns++
		g.offers[f.Offer]++
	})
	if err != nil {
		return err
	}
	tools := map[int64][]string{}
	toolsOf := func(offer int64) ([]string, error) {
		found, ok := tools[offer]
		if !ok {
			if found, err = r.OfferTools(offer); err != nil {
				return nil, err
			}
			tools[offer] = found
		}
		return found, nil
	}
	for offer, n := range offers {
		found, err := toolsOf(offer)
		if err != nil {
			return err
		}
		for _, tool := range found {
			if c.groups[tool] != nil || !q.AboutCalls() {
				c.group(tool, "", "", domain.SessionID{}, time.Time{}).Turns += n
			}
		}
	}
	if q.AboutCalls() {
		return nil
	}
	for _, g := range c.groups {
		never := map[string]bool{}
		for offer := range g.offers {
			found, err := toolsOf(offer)
			if err != nil {
				return err
			}
			for _, tool := range found {
				if !g.called[tool] {
					never[tool] = true
				}
			}
		}
		if c.kind == "tool" && g.Calls == 0 {
			never[g.Name] = true
		}
		g.NeverCalled = append([]string{}, slices.Sorted(maps.Keys(never))...)
	}
	return nil
}

// price sets the cost of a group.
func (g *Group) price(prices *Prices) {
	if prices == nil {
		return
	}
	for model, tokens := range g.byModel {
		if tokens == (events.Tokens{}) {
			continue
		}
		of, ok := prices.of(model)
		if !ok {
			g.Unpriced = append(g.Unpriced, model)
			continue
		}
		if g.Cost == nil {
			g.Cost = new(big.Rat)
		}
		g.Cost.Add(g.Cost, of.cost(tokens))
	}
	slices.Sort(g.Unpriced)
}
