package transcripts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/transcripts"
)

// codexFile returns a file of Codex with one record a second from lines of the form
// "TYPE PAYLOAD".
func codexFile(lines ...string) []byte {
	var all strings.Builder
	for i, line := range lines {
		kind, payload, _ := strings.Cut(line, " ")
		fmt.Fprintf(&all, `{"timestamp":"2026-03-01T10:00:%02d.5Z","type":"%s","payload":%s}`+"\n", i, kind, payload)
	}
	return []byte(all.String())
}

// gardenCodex is a session with a prompt in both forms, calls that end in several
// ways, and an interruption.
func gardenCodex() []byte {
	return codexFile(
		`session_meta {"id":"garden","cwd":"/garden","cli_version":"0.130.0","git":{"branch":"main"},"source":"cli"}`,
		`turn_context {"turn_id":"t1","cwd":"/garden","model":"rose-1","approval_policy":"on-request","sandbox_policy":{"mode":"workspace-write"}}`,
		`response_item {"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>here</environment_context>"}]}`,
		`response_item {"type":"message","role":"user","content":[{"type":"input_text","text":"water the roses"}]}`,
		`event_msg {"type":"user_message","message":"water the roses"}`,
		`event_msg {"type":"agent_message","message":"I water them."}`,
		`response_item {"type":"message","role":"assistant","content":[{"type":"output_text","text":"I water them."}]}`,
		`response_item {"type":"function_call","name":"shell","arguments":"{\"command\":[\"water\"]}","call_id":"c1"}`,
		`response_item {"type":"function_call","name":"shell","arguments":"{\"command\":[\"dig\"]}","call_id":"c2"}`,
		`event_msg {"type":"exec_command_end","call_id":"c2","exit_code":2,"aggregated_output":"no spade"}`,
		`event_msg {"type":"token_count","info":{"total_token_usage":{"input_tokens":100,"cached_input_tokens":60,"output_tokens":7},"last_token_usage":{"input_tokens":100,"cached_input_tokens":60,"output_tokens":7}}}`,
		`event_msg {"type":"token_count","info":{"total_token_usage":{"input_tokens":100,"cached_input_tokens":60,"output_tokens":7},"last_token_usage":{"input_tokens":100,"cached_input_tokens":60,"output_tokens":7}}}`,
		`response_item {"type":"function_call_output","call_id":"c1","output":"{\"output\":\"wet\",\"metadata\":{\"exit_code\":0}}"}`,
		`response_item {"type":"function_call_output","call_id":"c2","output":"no spade"}`,
		`response_item {"type":"custom_tool_call","name":"apply_patch","input":"*** Begin Patch","call_id":"c3","status":"completed"}`,
		`response_item {"type":"custom_tool_call_output","call_id":"c3","output":"patch rejected by user"}`,
		`response_item {"type":"function_call","name":"shell","arguments":"{\"command\":[\"prune\"]}","call_id":"c4"}`,
		`response_item {"type":"function_call_output","call_id":"c4","output":"Chunk ID: 1\nProcess exited with code 1\nOutput:\nblunt"}`,
		`response_item {"type":"function_call","name":"shell","arguments":"{\"command\":[\"weed\"]}","call_id":"c5"}`,
		`future_record {"x":1}`,
		`event_msg {"type":"turn_aborted","reason":"interrupted"}`,
	)
}

// A session of Codex has its prompts and tokens once, and its outcomes as the format
// gives them.
func TestCodexOutcomes(t *testing.T) {
	t.Parallel()
	data := gardenCodex()
	r := readAs(t, "codex", data).Report
	got := fmt.Sprint(r.Records, r.Sessions, *r.Prompts, r.Calls, r.Results, r.Open, r.Errors, r.ErrorsText, *r.Interrupted, r.Ignored["future_record"])
	if want := fmt.Sprint(21, 1, 1, 5, 4, 1, 1, 1, 1, 1); got != want {
		t.Errorf("counts = %s, want %s", got, want)
	}
	l := newLedger()
	importAs(t, l, "codex", data)
	f := factsOf(t, l)
	outcomes := map[string]string{}
	for k, e := range f.Settled {
		outcomes[string(e.Call)] = fmt.Sprint(e.Outcome, " ", e.Began)
		_ = k
	}
	want := map[string]string{
		"c1": fmt.Sprint(domain.Succeeded, " true"), "c2": fmt.Sprint(domain.Failed, " true"),
		"c3": fmt.Sprint(domain.DeclinedByUser, " false"), "c4": fmt.Sprint(domain.Failed, " true"),
	}
	if fmt.Sprint(outcomes) != fmt.Sprint(want) {
		t.Errorf("outcomes = %v, want %v", outcomes, want)
	}
	var input, output, cached int64
	for _, reply := range f.Replies {
		input, output, cached = input+reply.Tokens.Input, output+reply.Tokens.Output, cached+reply.Tokens.CacheRead
	}
	if input != 40 || output != 7 || cached != 60 {
		t.Errorf("tokens = %d, %d, %d cached, want 40, 7, 60", input, output, cached)
	}
	for _, s := range f.Sessions {
		if s.Location != "/garden" || s.Model != "rose-1" {
			t.Errorf("session = %+v, want its location and model", s)
		}
	}
	text := fmt.Sprint(f.Around)
	for _, want := range []string{"on-request", "workspace-write", "0.130.0", "environment_context"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log lacks %s", want)
		}
	}
}

// A file of Codex, imported while it grows, gives the content of one import, also if
// it is torn within a record.
func TestCodexGrows(t *testing.T) {
	t.Parallel()
	data := gardenCodex()
	growAs(t, "codex", data, 1)
	whole, torn := newLedger(), newLedger()
	importAs(t, whole, "codex", data)
	for n := 0; n < len(data); n += repeats(97, 13) {
		importAs(t, torn, "codex", data[:n])
	}
	importAs(t, torn, "codex", data)
	sameFacts(t, "after torn prefixes", factsOf(t, whole), factsOf(t, torn))
}

// A fork repeats the history of the session that it continues: it is not counted
// again.
func TestCodexForkIgnoresTheHistory(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	add := func(ms int, kind, payload string) {
		fmt.Fprintf(&all, `{"timestamp":"2026-03-01T10:00:%02d.%03dZ","type":"%s","payload":%s}`+"\n", ms/1000, ms%1000, kind, payload)
	}
	add(0, "session_meta", `{"id":"fork","forked_from_id":"root","timestamp":"2026-03-01T10:00:00Z","cwd":"/g"}`)
	add(1, "session_meta", `{"id":"root","timestamp":"2026-03-01T09:00:00Z","cwd":"/g"}`)
	add(2, "event_msg", `{"type":"task_started","turn_id":"a","started_at":1772355600}`)
	add(3, "event_msg", `{"type":"user_message","message":"old"}`)
	add(4, "response_item", `{"type":"function_call","name":"shell","arguments":"{}","call_id":"old"}`)
	add(900, "event_msg", `{"type":"task_started","turn_id":"b","started_at":1772359201}`)
	add(901, "event_msg", `{"type":"user_message","message":"new"}`)
	add(902, "response_item", `{"type":"function_call","name":"shell","arguments":"{}","call_id":"new"}`)
	l := newLedger()
	importAs(t, l, "codex", []byte(all.String()))
	f := factsOf(t, l)
	if len(f.Asked) != 1 || len(f.Prompts) != 1 || f.Prompts[0] != "new" || !strings.Contains(fmt.Sprint(f.Around), "root") {
		t.Errorf("calls %v, prompts %q, want those of the fork alone, and what it continues", f.Asked, f.Prompts)
	}
}

// A sub-agent of Codex is linked to its call in either order of the files, also by
// another importer.
func TestCodexSubAgentFindsItsCall(t *testing.T) {
	t.Parallel()
	parent := codexFile(
		`session_meta {"id":"root","cwd":"/g"}`,
		`event_msg {"type":"user_message","message":"map it"}`,
		`response_item {"type":"function_call","name":"spawn_agent","arguments":"{\"message\":\"map\"}","call_id":"s1"}`,
		`response_item {"type":"function_call_output","call_id":"s1","output":"{\"agent_id\":\"child\"}"}`,
	)
	child := codexFile(
		`session_meta {"id":"child","cwd":"/g","source":{"subagent":{"thread_spawn":{"parent_thread_id":"root","agent_role":"explorer"}}}}`,
		`event_msg {"type":"user_message","message":"map"}`,
		`event_msg {"type":"agent_message","message":"mapped"}`,
	)
	for _, order := range [][][]byte{{parent, child}, {child, parent}} {
		l := newLedger()
		for _, data := range order {
			importAs(t, l, "codex", data)
		}
		f := factsOf(t, l)
		root := readAs(t, "codex", parent).Session
		for id, s := range f.Sessions {
			if id != root && s.Parent != root {
				t.Errorf("the sub-agent has the parent %s, want %s", s.Parent, root)
			}
		}
		if len(f.Sessions) != 2 {
			t.Errorf("%d sessions, want 2", len(f.Sessions))
		}
		for _, data := range order {
			if added := importAs(t, l, "codex", data); added != 0 {
				t.Errorf("importing again adds %d events", added)
			}
		}
	}
	if r := readAs(t, "codex", child).Report; *r.Prompts != 0 {
		t.Errorf("%d prompts of a person, want 0", *r.Prompts)
	}
}

// A call that only events show is recorded with its end.
func TestCodexCallsOfEventsAlone(t *testing.T) {
	t.Parallel()
	r := readAs(t, "codex", codexFile(
		`session_meta {"id":"old","cwd":"/g"}`,
		`event_msg {"type":"exec_command_begin","call_id":"e1","command":["ls"]}`,
		`event_msg {"type":"exec_command_end","call_id":"e1","exit_code":1,"stdout":"","stderr":"no"}`,
		`event_msg {"type":"mcp_tool_call_begin","call_id":"e2","invocation":{"server":"s","tool":"t","arguments":{}}}`,
	)).Report
	if r.Calls != 2 || r.Results != 1 || r.Errors != 1 || r.Open != 1 {
		t.Errorf("report = %+v, want 2 calls, 1 result, which is an error, and 1 open", r)
	}
}

// FuzzCodex: no file makes the reader panic, and importing a file again adds nothing.
func FuzzCodex(f *testing.F) {
	f.Add(gardenCodex())
	f.Add([]byte(`{"id":"x","timestamp":"2026-03-01T10:00:00Z"}` + "\n" + `{"type":"function_call","call_id":"a","name":"b"}`))
	fuzzFormat(f, "codex")
}

// fuzzFormat imports each input twice.
func fuzzFormat(f *testing.F, format string) {
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := transcripts.Read(format, "x", strings.NewReader(string(data)))
		if err != nil {
			return
		}
		l := newLedger()
		if _, err := read.Import(t.Context(), l); err != nil {
			t.Fatalf("Import = %v", err)
		}
		if added := importAs(t, l, format, data); added != 0 {
			t.Fatalf("importing again adds %d events, want 0", added)
		}
	})
}
