package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// modelKey is the key of the model servers of these tests. Nothing may record it.
const modelKey = "sk-test-model-0123456789"

// A modelStep is a reply of a model: a text, and calls with an ID, a name and an input.
type modelStep struct {
	text  string
	calls [][3]string
}

// A modelFormat is a provider with a server of its wire format.
type modelFormat struct {
	name  string
	flags []string
	start func(answer func(providerstest.ModelRequest) providerstest.ModelAnswer) *providerstest.ModelServer
	// stream returns a reply as a stream.
	stream func(modelStep) []string
}

// modelFormats are all wire formats.
func modelFormats() []modelFormat {
	openai := func(s modelStep) (r providerstest.OpenAIReply) {
		r.Text = s.text
		for _, c := range s.calls {
			r.Calls = append(r.Calls, providerstest.OpenAICall{ID: c[0], Name: c[1], Arguments: c[2]})
		}
		return r
	}
	return []modelFormat{
		{"anthropic", []string{"--model", "anthropic/m-1"}, providerstest.NewAnthropicServer, func(s modelStep) []string {
			r := providerstest.AnthropicReply{Text: s.text}
			for _, c := range s.calls {
				r.Calls = append(r.Calls, providerstest.AnthropicCall{ID: c[0], Name: c[1], Input: c[2]})
			}
			return providerstest.AnthropicStream("m-1", r)
		}},
		{"chat", []string{"--model", "openai/m-1", "--api", "chat"}, providerstest.NewOpenAIServer, func(s modelStep) []string { return providerstest.OpenAIChatStream("m-1", openai(s)) }},
		{"responses", []string{"--model", "openai/m-1", "--api", "responses"}, providerstest.NewOpenAIServer, func(s modelStep) []string { return providerstest.OpenAIResponsesStream("m-1", openai(s)) }},
	}
}

// A modelRun runs the command against a model server, in a store and a workspace of its
// own.
type modelRun struct {
	*testing.T
	format           modelFormat
	server           *providerstest.ModelServer
	store, workspace string
}

// newModelRun starts a server that gives the answers in order, and the last one again and
// again. The server must see no invalid request.
func newModelRun(t *testing.T, format modelFormat, answers ...providerstest.ModelAnswer) modelRun {
	t.Helper()
	return newAnsweredRun(t, format, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
		return answers[min(r.Number, len(answers)-1)]
	})
}

// newAnsweredRun starts a server that gives the answers of a function. The server must see
// no invalid request.
func newAnsweredRun(t *testing.T, format modelFormat, answer func(providerstest.ModelRequest) providerstest.ModelAnswer) modelRun {
	t.Helper()
	return modelRun{t, format, startModel(t, format, answer), filepath.Join(t.TempDir(), "store"), t.TempDir()}
}

// startModel starts a server, which must see no invalid request.
func startModel(t *testing.T, format modelFormat, answer func(providerstest.ModelRequest) providerstest.ModelAnswer) *providerstest.ModelServer {
	t.Helper()
	server := format.start(answer)
	t.Cleanup(func() {
		server.Close()
		for _, fault := range server.Faults() {
			t.Errorf("the server refused a request: %s", fault)
		}
	})
	return server
}

// steps returns the answers that stream replies.
func (f modelFormat) steps(steps ...modelStep) (answers []providerstest.ModelAnswer) {
	for _, s := range steps {
		answers = append(answers, providerstest.ModelAnswer{Chunks: f.stream(s)})
	}
	return answers
}

// asks runs a command with the flags of the model, and returns its output and its exit
// code.
func (r modelRun) asks(input string, args ...string) (out, errs string, code int) {
	r.Helper()
	flags := append(append([]string{}, r.format.flags...), "--base-url", r.server.URL(), "--workspace", r.workspace)
	return r.command(input, append(args, flags...)...)
}

// command runs a command.
func (r modelRun) command(input string, args ...string) (out, errs string, code int) {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), commandPath(), append([]string{"--store", r.store}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	cmd.Env = append(os.Environ(), "ANTHROPIC_API_KEY="+modelKey, "OPENAI_API_KEY="+modelKey, "XDG_CONFIG_HOME="+r.TempDir())
	_ = cmd.Run() // the exit code tells
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// wantClean checks that verify accepts the log and that no file of the store has the key.
func (r modelRun) wantClean() {
	r.Helper()
	if out, errs, code := r.command("", "verify"); code != 0 {
		r.Errorf("verify exits with %d: %s%s", code, out, errs)
	}
	err := filepath.WalkDir(r.store, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(modelKey)) {
			r.Errorf("%s has the key", path)
		}
		return err
	})
	noError(r.T, err)
}

// ledger run --model works with a model of each wire format: it runs the calls, answers
// with the last text, and records the request of each turn.
func TestRunAsksAModel(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			r := newModelRun(t, format, format.steps(
				modelStep{"Writing.", [][3]string{{"call_1", "write", `{"path":"a.txt","content":"hello\n"}`}, {"call_2", "nosuch", `{}`}}},
				modelStep{"", [][3]string{{"call_1", "read", `{"path":"a.txt"}`}, {"call_3", "bash", `{"command":"env; wc -c < a.txt"`}}},
				modelStep{text: "It has one line."},
				modelStep{text: "Again."},
			)...)
			out, errs, code := r.asks("write a file\n", "run")
			if code != 0 || !strings.Contains(out, "It has one line.") || !strings.Contains(out, "4 calls, 2 succeeded, 1 unknown_tool, 1 invalid_input; ") || !strings.Contains(out, " input tokens (") || !strings.Contains(out, " output tokens; ") {
				t.Fatalf("run exits with %d: %s%s", code, out, errs)
			}
			if out, errs, code := r.asks("", "resume", "@last", "and again"); code != 0 || !strings.Contains(out, "Again.") {
				t.Fatalf("resume exits with %d: %s%s", code, out, errs)
			}
			if n := len(r.server.Requests()); n != 4 {
				t.Errorf("the server has %d requests, want 4", n)
			}
			events, _, _ := r.command("", "event", "ls", "-o", "jsonl")
			parameters := map[string]int{}
			for line := range strings.Lines(events) {
				var e struct {
					Kind string
					Data struct{ Parameters, Schemas, Model, Provider string }
				}
				if err := json.Unmarshal([]byte(line), &e); err != nil {
					t.Fatal(err)
				}
				if e.Kind == "TurnMaterialized" {
					parameters[e.Data.Parameters+" "+e.Data.Schemas+" "+e.Data.Model+" "+e.Data.Provider]++
				}
			}
			provider, _, _ := strings.Cut(format.flags[1], "/")
			if len(parameters) != 1 {
				t.Errorf("the turns name %v, want the same parameters and schemas 4 times", parameters)
			}
			for named, n := range parameters {
				if fields := strings.Fields(named); n != 4 || len(fields) != 4 || fields[2] != format.flags[1] || fields[3] != provider {
					t.Errorf("the turns name %q %d times, want parameters, schemas, model and provider 4 times", named, n)
				}
			}
			r.wantClean()
		})
	}
}

// A server that repeats the key in its replies, whole or broken off, gets it neither into the
// log nor into the output.
func TestRunRecordsNoKeyOfAModelReply(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			whole := format.stream(modelStep{"The key is " + modelKey + ".", [][3]string{{"call_" + modelKey, modelKey, `{"key":"` + modelKey + `"}`}}})
			answers := format.steps(modelStep{text: "Bearer " + modelKey + "\n"})
			answers = append([]providerstest.ModelAnswer{{Chunks: whole}}, append(answers, providerstest.ModelAnswer{Chunks: whole[:len(whole)-2], End: providerstest.EndReset})...)
			r := newModelRun(t, format, answers...)
			out, errs, code := r.asks("", "run", "go")
			if code != 0 || !strings.Contains(out, "Bearer [redacted]") || strings.Contains(out+errs, modelKey) {
				t.Errorf("run exits with %d: %s%s", code, out, errs)
			}
			if out, errs, code = r.asks("", "resume", "@last", "again"); code != 1 || strings.Contains(out+errs, modelKey) {
				t.Errorf("resume exits with %d: %s%s", code, out, errs)
			}
			events, _, _ := r.command("", "event", "ls", "-o", "jsonl")
			for _, text := range []string{`"The key is [redacted]."`, `"Bearer [redacted]`, `"call_[redacted]"`, `"ReplyRefused"`} {
				if !strings.Contains(events, text) {
					t.Errorf("the log has no %s: %s", text, events)
				}
			}
			r.wantClean()
		})
	}
}

// A failed request ends the run with an error that names the request and with a hint, and
// the session goes on later.
func TestRunSaysWhyAModelFails(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			refused := providerstest.AnthropicFailure(401, "authentication_error", "invalid key "+modelKey)
			if format.name != "anthropic" {
				refused = providerstest.OpenAIFailure(401, "invalid_api_key", "invalid key "+modelKey)
			}
			whole := format.stream(modelStep{text: "Half of a reply"})
			cut := providerstest.ModelAnswer{Chunks: whole[:len(whole)-2], End: providerstest.EndReset}
			r := newModelRun(t, format, append([]providerstest.ModelAnswer{refused, cut}, format.steps(modelStep{text: "Done."})...)...)
			out, errs, code := r.asks("", "run", "go")
			if code != 1 || !strings.Contains(errs, "authentication, status 401, request req_local") || !strings.Contains(errs, "hint: check the key") || strings.Contains(out+errs, modelKey) {
				t.Fatalf("run exits with %d: %s%s", code, out, errs)
			}
			out, errs, code = r.asks("", "resume", "@last", "-o", "json")
			if code != 1 || !strings.Contains(errs, `"code":"model_cut"`) {
				t.Fatalf("resume exits with %d: %s%s", code, out, errs)
			}
			if out, errs, code = r.asks("", "resume", "@last"); code != 0 || !strings.Contains(out, "Done.") {
				t.Fatalf("resume exits with %d: %s%s", code, out, errs)
			}
			events, _, _ := r.command("", "event", "ls", "-o", "jsonl")
			for _, kind := range []string{`"ProviderFailed"`, `"ReplyRefused"`} {
				if !strings.Contains(events, kind) {
					t.Errorf("the log has no %s: %s", kind, events)
				}
			}
			r.wantClean()
		})
	}
}

// A reply with 200 calls is settled whole, and the next request answers each of them once, in
// order.
func TestRunSettlesManyCalls(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			many := modelStep{text: "All at once."}
			for i := range 200 {
				many.calls = append(many.calls, [3]string{fmt.Sprint("call_", i), "write", fmt.Sprintf(`{"path":"f%d","content":"%d\n"}`, i, i)})
			}
			r := newModelRun(t, format, format.steps(many, modelStep{text: "Done."})...)
			if out, errs, code := r.asks("", "run", "go"); code != 0 || !strings.Contains(out, "200 calls, 200 succeeded") {
				t.Errorf("run exits with %d: %s%s", code, out, errs)
			}
			if n := len(r.server.Requests()); n != 2 {
				t.Errorf("the server has %d requests, want 2", n)
			}
			r.wantClean()
		})
	}
}

// The system prompt ends with the instructions of the project, and is on record once. A file
// that is too large is a warning.
func TestRunGivesTheInstructionsOfTheProject(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			r := newModelRun(t, format, format.steps(modelStep{"", [][3]string{{"c", "glob", `{"pattern":"*"}`}}}, modelStep{text: "Done."})...)
			file := filepath.Join(r.workspace, "AGENTS.md")
			noError(t, os.WriteFile(file, []byte("Write tabs of seven.\n"), 0o600))
			if out, errs, code := r.asks("", "run", "go"); code != 0 {
				t.Fatalf("run exits with %d: %s%s", code, out, errs)
			}
			for _, sent := range r.server.Requests() {
				if text := string(sent.Body); !strings.Contains(text, `in its file AGENTS.md:\n\nWrite tabs of seven.`) || !strings.Contains(text, "You are a software engineer") {
					t.Errorf("request %d has no instructions: %.500s", sent.Number, text)
				}
			}
			if log, _, _ := r.command("", "event", "ls", "-o", "jsonl"); strings.Count(log, "Write tabs of seven.") != 1 {
				t.Errorf("the log has the instructions %d times, want once", strings.Count(log, "Write tabs of seven."))
			}
			noError(t, os.WriteFile(file, []byte(strings.Repeat("x", 64<<10+1)), 0o600))
			if out, errs, code := r.asks("", "run", "go"); code != 0 || !strings.Contains(errs, "warning: AGENTS.md not used: it has 65537 bytes, over the limit of 65536") {
				t.Errorf("run exits with %d: %s%s", code, out, errs)
			}
			r.wantClean()
		})
	}
}

// A model that calls tools without end is asked a hundred times, the last time for a text
// without calls.
func TestRunEndsAfterAHundredSteps(t *testing.T) {
	t.Parallel()
	format := modelFormats()[0]
	r := newAnsweredRun(t, format, func(asked providerstest.ModelRequest) providerstest.ModelAnswer {
		step := modelStep{"On.", [][3]string{{"c", "glob", fmt.Sprintf(`{"pattern":"f%d"}`, asked.Number)}}}
		return providerstest.ModelAnswer{Chunks: format.stream(step)}
	})
	out, errs, code := r.asks("", "run", "go")
	if code != 0 || !strings.Contains(out, "100 calls, 99 succeeded, 1 disabled") {
		t.Errorf("run exits with %d: %s%s", code, out, errs)
	}
	for _, sent := range r.server.Requests() {
		last := strings.Contains(string(sent.Body), "MAXIMUM STEPS REACHED") && strings.Contains(string(sent.Body), `"tool_choice":{"type":"none"}`)
		if last != (sent.Number == 99) {
			t.Errorf("request %d forbids tools: %v", sent.Number, last)
		}
	}
	if n := len(r.server.Requests()); n != 100 {
		t.Errorf("the server has %d requests, want 100", n)
	}
	r.wantClean()
}

// A reply that is empty, or that stops before its end, is a line that names the model and
// the stop reason, and the JSON result has the stop reason and the tokens. A reply without
// usable calls names the model. An attempt that failed is a line before the next one.
func TestRunSaysHowAReplyEnds(t *testing.T) {
	t.Parallel()
	whole := "Do this."
	refused := providerstest.AnthropicReply{Text: "I will not.", Stop: "refusal"}
	short := providerstest.AnthropicReply{Text: "It begins", Stop: "max_tokens"}
	twice := providerstest.AnthropicReply{Calls: []providerstest.AnthropicCall{{ID: "c", Name: "read", Input: "{}"}, {ID: "c", Name: "read", Input: "{}"}}}
	busy := providerstest.AnthropicFailure(529, "overloaded_error", "busy "+modelKey)
	answer := func(r providerstest.AnthropicReply) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: providerstest.AnthropicStream("m-1", r)}
	}
	for name, c := range map[string]struct {
		answers []providerstest.ModelAnswer
		lines   []string
		finish  string
		code    int
	}{
		"empty":   {[]providerstest.ModelAnswer{answer(providerstest.AnthropicReply{Stop: "end_turn"})}, []string{"■ the reply of m-1 is empty: its stop reason is end_turn"}, "end_turn", 0},
		"refused": {[]providerstest.ModelAnswer{answer(refused)}, []string{"I will not.", "■ the reply of m-1 ended early: its stop reason is refusal"}, "refusal", 0},
		"short":   {[]providerstest.ModelAnswer{answer(short)}, []string{"It begins", "■ the reply of m-1 ended early: its stop reason is max_tokens"}, "max_tokens", 0},
		"twice":   {[]providerstest.ModelAnswer{answer(twice)}, []string{`anthropic/m-1: reply is not valid: call 2, of`, `"code":"model_bad_reply"`}, "", 1},
		"busy":    {[]providerstest.ModelAnswer{busy, answer(providerstest.AnthropicReply{Text: whole})}, []string{"■ attempt 1 failed, asking again: anthropic m-1: overloaded, status 529, request req_local: overloaded_error: busy [redacted]", whole}, "end_turn", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newModelRun(t, modelFormats()[0], c.answers...)
			out, errs, code := r.asks("", "run", "go", "-o", "json")
			for _, line := range c.lines {
				if code != c.code || !strings.Contains(errs, line) {
					t.Errorf("run exits with %d and prints %s, want %d and %q", code, errs, c.code, line)
				}
			}
			var result struct {
				Finish string
				Tokens struct{ Input, Output int64 }
			}
			if err := json.Unmarshal([]byte(out), &result); err != nil || result.Finish != c.finish || (result.Tokens.Output > 0) != (c.code == 0) {
				t.Errorf("run prints %s, %v; want the stop reason %q, and the tokens of a reply", out, err, c.finish)
			}
			if strings.Contains(errs, "ended early") != (name == "refused" || name == "short") {
				t.Errorf("run prints %s", errs)
			}
			r.wantClean()
		})
	}
}

// --attach sends images and PDF files with the prompt, and they are on record. Anything else
// is refused before the store is made.
func TestRunAttachesFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dot := image.NewGray(image.Rect(0, 0, 1, 1))
	var drawn bytes.Buffer
	noError(t, png.Encode(&drawn, dot))
	for name, data := range map[string]string{"dot.png": drawn.String(), "a.pdf": "%PDF-1.4\n", "broken.png": "\x89PNG\r\n\x1a\nbroken", "note.txt": "text", "large.pdf": "%PDF-" + strings.Repeat("x", 3<<20)} {
		noError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			r := newModelRun(t, format, format.steps(modelStep{text: "A dot."})...)
			for want, args := range map[string][]string{
				"is neither a PNG":                  {"--attach", filepath.Join(dir, "note.txt")},
				"is not a regular file":             {"--attach", dir},
				"no such file":                      {"--attach", filepath.Join(dir, "absent.png")},
				"could not be decoded":              {"--attach", filepath.Join(dir, "broken.png")},
				"have over 5242880 bytes of base64": {"--attach", filepath.Join(dir, "large.pdf"), "--attach", filepath.Join(dir, "large.pdf")},
			} {
				if _, errs, code := r.asks("", append([]string{"run", "what is this?"}, args...)...); code == 0 || !strings.Contains(errs, want) {
					t.Errorf("run %v exits with %d: %s, want %q", args, code, errs, want)
				}
			}
			if _, err := os.Stat(r.store); err == nil {
				t.Error("the store was made")
			}
			out, errs, code := r.asks("", "run", "--attach", filepath.Join(dir, "dot.png"), "--attach", filepath.Join(dir, "a.pdf"), "what is this?")
			if code != 0 || !strings.Contains(out, "A dot.") {
				t.Fatalf("run exits with %d: %s%s", code, out, errs)
			}
			sent := string(r.server.Requests()[0].Body)
			for _, data := range [][]byte{drawn.Bytes(), []byte("%PDF-1.4\n")} {
				if !strings.Contains(sent, base64.StdEncoding.EncodeToString(data)) {
					t.Errorf("the request lacks %q: %s", data, sent)
				}
			}
			if log, _, _ := r.command("", "event", "ls", "-o", "jsonl"); !strings.Contains(log, base64.StdEncoding.EncodeToString(drawn.Bytes())) || !strings.Contains(log, "dot.png") {
				t.Errorf("the log lacks the image: %s", log)
			}
			r.wantClean()
		})
	}
}

// A server that never answers ends the run after the attempts and the time of models.toml,
// and each attempt is on record.
func TestRunEndsWithAServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			r := newModelRun(t, format, providerstest.ModelAnswer{NoHeader: true, End: providerstest.EndHeld})
			kind, api := "anthropic", ""
			if format.name != "anthropic" {
				kind, api = "openai", "api = '"+format.name+"'\n"
			}
			config := filepath.Join(t.TempDir(), "ledger")
			noError(t, os.Mkdir(config, 0o700))
			text := fmt.Sprintf("[providers.acme]\nkind = '%s'\n%sbase_url = '%s'\nattempts = 2\nstall_timeout = '150ms'\n", kind, api, r.server.URL())
			noError(t, os.WriteFile(filepath.Join(config, "models.toml"), []byte(text), 0o600))
			cmd := exec.CommandContext(t.Context(), commandPath(), "--store", r.store, "run", "--model", "acme/m-1", "--workspace", r.workspace, "go")
			cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Dir(config))
			out, _ := cmd.CombinedOutput() // the exit code tells
			if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "acme m-1: stalled") || len(r.server.Requests()) != 2 {
				t.Errorf("run exits with %d after %d requests: %s", code, len(r.server.Requests()), out)
			}
			if shown, _, _ := r.command("", "session", "show", "@last"); !strings.Contains(shown, "acme m-1 stalled attempt 1") || !strings.Contains(shown, "acme m-1 stalled attempt 2") {
				t.Errorf("the session is %s", shown)
			}
			r.wantClean()
		})
	}
}

// A tool that the provider does not accept ends the run before anything is sent, with the
// tool, the rule and a hint.
func TestRunNamesAToolThatTheModelDoesNotAccept(t *testing.T) {
	t.Parallel()
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			r := newModelRun(t, format, format.steps(modelStep{text: "Done."})...)
			tools, schema := t.TempDir(), `{"type":"object","enum":[{"a":1}]}`
			noError(t, os.WriteFile(filepath.Join(tools, "search.json"), []byte(`{"description":"Searches.","input":`+schema+`,"command":["true"]}`), 0o600))
			_, errs, code := r.asks("", "run", "go", "--tools", tools, "-o", "json")
			if code != 1 || !strings.Contains(errs, `"code":"model_incompatible"`) || !strings.Contains(errs, "m-1 does not accept the tool search") || !strings.Contains(errs, "leave the tool out") {
				t.Errorf("run exits with %d: %s", code, errs)
			}
			if n := len(r.server.Requests()); n != 0 {
				t.Errorf("the server has %d requests", n)
			}
			r.wantClean()
		})
	}
}

// A session that outgrows the window of its model three times goes on, and the views say of
// each request what it left out.
func TestRunOutgrowsTheWindowOfItsModel(t *testing.T) {
	t.Parallel()
	const calls = 14
	for _, format := range modelFormats() {
		t.Run(format.name, func(t *testing.T) {
			t.Parallel()
			tooLarge := providerstest.AnthropicFailure(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")
			if format.name != "anthropic" {
				tooLarge = providerstest.OpenAIFailure(400, "context_length_exceeded", "9 tokens are over the maximum context length of 8")
			}
			first, asked := 0, 0
			server := startModel(t, format, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
				if first == 0 {
					first = len(r.Body)
				}
				step := modelStep{text: "All of it is read."}
				switch {
				case len(r.Body) > first+60_000:
					return tooLarge
				case strings.Contains(string(r.Body), "Summarize this session"):
					step.text = "The agent printed numbers."
				case asked < calls:
					asked++
					step = modelStep{"", [][3]string{{fmt.Sprint("call_", asked), "bash", fmt.Sprintf(`{"command":"seq %d 3000"}`, asked)}}}
				}
				return providerstest.ModelAnswer{Chunks: format.stream(step)}
			})
			r := modelRun{t, format, server, filepath.Join(t.TempDir(), "store"), t.TempDir()}
			out, errs, code := r.asks("", "run", "print numbers")
			if code != 0 || !strings.Contains(out, "All of it is read.") || !strings.Contains(out, "14 calls, 14 succeeded") {
				t.Fatalf("run exits with %d: %s%s", code, out, errs)
			}
			shown, _, _ := r.command("", "session", "show", "@last")
			if n := strings.Count(shown, "leaves out 1 prompt"); n < 3 || n != strings.Count(shown, "  compacted  ") || n != strings.Count(shown, "asks for a summary of the messages up to msg_") || !strings.Contains(shown, "m-1 context_exceeded 400") {
				t.Errorf("the session has %d compactions: %s", n, shown)
			}
			if all, _, _ := r.command("", "event", "ls", "-o", "jsonl"); !strings.Contains(all, "The agent printed numbers.\\n\\nThe last message of the user, word for word:\\n\\nprint numbers") {
				t.Errorf("the log lacks the summary: %s", all)
			}
			if turn, _, _ := r.command("", "turn", "show", "@last"); !strings.Contains(turn, "leaves out  ") || !strings.Contains(turn, "parameters  ") {
				t.Errorf("the last turn is %s", turn)
			}
			detail, _, _ := r.command("", "turn", "show", "@last", "-o", "json")
			var turn struct {
				Compacted  string
				Parameters map[string]any
				Schemas    []any
			}
			if err := json.Unmarshal([]byte(detail), &turn); err != nil || turn.Compacted == "" || len(turn.Parameters) == 0 || len(turn.Schemas) == 0 {
				t.Errorf("the last turn is %s: %v", detail, err)
			}
			r.wantClean()
		})
	}
}

// What --model, --base-url, --api and models.toml say must make a provider with a key,
// before a session is opened.
func TestRunRefusesAModelThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, want string
		args       []string
	}{
		"no provider":      {"", `the model "m-1" names no provider: write PROVIDER/MODEL, with one of the providers anthropic, openai`, []string{"--model", "m-1"}},
		"unknown provider": {"", "names no provider", []string{"--model", "acme/m-1"}},
		"no key":           {"", "hint: set the environment variable ANTHROPIC_API_KEY", []string{"--model", "anthropic/m-1"}},
		"no key of a file": {"[providers.acme]\nkind = 'openai'\nbase_url = 'https://models.example/v1'\nkey_env = 'ACME_KEY'\n", "hint: set the environment variable ACME_KEY", []string{"--model", "acme/m-1"}},
		"no variable":      {"[providers.acme]\nkind = 'openai'\nbase_url = 'https://models.example/v1'\n", "hint: set key_env", []string{"--model", "acme/m-1"}},
		"unknown key":      {"[providers.acme]\nkind = 'openai'\napi_key = 'sk'\n", "models.toml: the key providers.acme.api_key is not known", []string{"--model", "acme/m-1"}},
		"unknown kind":     {"[providers.acme]\nkind = 'gemini'\n", `the provider acme has the kind "gemini"`, []string{"--model", "acme/m-1"}},
		"a negative time":  {"[providers.acme]\nkind = 'openai'\nstall_timeout = '-1s'\n", "negative attempts, max_wait or stall_timeout", []string{"--model", "acme/m-1"}},
		"a bad time":       {"[providers.acme]\nkind = 'openai'\nstall_timeout = 'soon'\n", "models.toml", []string{"--model", "acme/m-1"}},
		"no TOML":          {"[providers", "models.toml", []string{"--model", "anthropic/m-1"}},
		"bad URL":          {"", "must be http or https", []string{"--model", "openai/m-1", "--base-url", "ftp://models.example"}},
		"bad format":       {"", `the format "soap"`, []string{"--model", "openai/m-1", "--api", "soap", "--base-url", "http://127.0.0.1:1/v1"}},
		"format of another": {
			"", "--api is for providers of the kind openai", []string{"--model", "anthropic/m-1", "--api", "chat", "--base-url", "http://127.0.0.1:1"},
		},
		"two sources":  {"", "--script and --model both give the replies", []string{"--model", "anthropic/m-1", "--script", "x.json"}},
		"URL alone":    {"", "--base-url and --api are for a model", []string{"--base-url", "http://127.0.0.1:1"}},
		"no prompt":    {"", "no prompt: give it as an argument, or on the standard input", []string{"--model", "openai/m-1", "--base-url", "http://127.0.0.1:1/v1"}},
		"not a string": {"[providers.acme]\nkind = 7\n", "models.toml", []string{"--model", "acme/m-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, store := t.TempDir(), filepath.Join(t.TempDir(), "store")
			noError(t, os.MkdirAll(filepath.Join(config, "ledger"), 0o700))
			if c.file != "" {
				noError(t, os.WriteFile(filepath.Join(config, "ledger", "models.toml"), []byte(c.file), 0o600))
			}
			args := append([]string{"--store", store, "run", "--workspace", t.TempDir()}, c.args...)
			if name != "no prompt" {
				args = append(args, "go")
			}
			cmd := exec.CommandContext(t.Context(), commandPath(), args...)
			cmd.Env = []string{"XDG_CONFIG_HOME=" + config, "HOME=" + config, "PATH=" + os.Getenv("PATH")}
			out, _ := cmd.CombinedOutput() // the exit code tells
			if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), c.want) {
				t.Errorf("run exits with %d: %s, want %q", code, out, c.want)
			}
			if _, err := os.Stat(store); err == nil {
				t.Error("the store was made")
			}
		})
	}
}
