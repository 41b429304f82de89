package statistics

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A zeros is an entropy source of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// filled returns a ledger with a history, and a snapshot of its index.
func filled(t *testing.T, history []events.Envelope) (*events.Ledger, *index.Snapshot) {
	t.Helper()
	store := eventstest.NewSlice()
	noError(t, projectionstest.Append(t.Context(), store, history))
	l := events.NewLedger(store, domain.NewMint(time.Now, zeros{}), time.Now)
	x := index.New(filepath.Join(t.TempDir(), "index"))
	noError(t, x.CatchUp(t.Context(), l, nil))
	r, err := x.Snapshot(t.Context())
	noError(t, err)
	t.Cleanup(func() { noError(t, r.Close()) })
	return l, r
}

// day returns the day of a time in UTC.
func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// A plain group is what a fold of the log says of a group.
type plain struct {
	calls           int
	outcomes        map[string]int
	run, wait       []int64
	replies, turns  int
	tokens          events.Tokens
	offered, called map[string]bool
}

// folded groups the calls, replies and turns of a log by tool, session, model or day, from
// the events and the fold of projections/calls.
func folded(t *testing.T, l *events.Ledger, kind string) map[string]*plain {
	t.Helper()
	projection := calls.Projection()
	state, err := projections.Fold(projection, projection.Init(), l.ReadAll(t.Context(), events.Position{}))
	noError(t, err)
	all := map[string]*plain{}
	group := func(tool, model string, session domain.SessionID, at time.Time) *plain {
		name := map[string]string{"tool": tool, "model": model, "session": session.String(), "day": day(at), "all": ""}[kind]
		if all[name] == nil {
			all[name] = &plain{outcomes: map[string]int{}, offered: map[string]bool{}, called: map[string]bool{}}
		}
		return all[name]
	}
	models, seen, offers := map[domain.MessageID]string{}, map[domain.TurnID]bool{}, map[domain.TurnID]map[string]bool{}
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		noError(t, err)
		session, _ := v.Stream.Session()
		switch e := v.Event.(type) {
		case events.ReplyReceived:
			_, again := models[e.Message] // an import may record a reply in parts
			if models[e.Message] == "" {
				models[e.Message] = e.Model
			}
			if kind == "tool" {
				continue
			}
			g := group("", e.Model, session, v.Time)
			if !again {
				g.replies++
			}
			g.tokens = plus(g.tokens, e.Tokens)
		case events.TurnMaterialized:
			if offers[e.Turn] == nil {
				offers[e.Turn] = map[string]bool{}
			}
			for _, o := range e.Tools {
				if name := string(o.Name); kind == "tool" && !offers[e.Turn][name] {
					group(name, "", session, v.Time).turns++
				} else if kind != "tool" {
					group("", e.Model, session, v.Time).offered[name] = true
				}
				offers[e.Turn][string(o.Name)] = true
			}
			if kind != "tool" && !seen[e.Turn] {
				group("", e.Model, session, v.Time).turns++
			}
			seen[e.Turn] = true
		}
	}
	for _, c := range state.Calls() {
		g := group(c.Tool, models[c.Message], c.Session, c.Asked)
		g.calls++
		g.called[c.Tool] = true
		outcome := "open"
		if c.State == calls.Settled {
			outcome = c.Settlement.Outcome.String()
		}
		g.outcomes[outcome]++
		if !c.Started.IsZero() && !c.Settled.IsZero() && c.Settlement.Outcome != domain.Lost {
			ms := max(0, c.Settled.Truncate(time.Microsecond).Sub(c.Started.Truncate(time.Microsecond)).Milliseconds())
			if c.Settlement.RanMS > 0 {
				ms = c.Settlement.RanMS
			}
			g.run = append(g.run, ms)
		}
		if c.Requests > 0 {
			g.wait = append(g.wait, c.WaitedMS)
		}
	}
	return all
}

// nearestRank returns a percentile by its definition: the smallest value that at least that
// part of the values does not exceed.
func nearestRank(all []int64, percent int) int64 {
	for _, v := range slices.Sorted(slices.Values(all)) {
		n := 0
		for _, other := range all {
			if other <= v {
				n++
			}
		}
		if 100*n >= percent*len(all) {
			return v
		}
	}
	return 0
}

// The groups of a random log are those of a fold of it.
func TestGroupsAreThoseOfAFold(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	l, r := filled(t, projectionstest.History(seed, 500))
	for _, kind := range []string{"tool", "session", "day", "all"} {
		want := folded(t, l, kind)
		got, err := Collect(r, index.CallQuery{}, kind, day, nil)
		noError(t, err)
		if len(got) != len(want) {
			t.Errorf("seed %d: by %s there are %d groups, want %d", seed, kind, len(got), len(want))
		}
		for _, g := range got {
			w := want[g.Name]
			if w == nil {
				t.Fatalf("seed %d: by %s there is no group %q", seed, kind, g.Name)
			}
			var never []string
			for name := range w.offered {
				if !w.called[name] {
					never = append(never, name)
				}
			}
			slices.Sort(never)
			if kind == "tool" && w.calls == 0 {
				never = []string{g.Name}
			}
			have := fmt.Sprint(g.Calls, g.Outcomes, g.Run, g.Wait, g.Replies, g.Tokens, g.Turns, g.NeverCalled)
			should := fmt.Sprint(w.calls, w.outcomes, Percentiles{len(w.run), nearestRank(w.run, 50), nearestRank(w.run, 95), nearestRank(w.run, 99)},
				Percentiles{len(w.wait), nearestRank(w.wait, 50), nearestRank(w.wait, 95), nearestRank(w.wait, 99)}, w.replies, w.tokens, w.turns, never)
			if have != should {
				t.Errorf("seed %d: by %s the group %q is\n%s\nwant\n%s", seed, kind, g.Name, have, should)
			}
		}
	}
}

// Conditions about calls leave out the other calls, and replies and turns without such a
// call.
func TestGroupsOfSomeCalls(t *testing.T) {
	t.Parallel()
	_, r := filled(t, projectionstest.History(4, 500))
	all, err := Collect(r, index.CallQuery{}, "tool", day, nil)
	noError(t, err)
	for _, g := range all {
		some, err := Collect(r, index.CallQuery{Tool: g.Name}, "all", day, nil)
		noError(t, err)
		if g.Calls == 0 || g.Name == "" {
			continue
		}
		if len(some) != 1 || some[0].Calls != g.Calls || some[0].Run != g.Run || some[0].NeverCalled != nil || some[0].Replies == 0 || some[0].Replies > g.Calls {
			t.Errorf("of %s alone: %+v, want the calls of %+v", g.Name, some, g)
		}
	}
	if _, err := Collect(r, index.CallQuery{}, "hour", day, nil); err == nil || !strings.Contains(err.Error(), `"hour" is not tool, agent, model`) {
		t.Errorf("by hour: %v", err)
	}
}

// A percentile is the value at the place ceil(p/100 n).
func TestPercentilesAreByNearestRank(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []int64
		want   Percentiles
	}{
		{nil, Percentiles{}}, {[]int64{7}, Percentiles{1, 7, 7, 7}}, {[]int64{2, 1}, Percentiles{2, 1, 2, 2}}, {[]int64{3, 1, 2}, Percentiles{3, 2, 3, 3}},
		{slices.Collect(func(yield func(int64) bool) {
			for i := range int64(100) {
				if !yield(100 - i) {
					return
				}
			}
		}), Percentiles{100, 50, 95, 99}},
	} {
		if got := percentiles(slices.Clone(c.values)); got != c.want {
			t.Errorf("percentiles of %v are %v, want %v", c.values, got, c.want)
		}
	}
}

// A cost is exact, also where binary numbers are not.
func TestCostsAreExact(t *testing.T) {
	t.Parallel()
	p, err := parsePrices("currency = \"EUR\"\n[models.\"a-*\"]\ninput = \"0.1\"\noutput = 0.3\n[models.\"a-b*\"]\ninput = 3\noutput = \"15.000001\"\ncache_read = \"0.30\"\ncache_write = 3.75\n")
	noError(t, err)
	for _, c := range []struct {
		model  string
		tokens events.Tokens
		want   string
	}{
		{"a-x", events.Tokens{Input: 3}, "0.0000003"},
		{"a-x", events.Tokens{Input: 1, Output: 1, CacheRead: 1, CacheWrite: 1}, "0.0000006"},
		{"a-bc", events.Tokens{Input: 1_000_000, Output: 1_000_000, CacheRead: 1_000_000, CacheWrite: 1_000_000}, "22.050001"},
		{"a-bc", events.Tokens{Output: 1}, "0.000015000001"},
		{"a-bc", events.Tokens{Input: 9_000_000_000_000_000_000}, "27000000000000"},
	} {
		of, ok := p.of(c.model)
		if got := exact(of.cost(c.tokens)); !ok || got != c.want {
			t.Errorf("%v of %s cost %s, want %s", c.tokens, c.model, got, c.want)
		}
	}
	if _, ok := p.of("b"); ok {
		t.Error("the model b has a price")
	}
	for text, want := range map[string]string{
		"currency = 1": "currency", "[models.a]\ninput = \"1\"": "needs the prices input and output", "[models.a]\ninput = \"-1\"\noutput = 1": "price input is -1", "[models.a]\ninput = \"1/3\"\noutput = 1": "price input",
		"[models.a]\ninput = 1\noutput = 1\nouput = 1": "no key ouput", "price = 1": "no key price", "[models.a]\ninput = inf\noutput = 1": "price input", "[models.a]\ninput = \"1e9\"\noutput = 1": "price input", "][": "line 1",
	} {
		if _, err := parsePrices(text); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "column", "line"), want) {
			t.Errorf("prices %q: %v, want %s", text, err, want)
		}
	}
}

// The groups have the costs of their models, and name the models without a price.
func TestGroupsHaveTheCostsOfTheirModels(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(9)
	session := log.Mint.Session()
	log.Add(events.SessionStream(session), events.SessionOpened{Agent: "build"})
	for _, model := range []string{"one", "two", "one"} {
		log.Add(events.SessionStream(session), events.ReplyReceived{Message: log.Mint.Message(), Model: model, Tokens: events.Tokens{Input: 1000, Output: 10}})
	}
	_, r := filled(t, log.Envelopes())
	prices, err := parsePrices("[models.one]\ninput = \"1\"\noutput = \"2\"")
	noError(t, err)
	groups, err := Collect(r, index.CallQuery{}, "session", day, prices)
	noError(t, err)
	if len(groups) != 1 || exact(groups[0].Cost) != "0.00204" || !slices.Equal(groups[0].Unpriced, []string{"two"}) || groups[0].Replies != 3 {
		t.Errorf("the groups are %+v", groups)
	}
	if groups, err = Collect(r, index.CallQuery{}, "model", day, prices); err != nil || len(groups) != 2 || groups[1].Cost != nil || groups[1].Tokens.Input != 1000 {
		t.Errorf("by model the groups are %+v, %v", groups, err)
	}
}
