package transcripts_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// settlements returns the settlements of a ledger by call ID, in order.
func settlements(t *testing.T, l *events.Ledger) map[domain.CallID][]events.CallSettled {
	t.Helper()
	all := map[domain.CallID][]events.CallSettled{}
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(events.CallSettled); ok {
			all[e.Call] = append(all[e.Call], e)
		}
	}
	return all
}

// Each call of the fixture has the outcome, text and detail that its result shows.
func TestOutcomesFollowTheFile(t *testing.T) {
	t.Parallel()
	l := newLedger()
	importAll(t, l, fixture(t, "garden.jsonl"))
	all := settlements(t, l)
	for _, want := range []struct {
		call    domain.CallID
		nth     int
		outcome domain.Outcome
		began   bool
		reads   string
		detail  string
	}{
		{"t1", 0, domain.Succeeded, true, "1 beans\n2 <peas>", ""},
		{"t1", 1, domain.Failed, true, "Exit code 1", ""},
		{"t2", 0, domain.Succeeded, true, "wet beds", ""},
		{"t3", 0, domain.DeclinedByUser, false, "The user doesn't want to", "feedback: keep the fence"},
		{"t4", 0, domain.DeniedByRule, false, "Permission to use Bash", ""},
		{"t5", 0, domain.UnknownTool, false, "<tool_use_error>", ""},
		{"t6", 0, domain.InvalidInput, false, "<tool_use_error>", ""},
		{"t8", 0, domain.Succeeded, true, "<persisted-output>", "/srv/out/t8.txt; 46285 bytes"},
		{"t10", 0, domain.Succeeded, true, "", ""},
		{"gone", 0, domain.Succeeded, false, "from before", ""},
	} {
		if len(all[want.call]) <= want.nth {
			t.Errorf("%s is settled %d times", want.call, len(all[want.call]))
			continue
		}
		got := all[want.call][want.nth]
		reads := got.Text + got.Content.Text()
		if got.Outcome != want.outcome || got.Began != want.began || !strings.HasPrefix(reads, want.reads) || !strings.HasSuffix(got.Detail, want.detail) {
			t.Errorf("%s settled %v, began %v, %q, detail %q, want %v, %v, %q, %q",
				want.call, got.Outcome, got.Began, reads, got.Detail, want.outcome, want.began, want.reads, want.detail)
		}
		if len(got.Retained) > 0 {
			t.Errorf("%s claims an output that is not in the ledger", want.call)
		}
	}
	if media := all["t7"][0].Content.Media(); len(media) != 1 || media[0].MIME != "image/png" || len(media[0].Data) != 3 {
		t.Errorf("t7 reads %v, want the image", media)
	}
	if got := all["gone"][0]; got.Tool != "unknown" || !got.Turn.IsZero() {
		t.Errorf("a result that nobody asked for settles %q of turn %v", got.Tool, got.Turn)
	}
}

// The outcome follows from the beginning of the text and the error flag. The same
// text further down, or without the flag, is output of the tool.
func TestATextIsADenialOnlyAtTheHeadOfAnError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		content, isError string
		beside           string
		want             domain.Outcome
	}{
		{"Permission to use Bash has been denied.", "true", "null", domain.DeniedByRule},
		{"Permission to use Bash has been auto-denied in dontAsk mode.", "true", "null", domain.DeniedByRule},
		{"Claude requested permissions to write to x, but you haven't granted it yet.", "true", "null", domain.DeniedByRule},
		{"Permission to use Bash has been denied.", "false", "null", domain.Succeeded},
		{"Permission to use cranes is on page 3", "true", "null", domain.Failed},
		{"Permission to use cranes" + strings.Repeat(" ", 3000) + "has been denied", "true", "null", domain.Failed},
		{"1: The user doesn't want to proceed with this tool use.", "true", "null", domain.Failed},
		{"The user doesn't want to take this action right now. STOP", "true", "null", domain.DeclinedByUser},
		{"[Request interrupted by user for tool use]", "true", "null", domain.Interrupted},
		{"[Request interrupted by user for tool use]", "false", "null", domain.Succeeded},
		{"<error>Command was aborted before completion</error>", "false", `{"interrupted":true}`, domain.Interrupted},
		{"<error>Command was aborted before completion</error>", "false", `{"interrupted":false}`, domain.Succeeded},
		{"<tool_use_error>Sibling tool call errored</tool_use_error>", "true", "null", domain.Interrupted},
		{"<tool_use_error>String to replace not found</tool_use_error>", "true", "null", domain.InvalidInput},
		{"<tool_use_error>File has not been read yet. Read it first</tool_use_error>", "true", "null", domain.InvalidInput},
		{"<tool_use_error>Error calling tool (Bash): spawn failed</tool_use_error>", "true", "null", domain.Failed},
		{"<tool_use_error>Error: Streaming fallback - tool execution discarded</tool_use_error>", "true", "null", domain.Interrupted},
		{"Exit code 137\n[Request interrupted by user for tool use]\nhalf", "true", "null", domain.Interrupted},
		{"Exit code 1\ngrep: x\n[Request interrupted by user for tool use]", "true", "null", domain.Failed},
		{"Command timed out after 2m 0.0s", "true", "null", domain.Interrupted},
		{"Exit code 143\nCommand timed out after 2m 0.0s\nhalf", "true", "null", domain.Interrupted},
		{"<error>Command timed out after 2m 0.0s</error>", "true", "null", domain.Interrupted},
		{"Command timed out after 2m", "false", `{"interrupted":true}`, domain.Interrupted},
		{"Command timed out after 2m", "false", `{"interrupted":false}`, domain.Succeeded},
		{"Permission prompt was aborted.", "true", "null", domain.DeclinedByUser},
		{"Error: No such tool available: X", "true", "null", domain.UnknownTool},
	} {
		text, err := json.Marshal(c.content)
		if err != nil {
			t.Fatal(err)
		}
		l := newLedger()
		importAll(t, l, fmt.Appendf(nil, `{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}
{"type":"user","toolUseResult":%s,"message":{"content":[{"type":"tool_result","tool_use_id":"c","is_error":%s,"content":%s}]}}
`, c.beside, c.isError, text))
		got := settlements(t, l)["c"]
		if len(got) != 1 || got[0].Outcome != c.want {
			t.Errorf("%q with is_error %s settles %v, want %v", c.content, c.isError, got, c.want)
		}
	}
}

// The tokens of a reply in several lines count once, and the numbers in its inputs
// keep every digit.
func TestTokensOfAReplyCountOnce(t *testing.T) {
	t.Parallel()
	l := newLedger()
	importAll(t, l, fixture(t, "garden.jsonl"))
	for _, r := range factsOf(t, l).Replies {
		if len(r.Calls) == 2 {
			if want := (events.Tokens{Input: 10, Output: 40, CacheRead: 5, CacheWrite: 2}); r.Tokens != want || r.Finish != "tool_use" {
				t.Errorf("the reply of four lines counts %+v and ends by %q, want %+v", r.Tokens, r.Finish, want)
			}
			if number := string(r.Calls[0].Input); !strings.Contains(number, "12345678901234567890") {
				t.Errorf("the input on record is %s, want its number whole", number)
			}
			return
		}
	}
	t.Error("no reply has two calls")
}

// The first result before its call settles the call, and the second is late.
func TestAResultBeforeItsCallSettlesIt(t *testing.T) {
	t.Parallel()
	data := []byte(`{"type":"user","uuid":"a","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"1"}]}}
{"type":"user","uuid":"b","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"2"}]}}
{"type":"assistant","uuid":"d","sessionId":"s","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}
`)
	read := readFile(t, data)
	if r := read.Report; r.Calls != 1 || r.Results != 2 || r.Open != 0 || r.OrphanResults != 0 {
		t.Errorf("counts are %+v", r)
	}
	l := newLedger()
	if _, err := read.Import(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, factsOf(t, l), read.Report)
}

// A result for a call that the ledger has as settled by another event is recorded as
// late, once.
func TestASettledCallIsNotSettledAgain(t *testing.T) {
	t.Parallel()
	data := []byte(`{"type":"assistant","uuid":"d","sessionId":"s","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}
`)
	grown := append(slices.Clone(data), []byte(`{"type":"user","uuid":"a","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"1"}]}}
{"type":"user","uuid":"b","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"2"}]}}
`)...)
	l := newLedger()
	read := readFile(t, data)
	if _, err := read.Import(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	var message domain.MessageID
	for m := range factsOf(t, l).Replies {
		message = m
	}
	stream := events.SessionStream(read.Session)
	lost := l.Draft(events.CallSettled{Message: message, Call: "c", Tool: "Bash", Outcome: domain.Lost}, domain.EventID{})
	if _, err := l.Append(t.Context(), stream, 3, lost); err != nil {
		t.Fatal(err)
	}
	importAll(t, l, grown)
	late := 0
	for v, err := range l.Read(t.Context(), stream, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(events.LateResultObserved); ok && e.Settlement == lost.ID {
			late++
		}
	}
	if all := settlements(t, l)["c"]; late != 2 || len(all) != 1 {
		t.Errorf("%d results are late and the call is settled %d times, want 2 and 1", late, len(all))
	}
	if added := importAll(t, l, grown); added != 0 {
		t.Errorf("importing again adds %d events, want 0", added)
	}
}

// A result belongs to the latest open call of its ID.
func TestAResultIsOfTheLatestOpenCallOfItsID(t *testing.T) {
	t.Parallel()
	l := newLedger()
	importAll(t, l, []byte(`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"First","input":{}}]}}
{"type":"assistant","message":{"id":"n","content":[{"type":"tool_use","id":"c","name":"Second","input":{}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"1"}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"2"}]}}
`))
	all := settlements(t, l)["c"]
	if len(all) != 2 || all[0].Tool != "Second" || all[1].Tool != "First" {
		t.Errorf("the results settle %v, want Second and then First", all)
	}
}

// A record that is repeated with another uuid adds neither its text nor its call,
// even if the members of the input have another order.
func TestARepeatUnderAnotherUUIDAddsNothingToItsReply(t *testing.T) {
	t.Parallel()
	l := newLedger()
	importAll(t, l, []byte(`{"type":"assistant","uuid":"1","message":{"id":"m","content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"c","name":"Bash","input":{"a":1,"b":2}}]}}
{"type":"assistant","uuid":"2","message":{"id":"m","content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"c","name":"Bash","input":{"b":2,"a":1}}]}}
`))
	for _, r := range factsOf(t, l).Replies {
		if r.Text != "hi" || len(r.Calls) != 1 {
			t.Errorf("the reply is %+v, want its text and its call once", r)
		}
	}
}

// The structured value of a record is recorded if it is an object or array of a
// record with one result and within the limit. Otherwise the detail says that it is
// not kept.
func TestTheStructuredValueIsKeptWhereItIsThatOfTheResult(t *testing.T) {
	t.Parallel()
	ask := `{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash"},{"type":"tool_use","id":"d","name":"Bash"}]}}` + "\n"
	one := `{"type":"tool_result","tool_use_id":"c","content":"x"}`
	for _, c := range []struct{ beside, parts, want, detail string }{
		{`{"n": 1}`, one, `{"n":1}`, ""},
		{`"Error: x"`, one, "", ""},
		{`{"n":1}`, one + "," + strings.Replace(one, `"c"`, `"d"`, 1), "", "the structured value of one of the results of its record is not kept"},
		{`["` + strings.Repeat("x", 60_000) + `"]`, one, "", "the structured value of 60004 bytes is not kept"},
	} {
		l := newLedger()
		importAll(t, l, fmt.Appendf(nil, `%s{"type":"user","toolUseResult":%s,"message":{"content":[%s]}}`, ask, c.beside, c.parts))
		got := settlements(t, l)["c"][0]
		if string(got.Structured) != c.want || got.Detail != c.detail {
			t.Errorf("beside %.20s: structured %s, detail %q, want %s, %q", c.beside, got.Structured, got.Detail, c.want, c.detail)
		}
	}
}
