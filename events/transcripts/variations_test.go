package transcripts_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/transcripts"
)

// The prompts of the fixture are the texts of its user, and its interruptions are
// recorded.
func TestOnlyUserTextIsAPrompt(t *testing.T) {
	t.Parallel()
	l := newLedger()
	importAll(t, l, fixture(t, "garden.jsonl"))
	f := factsOf(t, l)
	slices.Sort(f.Prompts)
	if want := []string{"count the beans", "draw it\n[image image/png]", "water the beds"}; !slices.Equal(f.Prompts, want) {
		t.Errorf("prompts are %q, want %q", f.Prompts, want)
	}
	if f.Stops != 2 {
		t.Errorf("the session is interrupted %d times, want 2", f.Stops)
	}
}

// A file without a record of the format is an ErrForeign that names its first line.
// An empty file, and one that ends within its first record, is an empty transcript.
func TestOtherFormatsAreForeign(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		"PK\x03\x04\x00\x00", "hello\nworld\n", "[1,2,3]", "{\n  \"schema_version\": \"1.2\",\n  \"steps\": []\n}\n",
		`{"schema_version":"1.2","session_id":"x","steps":[]}`,
		`{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"x"}}` + "\n",
		`{"type":"tool","tool":"bash","callID":"1","sessionID":"x","state":{"status":"running"}}` + "\n",
		`{"type":"user","uuid":"1","sessionId":"x","message":{"role":"user","parts":[{"text":"hi"}]}}` + "\n", `{"type":"user","text":"hi"}` + "\n" + `{"type":"system"}`,
		`{"type":"summary","text":"x"}` + "\n" + `{"type":"mode","mode":"fast"}`,
	} {
		_, err := transcripts.ReadClaudeCode("x.jsonl", strings.NewReader(data))
		if !errors.Is(err, transcripts.ErrForeign) || !strings.Contains(err.Error(), "x.jsonl") || !strings.Contains(err.Error(), "expected") ||
			!strings.Contains(err.Error(), "line 1: ") {
			t.Errorf("ReadClaudeCode(%q) = %v, want ErrForeign that says what was expected", data, err)
		}
	}
	for _, data := range []string{"", "\n\r\n", `{"type":"us`} {
		read, err := transcripts.ReadClaudeCode("x.jsonl", strings.NewReader(data))
		if err != nil || read.Report.Records != 0 {
			t.Errorf("ReadClaudeCode(%q) = %v, want a transcript of nothing", data, err)
			continue
		}
		if added, err := read.Import(t.Context(), newLedger()); added != 0 || err != nil {
			t.Errorf("Import of %q = %d, %v, want nothing", data, added, err)
		}
	}
}

// A file of records without messages names one session, the same each time, and has
// no events.
func TestFileWithoutMessagesHasASessionAndNoEvents(t *testing.T) {
	t.Parallel()
	data := []byte(`{"type":"summary","summary":"x","leafUuid":"y"}` + "\n")
	read := readFile(t, data)
	if read.Session.IsZero() || read.Session != readFile(t, data).Session || len(read.Sessions()) != 0 {
		t.Errorf("session is %v with %v on record, want one that is always the same and none", read.Session, read.Sessions())
	}
}

// Records with missing, repeated or unexpected members are imported as far as they
// fit, and otherwise refused by the line.
func TestEveryVariationIsReadOrRefused(t *testing.T) {
	t.Parallel()
	const ask = `{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}` + "\n"
	for _, c := range []struct {
		name, data string
		want       [6]int // calls, results, open, orphans, errors, refused
	}{
		{"content is a text", `{"type":"assistant","message":{"id":"m","content":"hi"}}`, [6]int{}},
		{"message is a text", `{"type":"user","message":"hi"}`, [6]int{}},
		{"message is missing", `{"type":"summary","summary":"x"}` + "\n" + `{"type":"user"}` + "\n" + `{"type":"assistant","message":5}`, [6]int{5: 2}},
		{"a result is a part", ask + `{"type":"user","message":{"content":{"type":"tool_result","tool_use_id":"c"}}}`, [6]int{1, 1, 0, 0, 0, 0}},
		{"ids are numbers", `{"type":"assistant","message":{"id":7,"content":[{"type":"tool_use","id":5,"name":"Bash"}]}}
{"type":"user","uuid":9,"timestamp":1700000000000,"message":{"content":[{"type":"tool_result","tool_use_id":"5","is_error":"true","content":null}]}}`, [6]int{1, 1, 0, 0, 1, 0}},
		{"ids are missing", `{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}
{"type":"user","message":{"content":[{"type":"tool_result","content":"x"}]}}`, [6]int{5: 2}},
		{"a call comes again in its reply", ask + ask, [6]int{1, 0, 1, 0, 0, 0}},
		{"a call comes again otherwise", ask + strings.Replace(ask, "Bash", "Read", 1), [6]int{1, 0, 1, 0, 0, 1}},
		{"a call ID comes in another reply", ask + strings.Replace(ask, `"m"`, `"n"`, 1) +
			`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":["a",{"type":"text","text":"b"},[1],7,{"type":"odd"}]}]}}`, [6]int{2, 1, 1, 0, 0, 0}},
		{"results without a uuid or a time are not one", ask + strings.Repeat(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c"}]}}`+"\n", 2), [6]int{1, 2, 0, 0, 0, 0}},
		{"a result before two calls", `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c"}]}}` + "\n" + ask +
			strings.Replace(ask, `"m"`, `"n"`, 1), [6]int{2, 1, 1, 0, 0, 0}},
		{"orphans of one call", strings.Repeat(`{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"c"}]}}`+"\n", 2), [6]int{0, 2, 0, 2, 0, 0}},
		{"a result in a reply", `{"type":"assistant","message":{"content":[{"type":"tool_result","tool_use_id":"c"}]}}`, [6]int{5: 1}},
		{"bad UTF-8", strings.Replace(ask, "{}", "{\"a\":\"\xff\xfe\"}", 1), [6]int{1, 0, 1, 0, 0, 0}},
		{"half a surrogate", strings.Replace(ask, "{}", `{"a":"\ud800"}`, 1), [6]int{1, 0, 1, 0, 0, 0}},
		{"not objects", ask + "5\n\"x\"\nnull\n[]\n{}\n", [6]int{1, 0, 1, 0, 0, 5}},
		{"lines run together", ask + strings.TrimSpace(ask) + ask, [6]int{1, 0, 1, 0, 0, 1}},
		{"zeros", ask + strings.Repeat("\x00", 4096) + "\n", [6]int{1, 0, 1, 0, 0, 1}},
		{"no name", strings.Replace(ask, `"name":"Bash",`, "", 1), [6]int{1, 0, 1, 0, 0, 0}},
		{"times that cannot be", strings.Replace(ask, `"type":"assistant"`, `"type":"assistant","timestamp":"99999-01-01"`, 1) +
			strings.Replace(ask, `"type":"assistant"`, `"type":"assistant","timestamp":"0001-01-01T00:00:00Z"`, 1), [6]int{1, 0, 1, 0, 0, 0}},
		{"usage is not an object", strings.Replace(ask, `"id":"m"`, `"id":"m","usage":[1],"model":{}`, 1), [6]int{1, 0, 1, 0, 0, 0}},
		{"counts are odd", strings.Replace(ask, `"id":"m"`, `"id":"m","usage":{"input_tokens":-4,"output_tokens":1e99}`, 1), [6]int{1, 0, 1, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			read := readFile(t, []byte(c.data))
			r := read.Report
			if got := [6]int{r.Calls, r.Results, r.Open, r.OrphanResults, r.Errors, len(r.RefusedLines)}; got != c.want {
				t.Errorf("calls, results, open, orphans, errors, refused = %v, want %v: %v", got, c.want, r.RefusedLines)
			}
			l := newLedger()
			if _, err := read.Import(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			wantCounts(t, factsOf(t, l), r)
			if added := importAll(t, l, []byte(c.data)); added != 0 {
				t.Errorf("importing again adds %d events, want 0", added)
			}
		})
	}
}

// A line without a valid time has the time of the last line with one, in UTC and
// microseconds.
func TestALineWithoutATimeTakesTheLastBefore(t *testing.T) {
	t.Parallel()
	l := newLedger()
	importAll(t, l, []byte(`{"type":"queue-operation","timestamp":"2026-03-01T10:00:00.123456789+02:00"}
{"type":"user","message":{"content":"1"}}
{"type":"user","timestamp":"0001-01-01T00:00:00Z","message":{"content":"2"}}
{"type":"user","timestamp":"soon","message":{"content":"3"}}
`))
	want := time.Date(2026, 3, 1, 8, 0, 0, 123456000, time.UTC)
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !v.Time.Equal(want) {
			t.Errorf("%s happened at %s, want %s", v.Event.Kind(), v.Time, want)
		}
	}
}

// A queued message of the user is a prompt; a queued notification and a file are not.
func TestQueuedPromptIsAPrompt(t *testing.T) {
	t.Parallel()
	l := newLedger()
	importAll(t, l, []byte(`{"type":"attachment","uuid":"1","attachment":{"type":"queued_command","prompt":"and the roses","commandMode":"prompt"}}
{"type":"attachment","uuid":"2","attachment":{"type":"queued_command","prompt":"done","commandMode":"task-notification"}}
{"type":"attachment","uuid":"3","attachment":{"type":"file","prompt":"no"}}
`))
	if got := factsOf(t, l).Prompts; !slices.Equal(got, []string{"and the roses"}) {
		t.Errorf("prompts are %q, want what was queued", got)
	}
}

// A result of several MiB is recorded completely.
func TestALongLineIsReadWhole(t *testing.T) {
	t.Parallel()
	size := repeats(1<<20, 12<<20)
	data := []byte(`{"type":"assistant","uuid":"a","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}
{"type":"user","uuid":"b","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"` + strings.Repeat("x", size) + `"}]}}
`)
	l := newLedger()
	importAll(t, l, data)
	if got := len(settlements(t, l)["c"][0].Content.Text()); got != size {
		t.Errorf("the result has %d bytes, want %d", got, size)
	}
}
