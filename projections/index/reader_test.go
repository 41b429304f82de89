package index

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/catalog"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/projections/staleness"
)

// snapshot opens a snapshot of an index.
func snapshot(t *testing.T, x *Index) *Snapshot {
	t.Helper()
	s, err := x.Snapshot(t.Context())
	noError(t, err)
	t.Cleanup(func() { noError(t, s.Close()) })
	return s
}

// value returns the first of two results, and fails the test on the second.
func value[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		noError(t, err)
		return v
	}
}

// lines returns one line for each element.
func lines[T any](all []T, line func(T) string) []string {
	out := []string{}
	for _, v := range all {
		out = append(out, line(v))
	}
	return out
}

// callsOf returns the calls of an index that a condition of SQL selects, in the order of
// the log; TestCallsAndSessionsAreThoseOfTheFold compares these rows with the fold.
func callsOf(t *testing.T, x *Index, condition string) []calls.Call {
	t.Helper()
	s := snapshot(t, x)
	rows := value[[]callRow](t)(s.callRows(selection("calls", callColumns) + " WHERE " + condition + " ORDER BY id"))
	var all []calls.Call
	for _, r := range rows {
		all = append(all, r.Call)
	}
	return all
}

// sessionsOf returns the sessions of a query without their sums.
func sessionsOf(t *testing.T, s *Snapshot, q SessionQuery) (all []calls.Session) {
	t.Helper()
	for _, one := range value[[]Session](t)(s.Sessions(q)) {
		all = append(all, one.Session)
	}
	return all
}

// lastOf returns the last n elements, or all for 0.
func lastOf[T any](all []T, n int) []T {
	if n == 0 {
		return all
	}
	return all[max(0, len(all)-n):]
}

// Each combination of the conditions of a CallQuery selects the calls that a plain filter
// over all calls selects, in the same order.
func TestCallQueriesSelectWhatAPlainFilterSelects(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	for range rounds(2, 30) {
		l, _ := newLedger(t, projectionstest.History(random.Uint64(), length(700)))
		x := newIndex(t, l)
		s := snapshot(t, x)
		all := callsOf(t, x, "asked_time IS NOT NULL")
		if len(all) == 0 {
			continue
		}
		for range 200 {
			like, other := all[random.IntN(len(all))], all[random.IntN(len(all))]
			var q CallQuery
			some := func() bool { return random.IntN(4) == 0 }
			if some() {
				q.Session = like.Session
			}
			if some() {
				q.Turn = like.Turn
			}
			if some() {
				q.Tool = like.Tool
			}
			q.Open = some()
			if some() {
				q.Outcomes = append(q.Outcomes, domain.Succeeded)
			}
			if some() {
				q.Outcomes = append(q.Outcomes, domain.Outcomes()[random.IntN(len(domain.Outcomes()))])
			}
			if some() {
				q.From = like.Asked
			}
			if some() {
				q.To = other.Asked
			}
			if some() {
				q.Limit, q.Skip = 1+random.IntN(5), random.IntN(3)
			}
			want := slices.DeleteFunc(slices.Clone(all), func(c calls.Call) bool {
				open, among := c.State != calls.Settled, slices.Contains(q.Outcomes, c.Settlement.Outcome)
				return !q.Session.IsZero() && c.Session != q.Session || !q.Turn.IsZero() && c.Turn != q.Turn || q.Tool != "" && c.Tool != q.Tool ||
					(q.Open || q.Outcomes != nil) && !(q.Open && open || among && !open) || c.Asked.Before(q.From) || !q.To.IsZero() && !c.Asked.Before(q.To)
			})
			want = lastOf(want[:max(0, len(want)-q.Skip)], q.Limit)
			same(t, fmt.Sprintf("Calls(%+v)", q), lines(value[[]calls.Call](t)(s.Calls(q)), callLine), lines(want, callLine))
		}
		same(t, "Orphans", lines(value[[]calls.Call](t)(s.Orphans()), callLine), lines(callsOf(t, x, "asked_time IS NULL"), callLine))
		c := all[random.IntN(len(all))]
		got, ok, err := s.Call(c.Key())
		if err != nil || !ok || callLine(got) != callLine(c) {
			t.Errorf("Call(%v) = %v, %v, %v, want %v", c.Key(), got, ok, err, c)
		}
	}
}

// Each combination of the conditions of a SessionQuery selects the sessions that a plain
// filter over all sessions selects, and the names are those of all calls and sessions.
func TestSessionQueriesSelectWhatAPlainFilterSelects(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	for range rounds(2, 30) {
		l, _ := newLedger(t, projectionstest.History(random.Uint64(), length(900)))
		x := newIndex(t, l)
		s := snapshot(t, x)
		all := sessionsOf(t, s, SessionQuery{})
		line := func(s calls.Session) string { return fmt.Sprint(s) }
		var ids []string
		for _, one := range all {
			ids = append(ids, one.ID.String())
		}
		same(t, "Sessions", ids, table(t, x, "SELECT session FROM sessions ORDER BY number"))
		for range 50 {
			like, other := all[random.IntN(len(all))], all[random.IntN(len(all))]
			var q SessionQuery
			some := func() bool { return random.IntN(3) == 0 }
			if some() {
				q.Agent = string(like.Agent)
			}
			if some() {
				q.From = like.LastEvent
			}
			if some() {
				q.To = other.Opened
			}
			if some() {
				q.Limit = 1 + random.IntN(3)
			}
			want := lastOf(slices.DeleteFunc(slices.Clone(all), func(s calls.Session) bool {
				return q.Agent != "" && string(s.Agent) != q.Agent || s.LastEvent.Before(q.From) || !q.To.IsZero() && !s.Opened.Before(q.To)
			}), q.Limit)
			same(t, fmt.Sprintf("Sessions(%+v)", q), lines(sessionsOf(t, s, q), line), lines(want, line))
		}
		var agents, tools []string
		for _, one := range all {
			if a := string(one.Agent); a != "" && !slices.Contains(agents, a) {
				agents = append(agents, a)
			}
		}
		for _, c := range callsOf(t, x, "asked_time IS NOT NULL") {
			if c.Tool != "" && !slices.Contains(tools, c.Tool) {
				tools = append(tools, c.Tool)
			}
		}
		same(t, "Agents", value[[]string](t)(s.Agents()), agents)
		same(t, "Tools", value[[]string](t)(s.Tools()), tools)
		same(t, "RegisteredTools", value[[]string](t)(s.RegisteredTools()), table(t, x, "SELECT DISTINCT tool FROM registered_tools ORDER BY 1"))
		for _, name := range append(tools, "no such name") {
			if got := value[bool](t)(s.HasTool(name)); got != slices.Contains(tools, name) {
				t.Errorf("HasTool(%q) = %v", name, got)
			}
		}
		for _, name := range append(agents, "no such name") {
			if got := value[bool](t)(s.HasAgent(name)); got != slices.Contains(agents, name) {
				t.Errorf("HasAgent(%q) = %v", name, got)
			}
		}
	}
}

// shortenedForm returns a random shortened form of a name, or another text.
func shortenedForm(random *rand.Rand, name string) string {
	runes := []rune(name)
	i, j := random.IntN(len(runes)+1), random.IntN(len(runes)+1)
	id := name
	switch random.IntN(7) {
	case 0:
		id = string(runes[:i])
	case 1:
		_, after, _ := strings.Cut(name, "_")
		id = after[:min(i, len(after))]
	case 2:
		id = string(runes[i:])
	case 3:
		id = string(runes[:min(i, j)]) + "…" + string(runes[max(i, j):])
	case 4:
		id = string(runes[:min(i, j)]) + "..." + string(runes[max(i, j):])
	case 5:
		id = string(runes[:i]) + "x"
	}
	switch random.IntN(3) {
	case 0:
		id = strings.ToLower(id)
	case 1:
		id = strings.ToUpper(id)
	}
	if !strings.Contains(name, "…") && id == "" {
		return name
	}
	return id
}

// picked returns the elements that an ID identifies by a plain search: whole names first,
// then shortened ones, then the function more.
func picked[T any](id string, all []T, names func(T) []string, more func(T) bool) []T {
	var found []T
	for _, fits := range []func(T) bool{
		func(v T) bool {
			return slices.ContainsFunc(names(v), func(n string) bool { return strings.EqualFold(id, n) })
		},
		func(v T) bool {
			return slices.ContainsFunc(names(v), func(n string) bool { return n != "" && Abbreviates(id, n) })
		},
		more,
	} {
		for _, v := range all {
			if fits(v) {
				found = append(found, v)
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// A shortened ID finds what a plain search over all names finds.
func TestShortenedIDsFindWhatAPlainSearchFinds(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	for range rounds(2, 30) {
		l, _ := newLedger(t, projectionstest.History(random.Uint64(), length(700)))
		x := newIndex(t, l)
		s := snapshot(t, x)
		sessions := sessionsOf(t, s, SessionQuery{})
		turns := value[[]Turn](t)(s.LastTurns(1 << 20))
		asked, orphans := callsOf(t, x, "asked_time IS NOT NULL"), value[[]calls.Call](t)(s.Orphans())
		sessionNames := func(s calls.Session) []string { return []string{s.ID.String(), s.Origin.Source} }
		turnNames := func(t Turn) []string { return []string{t.Turn.String(), t.Event.String()} }
		callNames := func(c calls.Call) []string {
			return []string{c.Message.String() + "/" + string(c.ID), string(c.ID), c.SettledBy.String()}
		}
		never := func(calls.Session) bool { return false }
		for range 300 {
			one := sessions[random.IntN(len(sessions))]
			id := shortenedForm(random, cmpOr(sessionNames(one)[random.IntN(2)], one.ID.String()))
			found := value[Found[calls.Session]](t)(s.FindSessions(id))
			same(t, fmt.Sprintf("FindSessions(%q)", id), lines(found.All, func(s calls.Session) string { return s.ID.String() }),
				lines(picked(id, sessions, sessionNames, never), func(s calls.Session) string { return s.ID.String() }))

			turn := turns[random.IntN(len(turns))]
			id = shortenedForm(random, turnNames(turn)[random.IntN(2)])
			turnLine := func(t Turn) string { return t.Turn.String() }
			same(t, fmt.Sprintf("FindTurns(%q)", id), lines(value[Found[Turn]](t)(s.FindTurns(id)).All, turnLine),
				lines(picked(id, turns, turnNames, func(Turn) bool { return false }), turnLine))

			for _, kind := range []struct {
				all  []calls.Call
				find func(string) (Found[calls.Call], error)
			}{{asked, s.FindCalls}, {orphans, s.FindOrphans}} {
				if len(kind.all) == 0 {
					continue
				}
				c := kind.all[random.IntN(len(kind.all))]
				id := shortenedForm(random, cmpOr(callNames(c)[random.IntN(3)], string(c.ID)))
				if random.IntN(4) == 0 {
					id = shortenedForm(random, c.Message.String()) + "/" + shortenedForm(random, string(c.ID))
				}
				message, call, two := strings.Cut(id, "/")
				want := picked(id, kind.all, callNames, func(c calls.Call) bool {
					return two && message != "" && call != "" && !c.Asked.IsZero() && Abbreviates(message, c.Message.String()) && Abbreviates(call, string(c.ID))
				})
				same(t, fmt.Sprintf("Find(%q)", id), lines(value[Found[calls.Call]](t)(kind.find(id)).All, callLine), lines(want, callLine))
			}
		}
	}
}

// cmpOr returns a, or b if a is empty.
func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// The turns are in the order of the log within their sessions, and the last one is that of
// the last session with turns.
func TestLastTurnsAreGroupedBySession(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(21, 500))
	x := newIndex(t, l)
	s := snapshot(t, x)
	want := table(t, x, "SELECT turn FROM turns JOIN sessions USING (session) ORDER BY number, position")
	line := func(t Turn) string { return t.Turn.String() }
	same(t, "LastTurns", lines(value[[]Turn](t)(s.LastTurns(1000)), line), want)
	same(t, "LastTurns(3)", lines(value[[]Turn](t)(s.LastTurns(3)), line), want[len(want)-3:])
}

// equal fails the test if two values differ.
func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	have, err := projections.Encode(got)
	noError(t, err)
	wanted, err := projections.Encode(want)
	noError(t, err)
	if string(have) != string(wanted) {
		t.Fatalf("%s is\n%s\nwant\n%s", what, have, wanted)
	}
}

// ordinals makes the ordinals of layers comparable: they number the events of the folded
// layers alone.
func ordinals(layers []catalog.LayerHistory) []catalog.LayerHistory {
	for i := range layers {
		layers[i].Began, layers[i].Ended = 0, 0
		for j := range layers[i].Registrations {
			r := &layers[i].Registrations[j]
			r.Began, r.Ended = 0, 0
		}
	}
	return layers
}

// The layers at each position and at the time of each event are those of the catalog, with
// the same tools in effect, also if the clock goes back.
func TestLayersAtAMomentAreThoseOfTheCatalog(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	for range rounds(2, 8) {
		history := projectionstest.History(random.Uint64(), length(600))
		for i := range history {
			if random.IntN(10) == 0 {
				history[i].Time = history[max(0, i-random.IntN(20))].Time
			}
		}
		l, _ := newLedger(t, history)
		s := snapshot(t, newIndex(t, l))
		projection := catalog.Projection()
		var read []events.Envelope
		for v, err := range l.ReadAll(t.Context(), events.Position{}) {
			noError(t, err)
			read = append(read, v)
		}
		moments := []Moment{{}}
		for _, v := range read {
			if slices.Contains(catalog.Kinds(), v.Event.Kind()) {
				moments = append(moments, Moment{Position: v.Position}, Moment{Time: v.Time})
			}
		}
		for _, m := range moments {
			want := projection.Init()
			for _, v := range read {
				if m.has(v) {
					want = projection.Apply(want, v)
				}
			}
			open := slices.DeleteFunc(ordinals(want.Layers()), func(l catalog.LayerHistory) bool { return !l.Closed.IsZero() })
			equal(t, fmt.Sprintf("open layers at %+v", m), ordinals(value[*catalog.State](t)(s.Layers(LayerQuery{Moment: m})).Layers()), nonNil(open))
			got := value[*catalog.State](t)(s.Layers(LayerQuery{Moment: m, Closed: true}))
			equal(t, fmt.Sprintf("layers at %+v", m), ordinals(got.Layers()), ordinals(want.Layers()))
			var ids []domain.LayerID
			for _, l := range want.Layers() {
				ids = append(ids, l.ID)
			}
			equal(t, fmt.Sprintf("catalog at %+v", m), nonNil(got.Catalog(ids)), nonNil(want.Catalog(ids)))
			for _, scope := range want.Layers() {
				q := LayerQuery{Moment: m, Closed: true, Scoped: true, Location: scope.Location, Session: scope.Session}
				equal(t, fmt.Sprintf("layers of %+v", q), ordinals(value[*catalog.State](t)(s.Layers(q)).Layers()), slices.DeleteFunc(ordinals(want.Layers()), func(l catalog.LayerHistory) bool {
					return l.Placement != domain.Application && (q.Location == "" || l.Location != q.Location) && (q.Session.IsZero() || l.Session != q.Session)
				}))
			}
		}
	}
}

// nonNil returns all, or an empty slice for nil.
func nonNil[T any](all []T) []T { return append([]T{}, all...) }

// The offer of each turn has the layers and the comparisons of projections/staleness, at
// several lengths of the log.
func TestTurnOffersAreThoseOfStaleness(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	for range rounds(3, 40) {
		history := projectionstest.History(random.Uint64(), length(600))
		for _, n := range []int{len(history) / 2, len(history)} {
			l, _ := newLedger(t, history[:n])
			s := snapshot(t, newIndex(t, l))
			state := fold(t, staleness.Projection(), l)
			for _, turn := range value[[]Turn](t)(s.LastTurns(1 << 20)) {
				want, ok := state.Turn(turn.Turn)
				got, now, err := s.TurnOffer(turn)
				noError(t, err)
				if !ok {
					t.Fatalf("turn %s is unknown to the fold", turn.Turn)
				}
				equal(t, "offer of "+turn.Turn.String(), got, want)
				if turn.Tools != len(want.Offers) {
					t.Errorf("turn %s has %d tools, want %d", turn.Turn, turn.Tools, len(want.Offers))
				}
				for _, o := range want.Offers {
					if _, ok := now.Brief(o.Layer); !ok && o.Comparison.Stale == false {
						t.Errorf("turn %s: the catalog lacks layer %s", turn.Turn, o.Layer)
					}
				}
			}
		}
	}
}

// A text is at the first event that records its digest.
func TestTextPlacesAreThoseOfTheLog(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(11, 900))
	s := snapshot(t, newIndex(t, l))
	want, n := map[string]events.Revision{}, 0
	sessions := map[string]domain.SessionID{}
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		noError(t, err)
		if e, ok := v.Event.(events.TextRecorded); ok {
			session, _ := v.Stream.Session()
			n++
			if key := session.String() + e.Digest; want[key] == 0 {
				want[key], sessions[key] = v.Revision, session
			}
		}
	}
	for key, at := range want {
		id := sessions[key]
		if got := value[events.Revision](t)(s.TextPlace(id, strings.TrimPrefix(key, id.String()))); got != at {
			t.Errorf("TextPlace(%s) = %d, want %d", key, got, at)
		}
	}
	if n == 0 {
		t.Error("the history has no text")
	}
}

// bigTable matches the step of a plan that reads every row of a table that grows with the
// log.
var bigTable = regexp.MustCompile(`^SCAN (sessions|turns|calls|messages|registrations|registered_tools|layers|names|offered_tools|texts|permissions|questions|paths|path_uses|approvals|outputs)( USING .*)?$`)

// No statement of a Snapshot reads every row of a table, except the lists without a filter,
// which stop at their limit, and the questions for everything.
func TestNoStatementScansATable(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(12, 300))
	s := snapshot(t, newIndex(t, l))
	session, _, err := s.LastSession()
	noError(t, err)
	call, _, err := s.LastCall()
	noError(t, err)
	turns := value[[]Turn](t)(s.LastTurns(200))
	for _, id := range []string{"ses_01", "01AB", "4K2P9Q", "toolu_…QKS", "msg_…QKS/call_1", "evt_", call.Message.String() + "/" + string(call.ID), session.ID.String()} {
		_, err1 := s.FindSessions(id)
		_, err2 := s.FindTurns(id)
		_, err3 := s.FindCalls(id)
		_, err4 := s.FindOrphans(id)
		noError(t, errors.Join(err1, err2, err3, err4))
	}
	now := time.Now()
	for i := range 1 << 7 {
		bit := func(n int) bool { return i&(1<<n) != 0 }
		var q CallQuery
		if bit(0) {
			q.Session = session.ID
		}
		if bit(1) {
			q.Turn = turns[0].Turn
		}
		if bit(2) {
			q.Tool = "read"
		}
		if bit(3) {
			q.Outcomes = []domain.Outcome{domain.Failed, domain.Succeeded}
		}
		q.Open = bit(4)
		if bit(5) {
			q.From = now
		}
		if bit(6) {
			q.To = now
		}
		_, err := s.Calls(q)
		noError(t, err)
		_, err = s.Sessions(SessionQuery{From: q.From, To: q.To, Agent: q.Tool})
		noError(t, err)
	}
	exact, _, _, err := s.FindPaths("/home/ada/project", "src/1.go")
	noError(t, err)
	if !exact.selects() {
		t.Fatal("the history has no path src/1.go")
	}
	_, _, _, err = s.FindPaths("/nowhere", "src/1.go")
	noError(t, err)
	phrase := value[Phrase](t)(NewPhrase("some text"))
	for _, q := range []CallQuery{{}, {Agent: "build"}, {By: "user"}, {Paths: exact}, {Phrase: phrase}, {Session: session.ID}, {Turn: turns[0].Turn}, {Tool: "read"}, {Open: true}, {From: now, To: now}} {
		q.Limit = 10
		_, err := s.Calls(q)
		noError(t, err)
		_, err = s.Sessions(SessionQuery{Calls: q, Limit: 10})
		noError(t, err)
		_, err = s.Turns(TurnQuery{Calls: q, Limit: 10})
		noError(t, err)
		_, err = s.Requests(RequestQuery{Calls: q, Limit: 10})
		noError(t, err)
		_, err = s.Search(TextQuery{Phrase: phrase, Calls: q, Limit: 10})
		noError(t, err)
	}
	for _, q := range []RequestQuery{{Session: session.ID}, {By: "user"}, {Pending: true}, {From: now}, {To: now}} {
		_, err := s.Requests(q)
		noError(t, err)
		_, err = s.Turns(TurnQuery{Session: q.Session, From: q.From, To: q.To, Limit: 10})
		noError(t, err)
		_, err = s.Search(TextQuery{Phrase: phrase, Session: q.Session, Agent: "build", From: q.From, To: q.To})
		noError(t, err)
	}
	for _, q := range []CallQuery{{Session: session.ID}, {From: now}, {Session: session.ID, Tool: "read", Agent: "build"}} {
		noError(t, s.CallFacts(q, func(CallFact) {}))
		noError(t, s.ReplyFacts(q, func(ReplyFact) {}))
		noError(t, s.TurnFacts(q, func(TurnFact) {}))
	}
	_, err = s.OfferTools(1)
	noError(t, err)
	_, err = s.OutcomesOf(value[[]Session](t)(s.Sessions(SessionQuery{Limit: 2})))
	noError(t, err)
	_, err = s.PathUses(call.Key(), exact)
	noError(t, err)
	_, _, err = s.TurnBefore(turns[len(turns)-1])
	noError(t, err)
	_, err = s.LongTexts()
	noError(t, err)
	for _, q := range []LayerQuery{{}, {Moment: Moment{Position: turns[0].Position}}, {Moment: Moment{Time: now}}, {Scoped: true, Location: "/", Session: session.ID}} {
		_, err := s.Layers(q)
		noError(t, err)
	}
	_, _, err = s.TurnOffer(turns[0])
	noError(t, err)
	_, _, err = s.Call(call.Key())
	noError(t, err)
	_, err = s.TextPlace(session.ID, "d")
	noError(t, err)
	for _, f := range []func() ([]string, error){s.Agents, s.Tools, s.RegisteredTools} {
		_, err := f()
		noError(t, err)
	}
	_, err = s.HasTool("read")
	noError(t, err)
	_, err = s.HasAgent("read")
	noError(t, err)
	_, err = s.Approvals()
	noError(t, err)
	texts := []string{}
	for text := range s.prepared {
		texts = append(texts, text)
	}
	for _, text := range texts {
		args := make([]any, strings.Count(text, "?"))
		for i := range args {
			args[i] = int64(1)
		}
		sorted, scanned := false, ""
		noError(t, s.each(func(c *columnReader) error {
			step := c.row[3].(string)
			sorted = sorted || strings.HasPrefix(step, "USE TEMP B-TREE")
			if bigTable.MatchString(step) {
				scanned = step
			}
			return nil
		}, "EXPLAIN QUERY PLAN "+text, args...))
		if scanned == "" || strings.Contains(text, "LIMIT") && !sorted {
			continue
		}
		if scanned == "SCAN calls USING INDEX calls_orphans" || strings.HasPrefix(scanned, "SCAN permissions USING INDEX permissions_open") ||
			strings.HasPrefix(scanned, "SCAN questions USING INDEX questions_open") || strings.HasPrefix(scanned, "SCAN texts USING INDEX texts_long") || scanned == "SCAN calls USING INDEX calls_open" || strings.HasPrefix(scanned, "SCAN approvals USING INDEX approvals_open") ||
			strings.HasPrefix(scanned, "SCAN layers USING INDEX layers_application") {
			continue // a partial index that has the asked rows alone
		}
		t.Errorf("%s\n%s, sorted %v", text, scanned, sorted)
	}
}

// A snapshot sees the rows of one moment, and an index of another version is not read.
func TestASnapshotIsOfOneMoment(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(13, 400)
	l, store := newLedger(t, history[:200])
	x := New(filepath.Join(t.TempDir(), "index"))
	noError(t, x.CatchUp(t.Context(), l, nil))
	s := snapshot(t, x)
	before := lines(value[[]calls.Call](t)(s.Calls(CallQuery{})), callLine)
	noError(t, projectionstest.Append(t.Context(), store, history[200:]))
	noError(t, x.CatchUp(t.Context(), l, nil))
	same(t, "calls", lines(value[[]calls.Call](t)(s.Calls(CallQuery{})), callLine), before)
	if now := value[[]calls.Call](t)(snapshot(t, x).Calls(CallQuery{})); len(now) <= len(before) {
		t.Errorf("a new snapshot has %d calls, want more than %d", len(now), len(before))
	}
	path, err := x.current()
	noError(t, err)
	d, err := connect(path, writing, writerPragmas)
	noError(t, err)
	noError(t, errors.Join(d.script("UPDATE index_state SET schema_version = 99"), d.close()))
	if _, err := x.Snapshot(t.Context()); !errors.Is(err, ErrDamagedIndex) {
		t.Errorf("Snapshot of another version = %v, want ErrDamagedIndex", err)
	}
}

// The rows of approvals that no event ended are those that their events leave, if each
// revocation and each further answer ends the approval of the same pattern.
func TestApprovalsAreThoseThatNoEventEnds(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	n := 0
	for range rounds(3, 40) {
		l, _ := newLedger(t, projectionstest.History(random.Uint64(), length(1500)))
		var want []events.Envelope
		drop := func(agent domain.AgentID, location, action, resource string) {
			want = slices.DeleteFunc(want, func(v events.Envelope) bool {
				e := v.Event.(events.ApprovalSaved)
				return cmpOr(string(e.Agent), "build") == cmpOr(string(agent), "build") && e.Location == location && e.Action == action && e.Resource == resource
			})
		}
		for v, err := range l.ReadAll(t.Context(), events.Position{}) {
			noError(t, err)
			switch e := v.Event.(type) {
			case events.ApprovalSaved:
				drop(e.Agent, e.Location, e.Action, e.Resource)
				want, n = append(want, v), n+1
			case events.ApprovalRevoked:
				drop(e.Agent, e.Location, e.Action, e.Resource)
			}
		}
		line := func(v events.Envelope) string {
			return fmt.Sprintf("%s %s %s %+v", v.ID, v.Correlation, v.Time.Format(timeLayout), v.Event)
		}
		same(t, "Approvals", lines(value[[]events.Envelope](t)(snapshot(t, newIndex(t, l)).Approvals()), line), lines(want, line))
	}
	if n == 0 {
		t.Error("the histories have no approval")
	}
}

// An index in memory has the rows of one in a folder.
func TestAnIndexInMemoryAnswersAsOneInAFolder(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(31, 400))
	s, err := InMemory(t.Context(), l, nil)
	noError(t, err)
	defer func() { noError(t, s.Close()) }()
	folder := snapshot(t, newIndex(t, l))
	same(t, "Calls", lines(value[[]calls.Call](t)(s.Calls(CallQuery{})), callLine), lines(value[[]calls.Call](t)(folder.Calls(CallQuery{})), callLine))
	if last, ok, err := s.LastSession(); err != nil || !ok || last.ID.IsZero() {
		t.Errorf("LastSession = %v, %v, %v", last, ok, err)
	}
}
