package index

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index/where"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A fieldValues is a row as the values of its fields: texts, int64 numbers, times and bools. An absent value
// is nil, and a field of several values has a []any.
type fieldValues map[string]any

// holds evaluates a condition over a row by the rules of the documentation of package where.
func holds(e *where.Expr, r fieldValues) bool {
	switch e.Op {
	case where.Not:
		return !holds(e.Parts[0], r)
	case where.And:
		return !slices.ContainsFunc(e.Parts, func(part *where.Expr) bool { return !holds(part, r) })
	case where.Or:
		return slices.ContainsFunc(e.Parts, func(part *where.Expr) bool { return holds(part, r) })
	}
	if e.Sign == "!=" {
		same := *e
		same.Sign = "="
		return !holds(&same, r)
	}
	values, several := r[e.Field.Name].([]any)
	if !several {
		return fits(e, r[e.Field.Name])
	}
	if e.Value.Null {
		return len(values) == 0
	}
	return slices.ContainsFunc(values, func(v any) bool { return fits(e, v) })
}

// fits evaluates a comparison with one value, which is nil if it is absent.
func fits(e *where.Expr, v any) bool {
	if e.Value.Null || v == nil {
		return e.Value.Null && v == nil && e.Sign == "="
	}
	order := 0
	switch v := v.(type) {
	case string:
		if e.Sign == "~" {
			return contains(strings.ToLower(v), e.Value)
		}
		order = strings.Compare(v, e.Value.Text)
	case bool:
		return v == (e.Value.Number == int64(1))
	case int64:
		if n, ok := e.Value.Number.(int64); ok {
			order = cmp.Compare(float64(v), float64(n))
		} else {
			order = cmp.Compare(float64(v), e.Value.Number.(float64))
		}
	case time.Time:
		order = v.Truncate(time.Microsecond).Compare(e.Value.First)
	default:
		panic(fmt.Sprintf("%T", v))
	}
	return map[string]bool{"=": order == 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[e.Sign]
}

// contains evaluates ~ for a text in lower case.
func contains(text string, v where.Value) bool {
	if v.Pattern == nil {
		return strings.Contains(text, strings.ToLower(v.Text))
	}
	for i, part := range v.Pattern {
		part = strings.ToLower(part)
		switch {
		case i == 0:
			rest, ok := strings.CutPrefix(text, part)
			if !ok {
				return false
			}
			text = rest
		case i == len(v.Pattern)-1:
			return strings.HasSuffix(text, part)
		default:
			_, rest, ok := strings.Cut(text, part)
			if !ok {
				return false
			}
			text = rest
		}
	}
	return text == ""
}

// randomCondition returns the text of a condition over fields, with values of rows.
func randomCondition(random *rand.Rand, fields []where.Field, rows []fieldValues, depth int) string {
	if depth > 0 && random.IntN(2) == 0 {
		a, b := randomCondition(random, fields, rows, depth-1), randomCondition(random, fields, rows, depth-1)
		return []string{"(" + a + " or " + b + ")", a + " and " + b, "not (" + a + ")"}[random.IntN(3)]
	}
	f := fields[random.IntN(len(fields))]
	v := rows[random.IntN(len(rows))][f.Name]
	if all, ok := v.([]any); ok {
		if v = nil; len(all) > 0 {
			v = all[random.IntN(len(all))]
		}
	}
	if v == nil {
		return f.Name + []string{" = null", " != null"}[random.IntN(2)]
	}
	sign := []string{"=", "!=", "<", "<=", ">", ">="}[random.IntN(6)]
	quote := func(text string) string {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(text) + `"`
	}
	switch v := v.(type) {
	case bool:
		return []string{f.Name, f.Name + " = false", f.Name + " != true"}[random.IntN(3)]
	case time.Time:
		return f.Name + sign + v.Format(time.RFC3339Nano)
	case int64:
		if f.Type == where.Duration {
			return fmt.Sprintf("%s %s %dms", f.Name, sign, v)
		}
		return fmt.Sprintf("%s %s %d", f.Name, sign, v)
	case string:
		runes := []rune(v)
		i, j := random.IntN(len(runes)), random.IntN(len(runes))
		switch part := string(runes[min(i, j):max(i, j)]); random.IntN(4) {
		case 0:
			return f.Name + " ~ " + quote(strings.ReplaceAll(part, "*", ""))
		case 1:
			return f.Name + " ~ " + quote(string(runes[:min(i, j)])+"*"+string(runes[max(i, j):]))
		}
		return f.Name + " " + sign + " " + quote(v)
	}
	panic(fmt.Sprintf("%T", v))
}

// instant parses RFC 3339.
func instant(text string) (time.Time, time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	return at, at, err
}

// optional returns v, or nil for the zero value.
func optional[T comparable](v T) any {
	if v == *new(T) {
		return nil
	}
	if text, ok := any(v).(fmt.Stringer); ok {
		if at, ok := any(v).(time.Time); ok {
			return at.Truncate(time.Microsecond)
		}
		return text.String()
	}
	return fmt.Sprint(v)
}

// A plainLog has the rows of all lists, folded from the events of a log.
type plainLog struct {
	calls, sessions, turns, requests                 []fieldValues
	callNames, sessionNames, turnNames, requestNames []string
}

// plain folds a history. The rows of calls and sessions come from projections/calls.
func plain(t *testing.T, l *events.Ledger) (p plainLog) {
	t.Helper()
	state := fold(t, calls.Projection(), l)
	by, persons, paths, models, sizes := map[calls.Key][]any{}, map[calls.Key][]any{}, map[calls.Key][]any{}, map[domain.MessageID]string{}, map[calls.Key][2]int64{}
	requested, asked := map[domain.SessionID]int64{}, map[domain.SessionID]int64{}
	offers, hidden := map[domain.TurnID][]any{}, map[domain.TurnID][]any{}
	requests, locations, turnCalls := map[domain.PermissionID]fieldValues{}, map[domain.SessionID]string{}, map[domain.TurnID]int64{}
	turnsOf, tokens, failures, unknown := map[domain.SessionID]int64{}, map[domain.SessionID]events.Tokens{}, map[domain.SessionID]int64{}, map[domain.SessionID]int64{}
	var turnIDs []domain.TurnID
	known, settled := map[calls.Key]bool{}, map[calls.Key]bool{}
	for _, c := range state.Calls() {
		turnCalls[c.Turn]++
		locations[c.Session] = c.Location
	}
	callOf := func(id domain.PermissionID) calls.Key { return requests[id]["key"].(calls.Key) }
	decide := func(id domain.PermissionID, effect, who, person string, v events.Envelope, more fieldValues) {
		r := requests[id]
		if r == nil || r["decided"] != nil {
			return
		}
		r["effect"], r["by"], r["person"], r["decided"] = optional(effect), optional(who), optional(person), optional(v.Time)
		for k, v := range more {
			r[k] = v
		}
		key := callOf(id)
		by[key], persons[key] = append(by[key], who), append(persons[key], person)
	}
	input := func(session domain.SessionID, message domain.MessageID, all []domain.Call) {
		for _, c := range all {
			key := calls.Key{Session: session, Message: message, Call: c.ID}
			if known[key] {
				continue
			}
			known[key] = true
			sizes[key] = [2]int64{int64(len(c.Input)), sizes[key][1]}
			for _, use := range inputPaths(c.Name, locations[session], c.Input) {
				paths[key] = append(paths[key], use.path)
			}
		}
	}
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		noError(t, err)
		session, _ := v.Stream.Session()
		switch e := v.Event.(type) {
		case events.ReplyReceived:
			if models[e.Message] == "" {
				models[e.Message] = e.Model
			}
			n := tokens[session]
			n.Input, n.Output, n.CacheRead, n.CacheWrite = n.Input+e.Tokens.Input, n.Output+e.Tokens.Output, n.CacheRead+e.Tokens.CacheRead, n.CacheWrite+e.Tokens.CacheWrite
			tokens[session] = n
			input(session, e.Message, e.Calls)
		case events.CallsAdded:
			input(session, e.Message, e.Calls)
		case events.CallSettled:
			key := calls.Key{Session: session, Message: e.Message, Call: e.Call}
			if size := sizes[key]; !settled[key] {
				sizes[key] = [2]int64{size[0], int64(len(calls.Shown(e)))}
			}
			if !settled[key] {
				for _, a := range e.Files {
					paths[key] = append(paths[key], a.Path)
				}
			}
			settled[key] = true
		case events.PermissionRequested:
			requested[session]++
			list, err := list(e.Resources)
			noError(t, err)
			for _, name := range requestPaths(e) {
				key := calls.Key{Session: session, Message: e.Message, Call: e.Call}
				paths[key] = append(paths[key], name)
			}
			requests[e.Permission] = fieldValues{"request": e.Permission.String(), "kind": "permission", "session": session.String(), "message": optional(e.Message), "call": optional(e.Call), "agent": optional(e.Agent),
				"action": optional(e.Action), "resources": cmpOr(list, "[]"), "requested": optional(v.Time), "key": calls.Key{Session: session, Message: e.Message, Call: e.Call}}
			p.requests, p.requestNames = append(p.requests, requests[e.Permission]), append(p.requestNames, e.Permission.String())
		case events.QuestionAsked:
			list, err := list(e.Questions)
			noError(t, err)
			requests[e.Question] = fieldValues{"request": e.Question.String(), "kind": "question", "session": session.String(), "message": optional(e.Message), "call": optional(e.Call), "agent": optional(e.Agent),
				"action": "question", "resources": cmpOr(list, "[]"), "requested": optional(v.Time), "key": calls.Key{Session: session, Message: e.Message, Call: e.Call}}
			p.requests, p.requestNames = append(p.requests, requests[e.Question]), append(p.requestNames, e.Question.String())
		case events.PermissionDecided:
			decide(e.Permission, e.Effect.String(), string(e.By), e.Person, v, fieldValues{"scope": optional(e.Scope), "feedback": optional(e.Feedback), "rule": optional(e.Rule.Source), "waited": e.WaitedMS})
			if e.Scope != "" {
				asked[session]++
			}
		case events.QuestionAnswered:
			decide(e.Question, map[bool]string{true: "dismissed", false: "answered"}[e.Dismissed], string(e.By), e.Person, v, fieldValues{"feedback": optional(e.Feedback), "waited": e.WaitedMS})
		case events.ProviderFailed:
			failures[session]++
		case events.Unknown:
			unknown[session]++
		case events.TurnMaterialized:
			for _, o := range e.Tools {
				offers[e.Turn] = append(offers[e.Turn], string(o.Name))
			}
			if slices.Contains(p.turnNames, e.Turn.String()) {
				continue
			}
			for _, h := range e.Hidden {
				hidden[e.Turn] = append(hidden[e.Turn], string(h.Name))
			}
			turnsOf[session]++
			p.turns = append(p.turns, fieldValues{"session": session.String(), "turn": e.Turn.String(), "message": optional(e.Message), "agent": optional(e.Agent), "model": optional(e.Model), "provider": optional(e.Provider),
				"client": optional(e.Client), "time": optional(v.Time), "calls": turnCalls[e.Turn], "disabled": e.Disabled, "observed": e.Observed, "compacted": !e.Compacted.IsZero(), "hidden": hidden[e.Turn]})
			p.turnNames, turnIDs = append(p.turnNames, e.Turn.String()), append(turnIDs, e.Turn)
		}
	}
	for i, r := range p.turns {
		id := turnIDs[i]
		seen := map[any]bool{}
		for _, name := range offers[id] {
			seen[name] = true
		}
		r["offered"], r["tools"] = offers[id], int64(len(seen))
	}
	for _, c := range state.Calls() {
		s, size := c.Settlement, sizes[c.Key()]
		text := string(c.Input)
		if c.Input == nil {
			text = c.InputPreview
		}
		outcome := OpenOutcome
		if c.State == calls.Settled {
			outcome = s.Outcome.String()
		}
		var took any
		if !c.Started.IsZero() && !c.Settled.IsZero() && s.Outcome != domain.Lost {
			took = max(0, c.Settled.Truncate(time.Microsecond).Sub(c.Started.Truncate(time.Microsecond)).Milliseconds())
			if s.RanMS > 0 {
				took = s.RanMS
			}
		}
		p.calls = append(p.calls, fieldValues{"session": c.Session.String(), "turn": optional(c.Turn), "message": c.Message.String(), "call": string(c.ID), "parent": optional(c.Parent), "tool": optional(c.Tool), "title": optional(c.Title),
			"agent": optional(c.Agent), "model": optional(models[c.Message]), "location": optional(c.Location), "imported": c.Imported, "state": string(c.State), "outcome": outcome,
			"began": s.Began || !c.Started.IsZero(), "interruption": optional(s.Interruption), "input": optional(text), "shown": optional(c.Preview), "error": optional(s.Text), "detail": optional(s.Detail),
			"input_bytes": size[0], "shown_bytes": size[1], "asked": optional(c.Asked), "started": optional(c.Started), "settled": optional(c.Settled), "took": took, "waited": c.WaitedMS,
			"requests": int64(c.Requests), "late": int64(c.Late), "registration": optional(c.Offered.Registration), "changed_by": optional(s.ChangedBy), "rule": optional(s.Rule.Source), "process": optional(c.Process),
			"by": present(by[c.Key()]), "person": present(persons[c.Key()]), "path": present(paths[c.Key()])})
		p.callNames = append(p.callNames, callLine(c))
	}
	for _, s := range state.Sessions() {
		n := tokens[s.ID]
		p.sessions = append(p.sessions, fieldValues{"session": s.ID.String(), "agent": optional(s.Agent), "location": optional(s.Location), "model": optional(s.Model), "parent": optional(s.Parent), "origin": optional(s.Origin.Kind),
			"format": optional(s.Origin.Format), "title": optional(s.Title), "opened": optional(s.Opened), "last": optional(s.LastEvent),
			"duration": max(0, s.LastEvent.Truncate(time.Microsecond).Sub(s.Opened.Truncate(time.Microsecond)).Milliseconds()), "prompts": int64(s.Prompts), "turns": turnsOf[s.ID], "replies": int64(s.Replies),
			"calls": int64(s.Calls), "open": int64(s.Open), "failed": int64(s.Failed), "requests": requested[s.ID], "asked": asked[s.ID], "input_tokens": n.Input, "output_tokens": n.Output,
			"cache_read_tokens": n.CacheRead, "cache_write_tokens": n.CacheWrite, "provider_failures": failures[s.ID], "unknown_events": unknown[s.ID], "interrupted": s.Interrupted, "closed": s.Closed})
		p.sessionNames = append(p.sessionNames, s.ID.String())
	}
	return p
}

// present returns the values that are not empty.
func present(all []any) []any {
	return slices.DeleteFunc(append([]any{}, all...), func(v any) bool { return v == "" })
}

// A random condition over each list selects what its plain evaluation over a fold of the log
// selects, in the same order and with the same limit. So do the flags of calls that other
// lists have.
func TestConditionsSelectWhatAPlainFilterSelects(t *testing.T) {
	t.Parallel()
	random := newRandom(t)
	for range rounds(1, 25) {
		l, _ := newLedger(t, projectionstest.History(random.Uint64(), length(600)))
		s, p := snapshot(t, newIndex(t, l)), plain(t, l)
		for _, list := range []struct {
			name   string
			fields []where.Field
			rows   []fieldValues
			names  []string
			run    func(*where.Expr, int, int) []string
		}{
			{"calls", CallFields, p.calls, p.callNames, func(e *where.Expr, n, skip int) []string {
				return lines(value[[]calls.Call](t)(s.Calls(CallQuery{Where: e, Limit: n, Skip: skip})), callLine)
			}},
			{"sessions", SessionFields, p.sessions, p.sessionNames, func(e *where.Expr, n, skip int) []string {
				return lines(value[[]Session](t)(s.Sessions(SessionQuery{Where: e, Limit: n, Skip: skip})), func(s Session) string { return s.ID.String() })
			}},
			{"turns", TurnFields, p.turns, p.turnNames, func(e *where.Expr, n, skip int) []string {
				return lines(value[[]ListedTurn](t)(s.Turns(TurnQuery{Where: e, Limit: n, Skip: skip})), func(t ListedTurn) string { return t.Turn.Turn.String() })
			}},
			{"requests", RequestFields, p.requests, p.requestNames, func(e *where.Expr, n, skip int) []string {
				return lines(value[[]Request](t)(s.Requests(RequestQuery{Where: e, Limit: n, Skip: skip})), func(r Request) string { return r.ID.String() })
			}},
		} {
			if len(list.rows) == 0 {
				continue
			}
			for i := range 150 {
				text := randomCondition(random, list.fields, list.rows, i%4)
				e, err := where.Parse(text, list.fields, instant)
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				limit, skip := random.IntN(2)*random.IntN(9), random.IntN(2)*random.IntN(5)
				want := []string{}
				for i, r := range list.rows {
					if holds(e, r) {
						want = append(want, list.names[i])
					}
				}
				same(t, fmt.Sprintf("%s where %s, %d and %d", list.name, text, limit, skip), list.run(e, limit, skip), lastOf(want[:max(0, len(want)-skip)], limit))
			}
		}
		if len(p.calls) > 0 {
			checkCallFlags(t, random, s, p)
		}
	}
}

// checkCallFlags compares the lists by flags of calls with a plain filter.
func checkCallFlags(t *testing.T, random *rand.Rand, s *Snapshot, p plainLog) {
	t.Helper()
	for range 60 {
		like := p.calls[random.IntN(len(p.calls))]
		var q CallQuery
		var selected []func(fieldValues) bool
		some := func() bool { return random.IntN(3) == 0 }
		if tool := like["tool"]; some() && tool != nil {
			q.Tool = tool.(string)
			selected = append(selected, func(r fieldValues) bool { return r["tool"] == tool })
		}
		if agent := like["agent"]; some() && agent != nil {
			q.Agent = agent.(string)
			selected = append(selected, func(r fieldValues) bool { return r["agent"] == agent })
		}
		if some() {
			q.By = []string{"user", "rule", "recovery", "ada"}[random.IntN(4)]
			selected = append(selected, func(r fieldValues) bool {
				return slices.Contains(slices.Concat(r["by"].([]any), r["person"].([]any)), any(q.By))
			})
		}
		if all := like["path"].([]any); some() && len(all) > 0 {
			name := all[random.IntN(len(all))].(string)
			exact, _, ending, err := s.FindPaths("/nowhere", path.Base(name))
			noError(t, err)
			if q.Paths = ending; exact.selects() || !slices.Contains(ending.Names(), name) {
				t.Fatalf("FindPaths(%s) = %v, %v", path.Base(name), exact, ending)
			}
			selected = append(selected, func(r fieldValues) bool {
				return slices.ContainsFunc(r["path"].([]any), func(v any) bool { return slices.Contains(ending.Names(), v.(string)) })
			})
		}
		if some() {
			q.Open = true
			selected = append(selected, func(r fieldValues) bool { return r["outcome"] == OpenOutcome })
		}
		want, of := []string{}, map[string]map[any]bool{"session": {}, "turn": {}, "call": {}}
		for i, r := range p.calls {
			if !slices.ContainsFunc(selected, func(f func(fieldValues) bool) bool { return !f(r) }) {
				want = append(want, p.callNames[i])
				of["session"][r["session"]], of["turn"][r["turn"]], of["call"][fmt.Sprint(r["session"], r["message"], r["call"])] = true, true, true
			}
		}
		same(t, fmt.Sprintf("calls %+v", q), lines(value[[]calls.Call](t)(s.Calls(q)), callLine), want)
		chosen := func(rows []fieldValues, names []string, key func(fieldValues) any, set map[any]bool) []string {
			all := []string{}
			for i, r := range rows {
				if selected == nil || set[key(r)] {
					all = append(all, names[i])
				}
			}
			return all
		}
		same(t, fmt.Sprintf("sessions %+v", q), lines(value[[]Session](t)(s.Sessions(SessionQuery{Calls: q})), func(s Session) string { return s.ID.String() }),
			chosen(p.sessions, p.sessionNames, func(r fieldValues) any { return r["session"] }, of["session"]))
		same(t, fmt.Sprintf("turns %+v", q), lines(value[[]ListedTurn](t)(s.Turns(TurnQuery{Calls: q})), func(t ListedTurn) string { return t.Turn.Turn.String() }),
			chosen(p.turns, p.turnNames, func(r fieldValues) any { return r["turn"] }, of["turn"]))
		same(t, fmt.Sprintf("requests %+v", q), lines(value[[]Request](t)(s.Requests(RequestQuery{Calls: q})), func(r Request) string { return r.ID.String() }),
			chosen(p.requests, p.requestNames, func(r fieldValues) any { return fmt.Sprint(r["session"], r["message"], r["call"]) }, of["call"]))
	}
}

// The largest conditions that where.Parse takes are statements that SQLite takes, in each list
// and with every other flag.
func TestTheLargestConditionsAreExecuted(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(19, 60))
	s := snapshot(t, newIndex(t, l))
	many := func(comparison string) string {
		return strings.Repeat(comparison+" or ", where.MaxComparisons-1) + comparison
	}
	deep := strings.Repeat("not (", where.MaxDepth/2-1) + "session = a" + strings.Repeat(")", where.MaxDepth/2-1)
	parse := func(text string, fields []where.Field) *where.Expr {
		return value[*where.Expr](t)(where.Parse(text, fields, instant))
	}
	phrase := value[Phrase](t)(NewPhrase("word"))
	for _, text := range []string{many("by = user"), many(`person != "a"`), deep, "session ~ \"*" + strings.Repeat("a*", where.MaxBytes/2-20) + "\"", "session ~ \"*" + strings.Repeat("%", where.MaxBytes-20) + "\""} {
		q := CallQuery{Where: parse(text, CallFields), Open: true, Outcomes: domain.Outcomes(), By: "user", Phrase: phrase}
		_, err := s.Sessions(SessionQuery{Calls: q})
		noError(t, err)
		q.Outcomes = q.Outcomes[:2]
		_, err = s.Calls(q)
		noError(t, err)
		noError(t, s.CallFacts(q, func(CallFact) {}))
		noError(t, s.ReplyFacts(q, func(ReplyFact) {}))
		_, err = s.Requests(RequestQuery{Calls: q, Where: parse(text, RequestFields), By: "user"})
		noError(t, err)
	}
	_, err := s.Turns(TurnQuery{Where: parse(many("offered = read"), TurnFields)})
	noError(t, err)
	_, err = s.Sessions(SessionQuery{Where: parse(many("duration > 1s"), SessionFields)})
	noError(t, err)
	_, err = s.Search(TextQuery{Phrase: phrase, Where: parse(many("time > 2026-01-02T03:04:05Z"), TextFields)})
	noError(t, err)
	_, err = s.Calls(CallQuery{Where: parse(many("path = a"), CallFields)})
	noError(t, err)
	_, err = s.Calls(CallQuery{Where: parse(strings.ReplaceAll(many("took > 1s"), "or", "and"), CallFields)})
	noError(t, err)
}
