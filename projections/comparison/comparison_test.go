package comparison

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
	"github.com/settlement-ledger/ledger/projections/timeline"
)

// entriesOf yields the entries of the events of one stream.
func entriesOf(stream []events.Envelope) iter.Seq2[timeline.Entry, error] {
	return func(yield func(timeline.Entry, error) bool) {
		var b timeline.Builder
		more := true
		each := func(e timeline.Entry) bool { more = yield(e, nil); return more }
		for _, v := range stream {
			b.Add(v)
			if b.Take(each); !more {
				return
			}
		}
		b.Rest(each)
	}
}

// differences returns the differences of two streams in short form, and their summary.
func differences(t *testing.T, a, b []events.Envelope) ([]string, Summary) {
	t.Helper()
	got := []string{}
	s, err := Compare(entriesOf(a), entriesOf(b), func(d Difference) bool {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s%s %q → %q", d.Class, d.Change, d.Tool, d.Path, d.Before, d.After)))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return got, s
}

// sessionsOf returns the events of each session of a history.
func sessionsOf(history []events.Envelope) map[events.Stream][]events.Envelope {
	all := map[events.Stream][]events.Envelope{}
	for _, v := range history {
		if !v.Correlation.IsZero() {
			all[v.Stream] = append(all[v.Stream], v)
		}
	}
	return all
}

// A session equals itself. Two sessions differ in both directions alike, with added and
// removed exchanged, and the number of counted differences is the number of yielded ones.
func TestComparingIsReflexiveAndSymmetric(t *testing.T) {
	t.Parallel()
	found := 0
	for seed := range uint64(6) {
		sessions := sessionsOf(projectionstest.History(seed, 300))
		names := []events.Stream{}
		for name := range sessions {
			names = append(names, name)
		}
		slices.Sort(names)
		for i, name := range names {
			got, s := differences(t, sessions[name], sessions[name])
			if len(got) > 0 || s.Differences() != 0 || s.Shared != s.A.Steps || s.Aligned != s.A.Steps {
				t.Errorf("seed %d: %s differs from itself: %q, %+v", seed, name, got, s)
			}
			other := sessions[names[(i+1)%len(names)]]
			ab, s := differences(t, sessions[name], other)
			_, r := differences(t, other, sessions[name])
			if s.Differences() != len(ab) {
				t.Errorf("seed %d: %d differences are counted, %d yielded", seed, s.Differences(), len(ab))
			}
			if s.A.Steps != r.B.Steps || s.Shared != r.Shared || s.A.Calls != r.B.Calls {
				t.Errorf("seed %d: %+v one way, %+v the other", seed, s, r)
			}
			found += len(ab)
		}
	}
	if found == 0 {
		t.Error("no two sessions of the histories differ")
	}
}

// A writer writes a session with chosen steps.
type writer struct {
	log    *projectionstest.Log
	stream events.Stream
	tools  []domain.Offered
}

func newWriter(seed uint64) *writer {
	l := projectionstest.NewLog(seed)
	w := &writer{log: l, stream: events.SessionStream(l.Mint.Session()), tools: []domain.Offered{offered("read", "1"), offered("bash", "2")}}
	w.log.Add(w.stream, events.SessionOpened{Agent: "build", Origin: events.Origin{Kind: events.RunHere}})
	return w
}

// offered returns a tool of an offer whose fingerprint depends on a text.
func offered(name domain.Name, definition string) domain.Offered {
	var f domain.Fingerprint
	copy(f[:], definition+"................................")
	return domain.Offered{Name: name, Fingerprint: f}
}

func (w *writer) prompt(text string) {
	w.log.Add(w.stream, events.PromptAdmitted{Message: w.log.Mint.Message(), Text: text})
}

// A testCall is a call with its result.
type testCall struct {
	tool, input, result string
	outcome             domain.Outcome
}

// reply writes a turn with a reply and its calls.
func (w *writer) reply(text string, all ...testCall) {
	turn, message := w.log.Mint.Turn(), w.log.Mint.Message()
	w.log.Add(w.stream, events.TurnMaterialized{Turn: turn, Message: message, Model: "m", Tools: w.tools})
	e := events.ReplyReceived{Turn: turn, Message: message, Text: text, Model: "m", Tokens: events.Tokens{Input: 1}}
	for i, c := range all {
		id := domain.CallID(fmt.Sprint(message, i))
		e.Calls = append(e.Calls, domain.Call{ID: id, Name: c.tool, Input: json.RawMessage(c.input)})
	}
	w.log.Add(w.stream, e)
	for i, c := range all {
		settled := events.CallSettled{Turn: turn, Message: message, Call: e.Calls[i].ID, Tool: c.tool, Outcome: c.outcome, Began: true}
		if c.outcome == domain.Succeeded {
			settled.Content = domain.Contents{domain.Text(c.result)}
		} else {
			settled.Text = c.result
		}
		w.log.Add(w.stream, settled)
	}
}

// write writes a session of three prompts, changed by a function.
func write(seed uint64, change func(w *writer, step int) bool) []events.Envelope {
	w := newWriter(seed)
	for step := range 6 {
		if change != nil && change(w, step) {
			continue
		}
		switch step {
		case 0, 3:
			w.prompt(fmt.Sprint("prompt ", step))
		default:
			w.reply(fmt.Sprint("reply ", step), testCall{"read", `{"path":"a","n":1}`, "the text", domain.Succeeded}, testCall{"bash", `{"command":"ls"}`, "a b", domain.Succeeded})
		}
	}
	return w.log.Envelopes()
}

// Each planted difference is found as what it is, and nothing else.
func TestPlantedDifferencesAreNamed(t *testing.T) {
	t.Parallel()
	read, bash := testCall{"read", `{"path":"a","n":1}`, "the text", domain.Succeeded}, testCall{"bash", `{"command":"ls"}`, "a b", domain.Succeeded}
	at := func(step int, do func(w *writer)) func(*writer, int) bool {
		return func(w *writer, i int) bool {
			if i == step {
				do(w)
			}
			return i == step
		}
	}
	with := func(all ...testCall) func(*writer, int) bool {
		return at(2, func(w *writer) { w.reply("reply 2", all...) })
	}
	changed := func(c testCall, change func(*testCall)) testCall { change(&c); return c }
	for name, c := range map[string]struct {
		change func(*writer, int) bool
		want   []string
		shared int
	}{
		"nothing":        {nil, []string{}, 6},
		"other spelling": {with(changed(read, func(c *testCall) { c.input = `{ "n": 1, "path": "\u0061" }` }), bash), []string{}, 6},
		"prompt":         {at(3, func(w *writer) { w.prompt("another") }), []string{`prompts changed  "prompt 3" → "another"`}, 3},
		"no prompt":      {at(3, func(*writer) {}), []string{`prompts removed  "prompt 3" → ""`}, 3},
		"one prompt more": {at(3, func(w *writer) { w.prompt("more"); w.prompt("prompt 3") }),
			[]string{`prompts added  "" → "more"`}, 3},
		"reply": {at(4, func(w *writer) { w.reply("other", read, bash) }), []string{`replies changed  "reply 4" → "other"`}, 4},
		"input": {with(changed(read, func(c *testCall) { c.input = `{"path":"b","n":1,"more":[1]}` }), bash),
			[]string{`inputs added read/more "" → "[1]"`, `inputs changed read/path "a" → "b"`}, 2},
		"outcome":     {with(read, changed(bash, func(c *testCall) { c.outcome = domain.Failed })), []string{`outcomes changed bash "succeeded" → "failed"`}, 2},
		"output":      {with(changed(read, func(c *testCall) { c.result = "another text" }), bash), []string{`outputs changed read "the text" → "another text"`}, 2},
		"order":       {with(bash, read), []string{`calls removed read "{\"n\":1,\"path\":\"a\"}: succeeded" → ""`, `calls added read "" → "{\"n\":1,\"path\":\"a\"}: succeeded"`}, 2},
		"a call less": {with(read), []string{`calls removed bash "{\"command\":\"ls\"}: succeeded" → ""`}, 2},
		"model and tokens": {at(5, func(w *writer) {
			turn, message := w.log.Mint.Turn(), w.log.Mint.Message()
			w.log.Add(w.stream, events.TurnMaterialized{Turn: turn, Message: message, Tools: w.tools})
			w.log.Add(w.stream, events.ReplyReceived{Turn: turn, Message: message, Text: "reply 5", Model: "x"})
		}), []string{`models changed  "m" → "x"`, `tokens changed  "1 input, 0 output, 0 read from the cache, 0 written to it" → ""`,
			`calls removed read "{\"n\":1,\"path\":\"a\"}: succeeded" → ""`, `calls removed bash "{\"command\":\"ls\"}: succeeded" → ""`}, 5},
		"an unknown event": {at(3, func(w *writer) {
			w.log.Add(w.stream, events.Unknown{Name: "FromTomorrow", Version: 7, Data: json.RawMessage(`{"x":1}`)})
			w.prompt("prompt 3")
		}), []string{`events added  "" → "FromTomorrow\nversion 7\n{\"x\":1}"`}, 3},
	} {
		got, s := differences(t, write(1, nil), write(2, c.change))
		if !slices.Equal(got, c.want) || s.Shared != c.shared {
			t.Errorf("%s: %d shared steps and\n%s\nwant %d and\n%s", name, s.Shared, strings.Join(got, "\n"), c.shared, strings.Join(c.want, "\n"))
		}
	}
}

// A tool of an offer is added, gone, or has another definition.
func TestOffersAreComparedByFingerprint(t *testing.T) {
	t.Parallel()
	offer := func(seed uint64, tools ...domain.Offered) []events.Envelope {
		w := newWriter(seed)
		w.tools = tools
		w.reply("hello")
		return w.log.Envelopes()
	}
	got, s := differences(t, offer(1, offered("read", "1"), offered("bash", "2")), offer(2, offered("read", "9"), offered("grep", "3")))
	classes := []string{}
	for _, line := range got {
		classes = append(classes, strings.Join(strings.Fields(line)[:3], " "))
	}
	if want := []string{"offers changed read", "offers removed bash", "offers added grep"}; !slices.Equal(classes, want) || s.Differences(Offers) != 0 {
		t.Errorf("the differences are %q, want %q", classes, want)
	}
}

// The offers of an import are not compared.
func TestOffersOfAnImportAreNotCompared(t *testing.T) {
	t.Parallel()
	w := newWriter(2)
	w.log = projectionstest.NewLog(2)
	w.log.Add(w.stream, events.SessionOpened{Origin: events.Origin{Kind: events.Imported}})
	w.tools = nil
	w.reply("hello")
	own := newWriter(1)
	own.reply("hello")
	if got, s := differences(t, own.log.Envelopes(), w.log.Envelopes()); len(got) != 0 || !s.NoOffers {
		t.Errorf("the differences are %q, NoOffers %v; want none, and true", got, s.NoOffers)
	}
}

// Sessions longer than the window are aligned behind an insertion of any length, and memory
// holds no more than a window of each.
func TestALongSessionIsAlignedInWindows(t *testing.T) {
	t.Parallel()
	long := func(seed uint64, skip, insert int) []events.Envelope {
		w := newWriter(seed)
		for i := range 4 * Window {
			if i == 2*Window {
				for j := range insert {
					w.prompt(fmt.Sprint("inserted ", j))
				}
			}
			if i < 3 || i >= 3+skip {
				w.prompt(fmt.Sprint("prompt ", i))
			}
		}
		return w.log.Envelopes()
	}
	for _, c := range []struct{ skip, insert int }{{0, 1}, {1, 0}, {5, Window / 2}, {Window / 2, 7}} {
		got, s := differences(t, long(1, 0, 0), long(2, c.skip, c.insert))
		if s.Shared != map[bool]int{true: 2 * Window, false: 3}[c.skip == 0] || s.Aligned < 4*Window-c.skip-Window/2 {
			t.Errorf("%+v: %d shared and %d aligned steps", c, s.Shared, s.Aligned)
		}
		if len(got) < c.skip || len(got) > c.skip+c.insert+Window/2 {
			t.Errorf("%+v: %d differences", c, len(got))
		}
	}
}

// Compare stops when yield returns false, and returns the error of a timeline.
func TestCompareStops(t *testing.T) {
	t.Parallel()
	w := newWriter(1)
	for i := range 10 {
		w.prompt(fmt.Sprint(i))
	}
	n := 0
	if _, err := Compare(entriesOf(nil), entriesOf(w.log.Envelopes()), func(Difference) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("Compare yields %d differences, %v; want 3", n, err)
	}
	broken := errors.New("broken")
	fails := func(yield func(timeline.Entry, error) bool) { yield(timeline.Entry{}, broken) }
	if _, err := Compare(entriesOf(nil), fails, nil); !errors.Is(err, broken) {
		t.Errorf("Compare = %v, want %v", err, broken)
	}
}

// An input with very many differing places lists a bounded number of them.
func TestPlacesAreBounded(t *testing.T) {
	t.Parallel()
	list := func(text string) json.RawMessage {
		return json.RawMessage("[" + strings.Repeat(`"`+text+`",`, 1000) + "0]")
	}
	got := placesOf(list("a"), list("b"))
	if len(got) != MaxPlaces || got[0].path != "/0" || !strings.Contains(got[MaxPlaces-1].before, "more") {
		t.Errorf("%d places, the first %+v, the last %+v", len(got), got[0], got[len(got)-1])
	}
	if got := placesOf(json.RawMessage(`{"a/b":{"~":1}}`), json.RawMessage(`{"a/b":{"~":"1"}}`)); len(got) != 1 || got[0].path != "/a~1b/~0" {
		t.Errorf("the places are %+v, want /a~1b/~0", got)
	}
	if got := placesOf(json.RawMessage(`{`), json.RawMessage(`}`)); len(got) != 1 || got[0].path != "" {
		t.Errorf("the places of texts are %+v, want one", got)
	}
}

// A reply that is recorded in parts is one reply, and the calls that a call adds are
// compared.
func TestAReplyIsComparedWithAllItsCalls(t *testing.T) {
	t.Parallel()
	reply := func(seed uint64, parts bool, added string) []events.Envelope {
		w := newWriter(seed)
		turn, m := w.log.Mint.Turn(), w.log.Mint.Message()
		one, two := domain.Call{ID: "a", Name: "batch"}, domain.Call{ID: "b", Name: "read", Input: json.RawMessage(`{"n":1}`)}
		if parts {
			w.log.Add(w.stream, events.ReplyReceived{Turn: turn, Message: m, Text: "I ", Calls: []domain.Call{one}})
			w.log.Add(w.stream, events.ReplyReceived{Turn: turn, Message: m, Text: "look.", Calls: []domain.Call{two}})
		} else {
			w.log.Add(w.stream, events.ReplyReceived{Turn: turn, Message: m, Text: "I look.", Calls: []domain.Call{one, two}})
		}
		w.log.Add(w.stream, events.CallsAdded{Message: m, Parent: "a", Calls: []domain.Call{{ID: "c", Name: "read", Input: json.RawMessage(added)}}})
		for _, id := range []domain.CallID{"a", "b", "c"} {
			w.log.Add(w.stream, events.CallSettled{Message: m, Call: id, Outcome: domain.Succeeded, Began: true})
		}
		return w.log.Envelopes()
	}
	if got, s := differences(t, reply(1, true, `{"n":2}`), reply(2, false, `{"n":2}`)); len(got) != 0 || s.A.Steps != 1 || s.A.Calls != 3 {
		t.Errorf("the differences are %q, the steps %d; want none, and 1", got, s.A.Steps)
	}
	if got, _ := differences(t, reply(1, true, `{"n":2}`), reply(2, false, `{"n":3}`)); !slices.Equal(got, []string{`inputs changed read/n "2" → "3"`}) {
		t.Errorf("the differences are %q, want an input of the added call", got)
	}
}

// A call of another tool is another call, and large numbers are compared as written.
func TestCallsAreAlignedByTool(t *testing.T) {
	t.Parallel()
	one := func(seed uint64, tool, input string) []events.Envelope {
		w := newWriter(seed)
		w.reply("", testCall{tool, input, "", domain.Succeeded})
		return w.log.Envelopes()
	}
	got, _ := differences(t, one(1, "read", `{}`), one(2, "glob", `{}`))
	if want := []string{`calls removed read "{}: succeeded" → ""`, `calls added glob "" → "{}: succeeded"`}; !slices.Equal(got, want) {
		t.Errorf("the differences are %q, want %q", got, want)
	}
	got, _ = differences(t, one(1, "read", `{"n":12345678901234567890}`), one(2, "read", `{"n":12345678901234567891}`))
	if want := []string{`inputs changed read/n "12345678901234567890" → "12345678901234567891"`}; !slices.Equal(got, want) {
		t.Errorf("the differences are %q, want %q", got, want)
	}
}

// An output outside the log is compared by its digest, and its reference, which has an ID,
// is not.
func TestKeptOutputsAreComparedByDigest(t *testing.T) {
	t.Parallel()
	one := func(seed uint64, sum string) []events.Envelope {
		w := newWriter(seed)
		m, ref := w.log.Mint.Message(), domain.NewRef(w.log.Mint.Event(), domain.TextChannel)
		w.log.Add(w.stream, events.ReplyReceived{Message: m, Calls: []domain.Call{{ID: "a", Name: "bash"}}})
		w.log.Add(w.stream, events.CallSettled{Message: m, Call: "a", Tool: "bash", Outcome: domain.Succeeded, Began: true,
			Content: domain.Contents{domain.Text("the rest is at " + ref.String())}, Retained: []domain.Retained{{Ref: ref, Bytes: 9, SHA256: sum}}})
		return w.log.Envelopes()
	}
	if got, _ := differences(t, one(1, "ab"), one(2, "ab")); len(got) != 0 {
		t.Errorf("equal outputs differ: %q", got)
	}
	if got, _ := differences(t, one(1, "ab"), one(2, "cd")); len(got) != 1 || !strings.Contains(got[0], "sha256 cd") {
		t.Errorf("other outputs differ by %q, want their digests", got)
	}
}
