package anthropic_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/anthropic"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// echo is the definition of a tool.
func echo(name, schema string) domain.Definition {
	return domain.Definition{Name: domain.Name(name), Description: "Echoes.", Input: json.RawMessage(schema)}
}

// body returns the body of the only request of a server.
func body(t testing.TB, server *providerstest.ModelServer) map[string]json.RawMessage {
	t.Helper()
	requests := server.Requests()
	var decoded map[string]json.RawMessage
	if len(requests) != 1 || json.Unmarshal(requests[0].Body, &decoded) != nil {
		t.Fatalf("the server has the requests %v, want one", requests)
	}
	return decoded
}

// drawEnd draws the end of a call, or none.
func drawEnd(t *rapid.T) *domain.Settlement {
	png, pdf, sound := domain.Media{MIME: "image/png", Data: []byte("png")}, domain.Media{MIME: "application/pdf", Name: "a.pdf", Data: []byte("pdf")}, domain.Media{MIME: "audio/wav", Data: []byte("x")}
	return rapid.SampledFrom([]*domain.Settlement{
		nil, succeeded(domain.Text("done")), succeeded(domain.Text(" \n")), succeeded(domain.Text("")), succeeded(png, domain.Text("see"), pdf, sound),
		{Outcome: domain.Succeeded, Structured: json.RawMessage(`{"n":1}`)}, {Outcome: domain.Failed, Text: "no such file"}, {Outcome: domain.Lost}, {Outcome: domain.Interrupted, Interruption: domain.ByUser},
	}).Draw(t, "end")
}

// drawMessages draws a conversation that a log can have, also one of another provider.
func drawMessages(t *rapid.T) (messages []conversation.Message) {
	text := rapid.SampledFrom([]string{"", " ", "go", "a\xffb", "end with space \n"})
	for range rapid.IntRange(0, 8).Draw(t, "messages") {
		if rapid.Bool().Draw(t, "prompt") {
			messages = append(messages, prompt(text.Draw(t, "text")))
			continue
		}
		m := reply(text.Draw(t, "text"))
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			id := rapid.SampledFrom([]string{"toolu_1", "call.7", "", strings.Repeat("x", 90), "call_1/1"}).Draw(t, "id")
			name := rapid.SampledFrom([]string{"echo", "read file", "", strings.Repeat("n", 200)}).Draw(t, "name")
			input := rapid.SampledFrom([]string{`{"a":1}`, `"{\"broken"`, `[1]`, `null`, ``, `7`}).Draw(t, "input")
			m.Reply.Calls = append(m.Reply.Calls, call(id, name, input, drawEnd(t)))
		}
		if rapid.Bool().Draw(t, "items") {
			m.Reply.Items = []events.ProviderItem{
				{Provider: "anthropic", Model: "m-1", Data: json.RawMessage(`{"type":"thinking","thinking":"hm","signature":"s"}`)},
				{Provider: "anthropic", Model: "m-1", Data: json.RawMessage(`{"type":"redacted_thinking","data":"x"}`)},
				{Provider: "openai", Model: "m-1", Data: json.RawMessage(`{"type":"thinking"}`)}, {Provider: "anthropic", Model: "m-0", Data: json.RawMessage(`7`)},
			}
		}
		messages = append(messages, m)
	}
	return messages
}

// Every conversation becomes a request that the API accepts, and the same one again. The
// record has its parameters and tools as they are sent.
func TestEveryConversationIsAValidRequest(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(providerstest.AnthropicReply{Text: "done"}))
	plain, thinks := provider(t, server, anthropic.Config{}), provider(t, server, anthropic.Config{ThinkingBudget: 2048})
	rapid.Check(t, func(rt *rapid.T) {
		p := rapid.SampledFrom([]*anthropic.Provider{plain, thinks}).Draw(rt, "provider")
		asked := turn(drawMessages(rt)...)
		asked.System = rapid.SampledFrom([]string{"", " ", "Be brief."}).Draw(rt, "system")
		asked.Instruction = rapid.SampledFrom([]string{"", "Summarize."}).Draw(rt, "instruction")
		if asked.Disabled = rapid.Bool().Draw(rt, "disabled"); !asked.Disabled && rapid.Bool().Draw(rt, "tools") {
			asked.Tools = []domain.Definition{echo("echo", `{"type":"object","properties":{"z":{"type":"string"},"a":true},"required":["z"],"additionalProperties":false}`)}
		}
		record, err := p.PrepareRequest(asked)
		if err != nil {
			rt.Fatal(err)
		}
		before := len(server.Requests())
		for range 2 {
			if r := ask(t, p, asked); r.err != nil {
				rt.Fatalf("the request is refused: %v", r.err)
			}
		}
		sent := server.Requests()[before:]
		if string(sent[0].Body) != string(sent[1].Body) {
			rt.Fatalf("the same turn is sent as %s and as %s", sent[0].Body, sent[1].Body)
		}
		var body map[string]json.RawMessage
		if err := json.Unmarshal(sent[0].Body, &body); err != nil {
			rt.Fatal(err)
		}
		if string(body["tools"]) != record.Schemas {
			rt.Fatalf("the tools are sent as %s and recorded as %s", body["tools"], record.Schemas)
		}
		var recorded map[string]json.RawMessage
		if err := json.Unmarshal([]byte(record.Parameters), &recorded); err != nil {
			rt.Fatal(err)
		}
		for _, of := range []string{"system", "messages", "tools"} {
			delete(body, of)
		}
		if got, want := mustEncode(rt, recorded), mustEncode(rt, body); got != want {
			rt.Fatalf("the parameters are recorded as %s and sent as %s", got, want)
		}
	})
}

// mustEncode returns value as JSON.
func mustEncode(t *rapid.T, value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The results of a reply are the first blocks of the next message, in the order of the
// calls: as errors, texts, images and documents.
func TestResultsAreSentInTheFormOfTheAPI(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(providerstest.AnthropicReply{Text: "done"}))
	asked := turn(prompt("go"),
		reply("Reading.", call("toolu_1", "read", `{"path":"a"}`, succeeded(domain.Text("see "), domain.Media{MIME: "image/png", Data: []byte("png")}, domain.Media{MIME: "application/pdf", Data: []byte("pdf")})),
			call("toolu_2", "read", `"{\"path"`, &domain.Settlement{Outcome: domain.Failed, Text: "no such file"}), call("toolu_3", "read", `{}`, nil)),
		prompt("and now?"))
	if r := ask(t, provider(t, server, anthropic.Config{}), asked); r.err != nil {
		t.Fatal(r.err)
	}
	const want = `[{"content":[{"text":"go","type":"text"}],"role":"user"},` +
		`{"content":[{"text":"Reading.","type":"text"},{"id":"toolu_1","input":{"path":"a"},"name":"read","type":"tool_use"},` +
		`{"id":"toolu_2","input":{"invalid_input":"{\"path"},"name":"read","type":"tool_use"},{"id":"toolu_3","input":{},"name":"read","type":"tool_use"}],"role":"assistant"},` +
		`{"content":[{"content":[{"text":"see ","type":"text"},{"source":{"data":"cG5n","media_type":"image/png","type":"base64"},"type":"image"},` +
		`{"source":{"data":"cGRm","media_type":"application/pdf","type":"base64"},"title":"file.pdf","type":"document"}],"tool_use_id":"toolu_1","type":"tool_result"},` +
		`{"content":[{"text":"no such file","type":"text"}],"is_error":true,"tool_use_id":"toolu_2","type":"tool_result"},` +
		`{"content":[{"text":"The outcome of this tool call is unknown.","type":"text"}],"is_error":true,"tool_use_id":"toolu_3","type":"tool_result"},` +
		`{"text":"and now?","type":"text"}],"role":"user"}]`
	var messages []any
	if err := json.Unmarshal(body(t, server)["messages"], &messages); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(without(messages, "cache_control"))
	if err != nil || string(got) != want {
		t.Errorf("the messages are\n%s, want\n%s", got, want)
	}
}

// A prompt has its images and documents before its text, behind the results of calls, and
// names media that the API does not accept.
func TestPromptsAreSentWithTheirMedia(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(providerstest.AnthropicReply{Text: "done"}))
	shows := prompt("and this?")
	shows.Prompt.Media = domain.Contents{domain.Media{MIME: "image/png", Data: []byte("png")}, domain.Media{MIME: "application/pdf", Name: "a.pdf", Data: []byte("pdf")}, domain.Media{MIME: "audio/wav", Data: []byte("x")}}
	only := prompt("")
	only.Prompt.Media = domain.Contents{domain.Media{MIME: "image/png", Data: []byte("png")}}
	asked := turn(only, reply("Reading.", call("toolu_1", "read", `{}`, succeeded(domain.Text("text")))), shows)
	if r := ask(t, provider(t, server, anthropic.Config{}), asked); r.err != nil {
		t.Fatal(r.err)
	}
	const want = `[{"content":[{"source":{"data":"cG5n","media_type":"image/png","type":"base64"},"type":"image"}],"role":"user"},` +
		`{"content":[{"text":"Reading.","type":"text"},{"id":"toolu_1","input":{},"name":"read","type":"tool_use"}],"role":"assistant"},` +
		`{"content":[{"content":[{"text":"text","type":"text"}],"tool_use_id":"toolu_1","type":"tool_result"},` +
		`{"source":{"data":"cG5n","media_type":"image/png","type":"base64"},"type":"image"},{"source":{"data":"cGRm","media_type":"application/pdf","type":"base64"},"title":"a.pdf","type":"document"},` +
		`{"text":"[audio/wav of 1 bytes is omitted: this model cannot read it]","type":"text"},{"text":"and this?","type":"text"}],"role":"user"}]`
	var messages []any
	if err := json.Unmarshal(body(t, server)["messages"], &messages); err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(without(messages, "cache_control")); err != nil || string(got) != want {
		t.Errorf("the messages are\n%s, want\n%s", got, want)
	}
}

// without returns a decoded JSON value without the members of a name.
func without(value any, name string) any {
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = without(value[i], name)
		}
	case map[string]any:
		delete(value, name)
		for key := range value {
			value[key] = without(value[key], name)
		}
	}
	return value
}

// Signed thinking goes back first in its reply, while thinking is on.
func TestSignedThinkingGoesBack(t *testing.T) {
	t.Parallel()
	for budget, want := range map[int64]int{0: 0, 2048: 1} {
		server := serve(t, replies(everything))
		r := ask(t, provider(t, serve(t, replies(everything)), anthropic.Config{ThinkingBudget: 2048}), turn(prompt("go")))
		m := reply(r.text, call("toolu_1", "read", "{}", succeeded(domain.Text("x"))))
		m.Reply.Items = []events.ProviderItem{events.ProviderItem(r.items[0])}
		if r := ask(t, provider(t, server, anthropic.Config{ThinkingBudget: budget}), turn(prompt("go"), m)); r.err != nil {
			t.Fatal(r.err)
		}
		if n := strings.Count(string(body(t, server)["messages"]), `[{"signature":"signed","thinking":"Where is it?","type":"thinking"}`); n != want {
			t.Errorf("with a budget of %d the request has %s, want the thinking %d times", budget, body(t, server)["messages"], want)
		}
	}
}

// A tool that the API does not accept is refused before a request is sent, with the tool,
// the model and the rule.
func TestAnUnacceptableToolIsRefused(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(everything))
	p := provider(t, server, anthropic.Config{})
	for _, d := range []domain.Definition{echo(strings.Repeat("n", 65), "{}"), echo("", "{}"), echo("list", `{"type":"array"}`), echo("ref", `{"$ref":"#/$defs/a"}`), echo("one", `{"enum":[1]}`), echo("filter", `{"properties":{"filter[id]":{}}}`), echo("long", `{"properties":{"`+strings.Repeat("p", 65)+`":{}}}`)} {
		asked := turn(prompt("go"))
		asked.Tools = []domain.Definition{echo("echo", "{}"), d}
		_, err := p.PrepareRequest(asked)
		refused, ok := errors.AsType[*runner.IncompatibleError](err)
		if !ok || refused.Tool != string(d.Name) || refused.Provider != "anthropic" || refused.Model != "m-1" || refused.Rule == "" {
			t.Errorf("PrepareRequest with the tool %q = %v, want an IncompatibleError", d.Name, err)
		}
		if _, ok := errors.AsType[*runner.IncompatibleError](ask(t, p, asked).err); !ok {
			t.Errorf("the tool %q is sent", d.Name)
		}
	}
	if n := len(server.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// The limits of a model are the configured ones, or else the known ones.
func TestAModelHasItsLimits(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(everything))
	for _, c := range []struct {
		config         anthropic.Config
		model          string
		window, output int64
	}{
		{anthropic.Config{}, "claude-sonnet-4-5", 200_000, 64_000}, {anthropic.Config{}, "proxy/claude-3-5-haiku-latest", 200_000, 8_192}, {anthropic.Config{}, "local", 0, 8_192},
		{anthropic.Config{MaxOutputTokens: 100}, "claude-sonnet-4-5", 200_000, 100}, {anthropic.Config{ThinkingBudget: 10_000}, "local", 0, 18_192},
	} {
		if window, output := provider(t, server, c.config).ContextLimit(c.model); window != c.window || output != c.output {
			t.Errorf("the limits of %s are %d and %d, want %d and %d", c.model, window, output, c.window, c.output)
		}
	}
}
