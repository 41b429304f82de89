package transcripts_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/transcripts"
)

// eventsOf returns the events of one type in a ledger, in log order.
func eventsOf[E events.Event](t *testing.T, l *events.Ledger) (all []E) {
	t.Helper()
	for v, err := range l.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(E); ok {
			all = append(all, e)
		}
	}
	return all
}

// imported returns a ledger into which one file was imported twice. The second import
// must add no event.
func imported(t *testing.T, rows ...string) *events.Ledger {
	t.Helper()
	l := newLedger()
	data := []byte(strings.Join(rows, "\n") + "\n")
	importAll(t, l, data)
	if added := importAll(t, l, data); added != 0 {
		t.Errorf("importing again adds %d events, want 0", added)
	}
	return l
}

// A prompt, and a call of a session that has begun with it.
const (
	said  = `{"type":"user","uuid":"1","sessionId":"s","timestamp":"2026-03-01T10:00:00Z","message":{"content":"go"}}`
	asked = `{"type":"assistant","uuid":"2","sessionId":"s","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}`
)

// Text that the program wrote, between tags, with a flag or with another origin, is a
// context or a command; only the rest is a prompt.
func TestWhatTheProgramSaysIsNoPrompt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		content, beside string
		prompt          string
		context         []string // each a source and a text
		ran             []events.CommandRan
	}{
		{"mend it", "", "mend it", nil, nil},
		{"use <b> and <command-name> in it", "", "use <b> and <command-name> in it", nil, nil},
		{"<task-notification>\n<task-id>7</task-id>\n</task-notification>", "", "", []string{"notification <task-id>7</task-id>"}, nil},
		{"<command-message>compact</command-message>\n<command-name>/compact</command-name>\n<command-args>short</command-args>", "", "", nil,
			[]events.CommandRan{{By: "user", Name: "/compact", Command: "short"}}},
		{"<command-name>/clear</command-name>\n <command-message>clear</command-message>\n <command-args></command-args>", "", "", nil,
			[]events.CommandRan{{By: "user", Name: "/clear"}}},
		{"<bash-input>ls -l</bash-input>", "", "", nil, []events.CommandRan{{By: "user", Name: "bash", Command: "ls -l"}}},
		{"<bash-stdout>a\nb</bash-stdout><bash-stderr></bash-stderr>", "", "", []string{"command_output a\nb"}, nil},
		{"<local-command-stdout>done</local-command-stdout>", "", "", []string{"command_output done"}, nil},
		{"<local-command-stdout>never closed", "", "", []string{"command_output never closed"}, nil},
		{"<system-reminder>be kind</system-reminder>", "", "", []string{"reminder be kind"}, nil},
		{"<system-reminder>be kind</system-reminder>\nmend it", "", "mend it", []string{"reminder be kind"}, nil},
		{"mend it\n<system-reminder>be kind</system-reminder>\n", "", "mend it", []string{"reminder be kind"}, nil},
		{`<teammate-message from="x" id="1">hi</teammate-message>`, "", "", []string{"notification hi"}, nil},
		{"<ide_opened_file>a.go</ide_opened_file>what is this?", "", "what is this?", []string{"program a.go"}, nil},
		{"Caveat: what follows", `"isMeta":true,`, "", []string{"program Caveat: what follows"}, nil},
		{"Stop hook feedback:\nrun the tests", `"isMeta":true,`, "", []string{"hook Stop hook feedback:\nrun the tests"}, nil},
		{"So far we mended", `"isCompactSummary":true,`, "", []string{"summary So far we mended"}, nil},
		{"a task ended", `"origin":{"kind":"task-notification"},`, "", []string{"notification a task ended"}, nil},
		{"mend it", `"origin":{"kind":"human"},`, "mend it", nil, nil},
	} {
		l := imported(t, said, fmt.Sprintf(`{"type":"user","uuid":"3","sessionId":"s",%s"message":{"content":%q}}`, c.beside, c.content))
		var prompts, context []string
		for _, p := range eventsOf[events.PromptAdmitted](t, l)[1:] {
			prompts = append(prompts, p.Text)
		}
		for _, e := range eventsOf[events.ContextAdded](t, l) {
			context = append(context, e.Source+" "+e.Text)
		}
		if got := strings.Join(prompts, "|"); got != c.prompt || !slices.Equal(context, c.context) || !slices.Equal(eventsOf[events.CommandRan](t, l), c.ran) {
			t.Errorf("%q: prompt %q, context %q, commands %+v, want %q, %q, %+v", c.content, got, context, eventsOf[events.CommandRan](t, l), c.prompt, c.context, c.ran)
		}
	}
}

// Settings, hooks, errors of the provider, compactions, outputs of commands and
// thinking are recorded, and a hook before a call does not begin the call.
func TestContextAndCommandsAreRecorded(t *testing.T) {
	t.Parallel()
	l := imported(t,
		`{"type":"permission-mode","permissionMode":"default","sessionId":"s"}`,
		`{"type":"attachment","sessionId":"s","uuid":"h0","attachment":{"type":"hook_success","hookName":"SessionStart:startup","hookEvent":"SessionStart","command":"warm up","stdout":"warm"}}`,
		`{"type":"user","uuid":"1","sessionId":"s","timestamp":"2026-03-01T10:00:00Z","cwd":"/w","version":"2.1.0","gitBranch":"main","permissionMode":"default","message":{"content":"go"}}`,
		`{"type":"assistant","uuid":"2","sessionId":"s","cwd":"/w","version":"2.1.0","gitBranch":"main","message":{"id":"m","model":"big","content":[{"type":"thinking","thinking":"which?","signature":"x"}]}}`,
		`{"type":"assistant","uuid":"3","sessionId":"s","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}`,
		`{"type":"progress","uuid":"4","sessionId":"s","parentToolUseID":"c","toolUseID":"c","data":{"type":"hook_progress","hookEvent":"PreToolUse","hookName":"PreToolUse:Bash","command":"check"}}`,
		`{"type":"attachment","uuid":"5","sessionId":"s","attachment":{"type":"hook_blocking_error","hookName":"PreToolUse:Bash","toolUseID":"c","blockingError":{"blockingError":"no rm","command":"guard"}}}`,
		`{"type":"permission-mode","permissionMode":"bypassPermissions","sessionId":"s"}`,
		`{"type":"user","uuid":"6","sessionId":"s","gitBranch":"try","version":"2.1.0","permissionMode":"bypassPermissions","cwd":"/w/sub","message":{"content":"on"}}`,
		`{"type":"system","subtype":"api_error","uuid":"7","sessionId":"s","error":{"status":529,"error":{"type":"error","error":{"message":"Overloaded"}}},"retryAttempt":2}`,
		`{"type":"assistant","uuid":"8","sessionId":"s","isApiErrorMessage":true,"message":{"id":"x","model":"<synthetic>","content":[{"type":"text","text":"API Error: 500"}]}}`,
		`{"type":"system","subtype":"compact_boundary","uuid":"9","sessionId":"s","compactMetadata":{"trigger":"auto","preTokens":160000,"postTokens":9000}}`,
		`{"type":"system","subtype":"local_command","uuid":"10","sessionId":"s","content":"<local-command-stdout>shown</local-command-stdout>"}`,
		`{"type":"system","subtype":"stop_hook_summary","uuid":"11","sessionId":"s","hookInfos":[{"command":"lint"},{"command":"test"}]}`,
		`{"type":"file-history-snapshot","messageId":"x"}`, `{"type":"file-history-snapshot","messageId":"y"}`, `{"type":"attachment","uuid":"12","attachment":{"type":"skill_listing"}}`,
	)
	var settings []string
	for _, e := range eventsOf[events.SettingChanged](t, l) {
		settings = append(settings, e.Setting+" "+e.Value)
	}
	if want := []string{"permission_mode default", "program_version 2.1.0", "git_branch main", "permission_mode bypassPermissions", "location /w/sub", "git_branch try"}; !slices.Equal(settings, want) {
		t.Errorf("settings are %q, want %q", settings, want)
	}
	if diff := cmp.Diff([]events.CommandRan{
		{By: "hook", Name: "SessionStart:startup", Command: "warm up", Outcome: "success", Output: "warm"},
		{By: "hook", Name: "PreToolUse:Bash", Command: "check", Call: "c"},
		{By: "hook", Name: "PreToolUse:Bash", Command: "guard", Call: "c", Outcome: "blocked", Output: "no rm"},
		{By: "hook", Name: "Stop", Command: "lint"}, {By: "hook", Name: "Stop", Command: "test"},
	}, eventsOf[events.CommandRan](t, l)); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	if got, want := eventsOf[events.ProviderFailed](t, l), []events.ProviderFailed{{Detail: "Overloaded", Status: 529, Attempt: 2}, {Detail: "API Error: 500"}}; !slices.Equal(got, want) {
		t.Errorf("failed requests are %+v, want %+v", got, want)
	}
	if got := eventsOf[events.ContextCompacted](t, l); len(got) != 1 || got[0].Trigger != "auto" || got[0].Before != 160000 || got[0].After != 9000 {
		t.Errorf("compactions are %+v", got)
	}
	if got := eventsOf[events.ContextAdded](t, l); len(got) != 1 || got[0].Source != "command_output" || got[0].Text != "shown" {
		t.Errorf("context is %+v, want the output of the command", got)
	}
	if got := eventsOf[events.ReplyReceived](t, l); len(got) != 1 || got[0].Thinking != "which?" {
		t.Errorf("replies are %+v, want one with its thinking", got)
	}
	for _, e := range eventsOf[events.CallStarted](t, l) {
		t.Errorf("%s began, and only hooks before it ran", e.Call)
	}
}

// The report counts ignored records by kind: at most 100 kinds, and the others
// together.
func TestIgnoredRecordsAreCounted(t *testing.T) {
	t.Parallel()
	r := readFile(t, []byte(strings.Join([]string{
		said, said, `{"type":"summary","summary":"x"}`, `{"type":"summary","summary":"y"}`, `{"type":"novelty"}`,
		`{"type":"attachment","attachment":{"type":"skill_listing"}}`, `{"type":"system","subtype":"turn_duration"}`,
		`{"type":"progress","data":{"type":"bash_progress"}}`,
		`{"type":"assistant","message":{"id":"m","content":[{"type":"thinking","thinking":""},{"type":"redacted_thinking","data":"x"},{"type":"server_tool_use","id":"y"}]}}`,
		`{"type":"system","subtype":"api_error","sessionId":"silent","error":{}}`,
	}, "\n"))).Report
	if diff := cmp.Diff(map[string]int{
		"repeated record": 1, "summary": 2, "novelty": 1, "attachment/skill_listing": 1, "system/turn_duration": 1, "progress/bash_progress": 1,
		"block/thinking without a text": 1, "block/redacted_thinking": 1, "block/server_tool_use": 1, "api error": 1,
	}, r.Ignored); diff != "" {
		t.Errorf("ignored (-want +got):\n%s", diff)
	}
	var many strings.Builder
	for i := range 500 {
		fmt.Fprintf(&many, `{"type":"novelty %d %s"}`+"\n", i, strings.Repeat("x", 500))
	}
	many.WriteString(said)
	if ignored := readFile(t, []byte(many.String())).Report.Ignored; len(ignored) > 101 || ignored["other"] != 400 {
		t.Errorf("%d kinds are counted apart and %d as others, want 101 and 400", len(ignored), ignored["other"])
	}
}

// The images of a prompt are recorded within the limit, and the report lists each
// image over it.
func TestImagesOfAPromptAreOnRecord(t *testing.T) {
	t.Parallel()
	image := func(size int) string {
		return `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + base64.StdEncoding.EncodeToString(make([]byte, size)) + `"}}`
	}
	l := newLedger()
	read := readFile(t, []byte(`{"type":"user","uuid":"1","sessionId":"s","message":{"content":[{"type":"text","text":"draw it"},`+image(3)+`,`+image(4<<20)+`]}}`))
	if _, err := read.Import(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	got := eventsOf[events.PromptAdmitted](t, l)
	if len(got) != 1 || got[0].Text != "draw it\n[image image/png]\n[image image/png]" || len(got[0].Media) != 1 || len(got[0].Media.Media()[0].Data) != 3 {
		t.Errorf("the prompt is %.80q with %d media, want its text and the small image", got[0].Text, len(got[0].Media))
	}
	if cut := read.Report.Cut; len(cut) != 1 || !strings.Contains(cut[0].Reason, "4194304 bytes is not kept") {
		t.Errorf("cut are %v, want the large image", cut)
	}
}

// A text over the limit of an event is cut and reported, other texts are not, and no
// record exceeds 15 MiB.
func TestTextOverTheLimitCutsNoOtherText(t *testing.T) {
	t.Parallel()
	long := "x" + strings.Repeat("\u2028", 2_500_000) // twice as long in JSON
	texts := map[string][]string{
		"result": {asked, `{"type":"user","uuid":"3","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"` + long + `"}]}}`},
	}
	if repeats(1, 2) == 2 {
		texts["context"] = []string{asked, `{"type":"user","uuid":"3","sessionId":"s","isMeta":true,"message":{"content":"` + long + `"}}`}
		texts["prompt"] = []string{asked, `{"type":"user","uuid":"3","sessionId":"s","message":{"content":"` + long + `"}}`}
		texts["reply"] = []string{asked, `{"type":"assistant","uuid":"3","sessionId":"s","message":{"id":"m","content":"` + long + `"}}`}
		texts["input"] = []string{strings.Replace(asked, `"input":{}`, `"input":{"a":"`+long+`"}`, 1)}
	}
	for name, rows := range texts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := []byte(strings.Join(append([]string{said}, rows...), "\n"))
			l := newLedger()
			read := readFile(t, data)
			if _, err := read.Import(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			if len(read.Report.Cut) != 1 || len(read.Report.RefusedLines) != 0 {
				t.Errorf("cut %v, refused %v, want one text cut", read.Report.Cut, read.Report.RefusedLines)
			}
			for e, err := range l.Entries(t.Context(), events.Position{}) {
				if err != nil {
					t.Fatal(err)
				}
				if len(e.Data) > 15<<20 {
					t.Errorf("%s has %d bytes", e.Kind, len(e.Data))
				}
			}
			if added := importAll(t, l, data); added != 0 {
				t.Errorf("importing again adds %d events, want 0", added)
			}
			wantCounts(t, factsOf(t, l), read.Report)
		})
	}
}

// The report lists the cut output of a hook and the cut message of an error by their
// lines.
func TestAHookOrProviderErrorThatIsCutIsReported(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60_000)
	r := readFile(t, []byte(strings.Join([]string{
		said,
		`{"type":"attachment","sessionId":"s","uuid":"2","attachment":{"type":"hook_success","hookEvent":"Stop","command":"x","stdout":"` + long + `"}}`,
		`{"type":"system","subtype":"api_error","sessionId":"s","uuid":"3","error":{"error":{"message":"` + long + `"}}}`,
		`{"type":"assistant","sessionId":"s","uuid":"4","isApiErrorMessage":true,"message":{"id":"m","content":"` + long + `"}}`,
	}, "\n"))).Report
	if diff := cmp.Diff([]transcripts.RefusedLine{
		{Line: 2, Reason: "output of a hook: 51200 of 60000 bytes are kept"},
		{Line: 3, Reason: "api error: 51200 of 60000 bytes are kept"},
		{Line: 4, Reason: "api error: 51200 of 60000 bytes are kept"},
	}, r.Cut); diff != "" {
		t.Errorf("cut (-want +got):\n%s", diff)
	}
}

// The model and the location that an opening on record lacks are recorded once a
// longer file has them.
func TestAnOpeningLearnsMissingSettings(t *testing.T) {
	t.Parallel()
	rows := []string{said, `{"type":"user","uuid":"2","sessionId":"s","cwd":"/w","message":{"content":"on"}}`,
		`{"type":"assistant","uuid":"3","sessionId":"s","cwd":"/v","message":{"id":"m","model":"big","content":"yes"}}`}
	l := newLedger()
	for n := range rows {
		importAll(t, l, []byte(strings.Join(rows[:n+1], "\n")))
	}
	for _, s := range factsOf(t, l).Sessions {
		if s.Model != "big" || s.Location != "/w" {
			t.Errorf("the session is of model %q in %q, want big and /w", s.Model, s.Location)
		}
	}
	if added := importAll(t, l, []byte(strings.Join(rows, "\n"))); added != 0 {
		t.Errorf("importing again adds %d events, want 0", added)
	}
}

// The lines of a resumed and of a forked session belong to the sessions that they
// name, in any order of the files, and each continuation is recorded.
func TestEachLineBelongsToTheSessionThatItNames(t *testing.T) {
	t.Parallel()
	history := said + "\n" + asked + "\n"
	rest := `{"type":"user","uuid":"9","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}}` + "\n"
	resumed := history + `{"type":"user","uuid":"10","sessionId":"r","timestamp":"2026-03-02T10:00:00Z","message":{"content":"and on"}}
{"type":"assistant","uuid":"11","sessionId":"r","message":{"id":"n","content":[{"type":"tool_use","id":"d","name":"Read"}]}}
`
	forked := `{"type":"user","uuid":"f1","sessionId":"f","timestamp":"2026-03-01T10:00:00Z","forkedFrom":{"sessionId":"s","messageUuid":"1"},"message":{"content":"go"}}
{"type":"assistant","uuid":"f2","sessionId":"f","forkedFrom":{"sessionId":"s","messageUuid":"2"},"message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]}}
{"type":"user","uuid":"f3","sessionId":"f","timestamp":"2026-03-03T10:00:00Z","message":{"content":"otherwise"}}
`
	for _, files := range [][]string{{history + rest, resumed, forked}, {forked, resumed, history + rest}, {resumed, history + rest, forked}} {
		l := newLedger()
		for range 2 {
			for _, data := range files {
				importAll(t, l, []byte(data))
			}
		}
		f := factsOf(t, l)
		if len(f.Sessions) != 3 || len(f.Asked) != 2 || len(f.Settled) != 1 || f.Late != 0 {
			t.Errorf("%d sessions, %d calls, %d settled, %d late, want 3, 2, 1 and none", len(f.Sessions), len(f.Asked), len(f.Settled), f.Late)
		}
		slices.Sort(f.Prompts)
		if want := []string{"and on", "go", "otherwise"}; !slices.Equal(f.Prompts, want) {
			t.Errorf("prompts are %q, want %q", f.Prompts, want)
		}
		var on []string
		for _, e := range eventsOf[events.SettingChanged](t, l) {
			on = append(on, e.Setting+" "+e.Value)
		}
		if !slices.Equal(on, []string{"continues s", "continues s"}) {
			t.Errorf("settings are %q, want two sessions that continue s", on)
		}
	}
	if r := readFile(t, []byte(resumed)); len(r.Sessions()) != 2 || r.Session != r.Sessions()[1] {
		t.Errorf("the resumed file is of %v among %v, want the last that it begins", r.Session, r.Sessions())
	}
}

// A call that progress shows as running is not recorded as declined or invalid, even
// if the text of its result says so.
func TestWhatBeganWasNotRefused(t *testing.T) {
	t.Parallel()
	runs := `{"type":"progress","sessionId":"s","uuid":"p","parentToolUseID":"c","data":{"type":"bash_progress"}}`
	for _, c := range []struct {
		text    string
		outcome domain.Outcome
		by      domain.Interruption
	}{
		{"The user doesn't want to proceed with this tool use. The tool use was rejected", domain.Interrupted, domain.ByUser},
		{"[Request interrupted by user for tool use]", domain.Interrupted, domain.ByUser},
		{"Command timed out after 2m 0.0s", domain.Interrupted, domain.ByDeadline},
		{"<tool_use_error>File has not been read yet</tool_use_error>", domain.Failed, 0},
		{"Permission to use Bash has been denied.", domain.DeniedByRule, 0},
	} {
		l := imported(t, said, asked, runs, fmt.Sprintf(`{"type":"user","uuid":"3","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","is_error":true,"content":%q}]}}`, c.text))
		got := settlements(t, l)["c"]
		if len(got) != 1 || got[0].Outcome != c.outcome || got[0].Interruption != c.by || !got[0].Began {
			t.Errorf("%q after progress settles %+v, want %v by %v, begun", c.text, got, c.outcome, c.by)
		}
		factsOf(t, l) // checks that the start is on record
	}
}

// A call on record as started ends as begun, even if a later file does not show its
// progress.
func TestAStartOnRecordOutlivesAFileWithoutIt(t *testing.T) {
	t.Parallel()
	l := newLedger()
	importAll(t, l, []byte(said+"\n"+asked+"\n"+`{"type":"progress","sessionId":"s","uuid":"p","parentToolUseID":"c","data":{"type":"bash_progress"}}`))
	importAll(t, l, []byte(said+"\n"+asked+"\n"+`{"type":"user","uuid":"3","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","is_error":true,"content":"User rejected tool use"}]}}`))
	if got := settlements(t, l)["c"]; len(got) != 1 || got[0].Outcome != domain.Interrupted || !got[0].Began {
		t.Errorf("the call settles %+v, want interrupted and begun", got)
	}
	factsOf(t, l)
}

// The error of a foreign file names the format that the file resembles.
func TestForeignFormatIsNamedInTheError(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"timestamp":"x","type":"session_meta","payload":{"id":"x"}}`:      "Codex",
		"{\n  \"schema_version\": \"ATIF-v1.2\",\n  \"steps\": []\n}\n":     "ATIF",
		`{"type":"tool","tool":"bash","callID":"1","sessionID":"x"}`:        "opencode",
		`{"type":"user","message":{"role":"user","parts":[{"text":"hi"}]}}`: "Gemini",
		"SQLite format 3\x00": "opencode",
	} {
		_, err := transcripts.ReadClaudeCode("x", strings.NewReader(data))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "formats that are known: claude-code") {
			t.Errorf("ReadClaudeCode(%.30q) = %v, want an error that says %s", data, err, want)
		}
	}
}
