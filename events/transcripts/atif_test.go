package transcripts_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/events/transcripts"
)

// gardenATIF is a document with results with and without the ID of their call, a
// repeated call, a sub-agent and an open call.
const gardenATIF = `{
 "schema_version": "ATIF-v1.7",
 "session_id": "garden",
 "agent": {"name": "gardener", "version": "2", "model_name": "rose-1"},
 "steps": [
  {"step_id": 1, "source": "system", "message": "You garden."},
  {"step_id": 2, "source": "user", "message": "water", "timestamp": "2026-03-01T10:00:00Z"},
  {"step_id": 3, "source": "agent", "message": "", "tool_calls": [{"tool_call_id": "a", "function_name": "water", "arguments": {"n": 1}}]},
  {"step_id": 4, "source": "agent", "message": "I water.", "tool_calls": [{"tool_call_id": "a", "function_name": "water", "arguments": {"n": 1}}],
   "observation": {"results": [{"source_call_id": "a", "content": "wet"}]}},
  {"step_id": 5, "source": "agent", "message": "dig", "tool_calls": [{"tool_call_id": "b", "function_name": "dig", "arguments": {}}, {"tool_call_id": "c", "function_name": "dig", "arguments": {"deep": true}}],
   "observation": {"results": [{"content": "one"}, {"content": [{"type": "text", "text": "two"}]}]}, "metrics": {"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": 4}},
  {"step_id": 6, "source": "agent", "message": "ask", "tool_calls": [{"tool_call_id": "d", "function_name": "ask", "arguments": {}}],
   "observation": {"results": [{"source_call_id": "d", "subagent_trajectory_ref": [{"session_id": "worm", "trajectory_path": "worm.json"}]}]}},
  {"step_id": 7, "source": "agent", "message": "wait", "tool_calls": [{"tool_call_id": "e", "function_name": "wait", "arguments": {}}]},
  {"step_id": 8, "source": "user", "message": "old", "is_copied_context": true}
 ],
 "subagent_trajectories": [{"schema_version": "ATIF-v1.7", "session_id": "worm", "agent": {"name": "worm"}, "steps": [{"source": "user", "message": "crawl"}]}]
}`

// A document has its results by ID and by order, and its sub-agents as sessions.
func TestATIFResults(t *testing.T) {
	t.Parallel()
	r := readAs(t, "atif", []byte(gardenATIF)).Report
	got := fmt.Sprint(r.Records, r.Sessions, *r.Prompts, r.Calls, r.Results, r.ResultsWithoutID, r.Open, r.OrphanResults, r.SubagentCalls, r.Interrupted == nil)
	if want := fmt.Sprint(9, 2, 1, 5, 2, 2, 1, 0, 1, true); got != want {
		t.Errorf("counts = %s, want %s: %+v", got, want, r)
	}
	l := newLedger()
	importAs(t, l, "atif", []byte(gardenATIF))
	f := factsOf(t, l)
	texts := map[string]string{}
	for _, e := range f.Settled {
		texts[string(e.Call)] = e.Content.Text()
	}
	if texts["a"] != "wet" || texts["b"] != "one" || texts["c"] != "two" || len(texts) != 4 {
		t.Errorf("settlements = %v", texts)
	}
	linked := 0
	for _, s := range f.Sessions {
		if !s.Parent.IsZero() {
			linked++
		}
	}
	if linked != 1 {
		t.Errorf("%d sub-agents are linked, want 1", linked)
	}
	var read, wrote int64
	for _, reply := range f.Replies {
		read, wrote = read+reply.Tokens.CacheRead, wrote+reply.Tokens.Input
	}
	if read != 4 || wrote != 6 {
		t.Errorf("tokens = %d cached, %d input, want 4, 6", read, wrote)
	}
}

// Every torn beginning of a document, and then the document, gives the content of one
// import.
func TestATIFGrows(t *testing.T) {
	t.Parallel()
	whole := newLedger()
	importAs(t, whole, "atif", []byte(gardenATIF))
	want := factsOf(t, whole)
	grown := newLedger()
	for n := strings.Index(gardenATIF, "agent"); n < len(gardenATIF); n += repeats(151, 17) {
		torn := readAs(t, "atif", []byte(gardenATIF[:n]))
		if len(torn.Report.RefusedLines) != 1 || !strings.HasPrefix(torn.Report.RefusedLines[0].Reason, "torn") {
			t.Fatalf("refused = %v, want the torn step", torn.Report.RefusedLines)
		}
		importAs(t, grown, "atif", []byte(gardenATIF[:n]))
	}
	importAs(t, grown, "atif", []byte(gardenATIF))
	if added := importAs(t, grown, "atif", []byte(gardenATIF)); added != 0 {
		t.Errorf("importing again adds %d events", added)
	}
	sameFacts(t, "after torn prefixes", want, factsOf(t, grown))
}

// Redacted documents of two sessions with one session_id are two sessions; a document
// that repeats the steps of another adds only its own.
func TestATIFSessionIDIsNoProof(t *testing.T) {
	t.Parallel()
	document := func(steps ...string) []byte {
		return []byte(`{"schema_version":"ATIF-v1.5","session_id":"REDACTED","agent":{"name":"a"},"steps":[` + strings.Join(steps, ",") + `]}`)
	}
	one, two, three := `{"source":"user","message":"one"}`, `{"source":"user","message":"two"}`, `{"source":"user","message":"three"}`
	l := newLedger()
	importAs(t, l, "atif", document(one, two))
	importAs(t, l, "atif", document(two))
	importAs(t, l, "atif", document(one, two, three))
	f := factsOf(t, l)
	if len(f.Sessions) != 2 || len(f.Prompts) != 4 {
		t.Errorf("%d sessions with the prompts %q, want 2 with 4", len(f.Sessions), f.Prompts)
	}
}

// A document of a later major version is an ErrNewer that says which version is known,
// and one of another format an ErrForeign.
func TestATIFVersions(t *testing.T) {
	t.Parallel()
	_, err := transcripts.Read("atif", "x.json", strings.NewReader(`{"schema_version":"ATIF-v2.0","session_id":"s","steps":[]}`))
	if !errors.Is(err, transcripts.ErrNewer) || !strings.Contains(err.Error(), "ATIF-v1.8") {
		t.Errorf("Read = %v, want ErrNewer with the known version", err)
	}
	if r := readAs(t, "atif", []byte(`{"schema_version":"ATIF-v1.9","session_id":"s","steps":[{"source":"user","message":"x"}]}`)).Report; r.Records != 1 || len(r.Ignored) == 0 {
		t.Errorf("report = %+v, want the step and a note of the version", r)
	}
	for _, foreign := range []string{`{"type":"session_meta","payload":{}}`, `[]`, `x`, "\x00\x01", strings.Repeat("[", 100_000), `{"steps":[1,2]}`, "\xff"} {
		if _, err := transcripts.Read("atif", "x.json", strings.NewReader(foreign)); !errors.Is(err, transcripts.ErrForeign) {
			t.Errorf("Read(%.20q) = %v, want ErrForeign", foreign, err)
		}
	}
}

// FuzzATIF: no document makes the reader panic, and importing it again adds nothing.
func FuzzATIF(f *testing.F) {
	f.Add([]byte(gardenATIF))
	fuzzFormat(f, "atif")
}
