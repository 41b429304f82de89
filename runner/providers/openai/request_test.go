package openai_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/openai"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// png is the beginning of an image. The server does not decode it.
var png = domain.Media{MIME: "image/png", Name: "page.png", Data: []byte("\x89PNG")}

// hardConversation has each kind of message that a log can have: prompts, an empty one
// too, replies without text, without calls and without both, results of each form, calls
// that failed, were interrupted and have no end, IDs and names that the API does not
// accept, one ID in two messages, and arguments that are no JSON.
func hardConversation() []conversation.Message {
	interrupted := domain.InterruptedWhile(domain.ByUser)
	return []conversation.Message{
		prompt("read all of it"), prompt(""),
		reply("I look.", call("call_1", "read", `{"path":"a"}`, succeeded(domain.Text("text of a"))), call("call_2", "read", `"{\"path\": b"`, &domain.Settlement{Outcome: domain.InvalidInput, Text: "Invalid tool input: no JSON"})),
		reply(""), reply("  \n"), prompt("and the page"),
		reply("", call("call_1", "view", ``, succeeded(domain.Text("the page: "), png, domain.Media{MIME: "application/pdf", Data: []byte("%PDF")}, domain.Media{MIME: "video/mp4", Name: "v.mp4", Data: []byte("mp4")}, domain.Text("end"))),
			call("toolu_"+strings.Repeat("x", 80), "mcp.server/tool", `{"n":1}`, &domain.Settlement{Outcome: domain.Succeeded, Structured: json.RawMessage(`{"n":1}`)}),
			call("ünï code", strings.Repeat("long", 40), `{}`, &interrupted)),
		reply("Then", call("", "edit", `{"path":"c"}`, nil), call("call_1", "read", `{}`, succeeded(domain.Text("")))),
		reply("Done."),
		prompt("thanks"),
	}
}

// Every conversation that a log can have becomes a valid request, also in a turn without
// tools; the server of the test checks it.
func TestEveryConversationIsAValidRequest(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Text: "ok"}))
		p := provider(t, server, openai.Config{API: format})
		messages := hardConversation()
		for n := 1; n <= len(messages); n++ {
			asked := turn(messages[:n]...)
			disabled := asked
			disabled.Disabled, disabled.Instruction = true, "Answer in text."
			for _, asked := range []runner.Turn{asked, disabled} {
				if got := ask(t, p, asked); got.err != nil || got.text != "ok" {
					t.Errorf("with %d messages the reply is %q, %v", n, got.text, got.err)
				}
			}
		}
	})
}

// The same conversation gives the same request, byte for byte.
func TestTheSameTurnIsTheSameRequest(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Text: "ok"}))
		asked := turn(hardConversation()...)
		asked.Tools = []domain.Definition{{Name: "read", Description: "Reads.", Input: json.RawMessage(`{"type":"object","properties":{"z":{},"a":{}}}`)}}
		for range 10 {
			ask(t, provider(t, server, openai.Config{API: format}), asked)
		}
		for _, r := range server.Requests() {
			if string(r.Body) != string(server.Requests()[0].Body) {
				t.Fatalf("two requests differ:\n%s\n%s", r.Body, server.Requests()[0].Body)
			}
		}
		if first := string(server.Requests()[0].Body); !strings.Contains(first, `"properties":{"z":{},"a":{}}`) {
			t.Errorf("the properties have lost their order: %s", first)
		}
	})
}

// messagesOf returns the messages or items of the last request, each as JSON with sorted
// keys.
func messagesOf(t *testing.T, server *providerstest.ModelServer) []string {
	t.Helper()
	requests := server.Requests()
	decoded := body(t, requests[len(requests)-1])
	list, ok := decoded["messages"].([]any)
	if !ok {
		list, _ = decoded["input"].([]any)
	}
	var all []string
	for _, m := range list {
		all = append(all, compact(t, m))
	}
	return all
}

// Results are what the format has for them: an error and structured output as text, raw
// arguments as the model wrote them, images in a user message of Chat Completions and as
// parts of the output in Responses. Media that no model reads are named.
func TestResultsAreGivenInTheFormatOfTheAPI(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Text: "ok"}))
		asked := turn(hardConversation()...)
		asked.Instruction = "Answer in text."
		ask(t, provider(t, server, openai.Config{API: format}), asked)
		got := messagesOf(t, server)
		want := []string{
			`"Invalid tool input: no JSON"`, `"{\"path\": b"`, `"Tool execution interrupted`, `"` + conversation.OutcomeUnknown + `"`, `"{\"n\":1}"`,
			`[video/mp4 v.mp4 of 3 bytes is omitted: this model cannot read it]`, `data:image/png;base64,iVBORw==`, `data:application/pdf;base64,JVBERg==`, `"Answer in text."`,
		}
		if format == openai.ChatCompletions {
			want = append(want, `the page: [image/png page.png: see the next message of the user][application/pdf`, `{"content":"Be brief.","role":"system"}`)
		} else {
			want = append(want, `{"image_url":"data:image/png;base64,iVBORw==","type":"input_image"}`, `{"file_data":"data:application/pdf;base64,JVBERg==","filename":"file.pdf","type":"input_file"}`)
		}
		for _, text := range want {
			if !contains(got, text) {
				t.Errorf("no message has %s:\n%s", text, strings.Join(got, "\n"))
			}
		}
		if last := got[len(got)-1]; !strings.Contains(last, "Answer in text.") || !strings.Contains(last, `"role":"user"`) {
			t.Errorf("the last message is %s, want the instruction", last)
		}
	})
}

// A prompt has its images and files before its text, and names media that the API does not
// accept.
func TestPromptsAreSentWithTheirMedia(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Text: "ok"}))
		shows, only := prompt("and this?"), prompt("")
		shows.Prompt.Media = domain.Contents{png, domain.Media{MIME: "application/pdf", Name: "a.pdf", Data: []byte("%PDF")}, domain.Media{MIME: "video/mp4", Data: []byte("mp4")}}
		only.Prompt.Media = domain.Contents{png}
		if got := ask(t, provider(t, server, openai.Config{API: format}), turn(only, reply("Yes."), shows)); got.err != nil {
			t.Fatal(got.err)
		}
		want := map[openai.WireFormat][2]string{
			openai.ChatCompletions: {
				`{"content":[{"image_url":{"url":"data:image/png;base64,iVBORw=="},"type":"image_url"}],"role":"user"}`,
				`{"content":[{"image_url":{"url":"data:image/png;base64,iVBORw=="},"type":"image_url"},{"file":{"file_data":"data:application/pdf;base64,JVBERg==","filename":"a.pdf"},"type":"file"},` +
					`{"text":"[video/mp4 of 3 bytes is omitted: this model cannot read it]","type":"text"},{"text":"and this?","type":"text"}],"role":"user"}`,
			},
			openai.Responses: {
				`{"content":[{"detail":"auto","image_url":"data:image/png;base64,iVBORw==","type":"input_image"}],"role":"user"}`,
				`{"content":[{"detail":"auto","image_url":"data:image/png;base64,iVBORw==","type":"input_image"},{"file_data":"data:application/pdf;base64,JVBERg==","filename":"a.pdf","type":"input_file"},` +
					`{"text":"[video/mp4 of 3 bytes is omitted: this model cannot read it]","type":"input_text"},{"text":"and this?","type":"input_text"}],"role":"user"}`,
			},
		}[format]
		got := messagesOf(t, server)
		for _, text := range want {
			if !contains(got, text) {
				t.Errorf("no message is %s:\n%s", text, strings.Join(got, "\n"))
			}
		}
	})
}

// The system prompt of Responses is in the instructions.
func TestTheSystemPromptIsSent(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(openai.Responses, providerstest.OpenAIReply{Text: "ok"}))
	ask(t, provider(t, server, openai.Config{API: openai.Responses}), turn(prompt("go")))
	if got := body(t, server.Requests()[0])["instructions"]; got != "Be brief." {
		t.Errorf("instructions = %v", got)
	}
}

// A turn without tools sends the tools that the history names, with tool_choice none; and
// without calls in the history neither.
func TestADisabledTurnForbidsCalls(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Text: "ok"}))
		p := provider(t, server, openai.Config{API: format})
		plain, withCalls := turn(prompt("go")), turn(prompt("go"), reply("", call("c", "read", `{}`, succeeded(domain.Text("x")))))
		plain.Disabled, withCalls.Disabled = true, true
		ask(t, p, plain)
		ask(t, p, withCalls)
		first, second := body(t, server.Requests()[0]), body(t, server.Requests()[1])
		if first["tools"] != nil || first["tool_choice"] != nil {
			t.Errorf("a turn without calls sent %v and %v", first["tools"], first["tool_choice"])
		}
		if tools := compact(t, second["tools"]); second["tool_choice"] != "none" || !strings.Contains(tools, `"name":"read"`) {
			t.Errorf("a turn with calls sent %s and %v, want the tool read and none", tools, second["tool_choice"])
		}
	})
}

// The record of a request has each member of the body but those of the conversation, and
// the tools as they are sent.
func TestTheRecordIsTheRequest(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		warm := 0.0
		server := serve(t, replies(format, providerstest.OpenAIReply{Text: "ok"}))
		p := provider(t, server, openai.Config{API: format, MaxOutputTokens: 500, Temperature: &warm, ReasoningEffort: "low"})
		asked := turn(prompt("go"))
		asked.Tools = []domain.Definition{{Name: "read", Description: "Reads.", Input: json.RawMessage(`{"type":"object","properties":{"p":{"type":"string"}},"required":["p"]}`)}}
		record, err := p.PrepareRequest(asked)
		if err != nil {
			t.Fatal(err)
		}
		ask(t, p, asked)
		sent := body(t, server.Requests()[0])
		schemas := compact(t, sent["tools"])
		for _, member := range []string{"messages", "input", "instructions", "tools"} {
			delete(sent, member)
		}
		if got := compact(t, json.RawMessage(record.Parameters)); !sameJSON(t, got, compact(t, sent)) {
			t.Errorf("the record has the parameters %s, and the request %s", got, compact(t, sent))
		}
		if !sameJSON(t, record.Schemas, schemas) {
			t.Errorf("the record has the schemas %s, and the request %s", record.Schemas, schemas)
		}
		for _, text := range []string{`"low"`, `500`, `"temperature":0`, `"stream":true`} {
			if !strings.Contains(record.Parameters, text) {
				t.Errorf("the parameters %s lack %s", record.Parameters, text)
			}
		}
	})
}

// sameJSON reports whether two texts are the same JSON.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		t.Fatalf("%s or %s is no JSON", a, b)
	}
	return compact(t, x) == compact(t, y)
}

// Responses stores nothing, names no earlier response, and asks for encrypted reasoning
// only from models that have it.
func TestResponsesAreNotStored(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(openai.Responses, providerstest.OpenAIReply{Text: "ok"}))
	for model, want := range map[string]string{"gpt-5": `["reasoning.encrypted_content"]`, "gpt-4.1": "null", "openai/gpt-4o-mini": "null"} {
		p := provider(t, server, openai.Config{API: openai.Responses, Model: model, ReasoningEffort: "high"})
		ask(t, p, turn(prompt("go")))
		requests := server.Requests()
		sent := body(t, requests[len(requests)-1])
		if sent["store"] != false || sent["previous_response_id"] != nil || sent["model"] != model || compact(t, sent["include"]) != want {
			t.Errorf("%s: store %v, include %s, want false and %s", model, sent["store"], compact(t, sent["include"]), want)
		}
	}
}

// Reasoning items go back to the same provider and model, before the text or the call that
// followed them, and to no other.
func TestReasoningGoesBackToItsModel(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(openai.Responses, whole, providerstest.OpenAIReply{Text: "ok"}))
	p := provider(t, server, openai.Config{API: openai.Responses})
	first := ask(t, p, turn(prompt("go")))
	if len(first.items) != 1 || first.items[0].Provider != "openai" || first.items[0].Model != "m-1" {
		t.Fatalf("the reply has the items %+v, want one", first.items)
	}
	answered := reply(first.text)
	for _, c := range first.calls {
		answered.Reply.Calls = append(answered.Reply.Calls, conversation.ReplyCall{Call: c, Settlement: succeeded(domain.Text("x"))})
	}
	answered.Reply.Items = []events.ProviderItem{events.ProviderItem(first.items[0])}
	asked := turn(prompt("go"), answered)
	ask(t, p, asked)
	got := messagesOf(t, server)
	if len(got) != 9 || !strings.Contains(got[1], `"encrypted_content":"gAAAA"`) || !strings.Contains(got[1], `"type":"reasoning"`) {
		t.Errorf("the request has the items\n%s\nwant the reasoning item behind the prompt", strings.Join(got, "\n"))
	}
	other := asked
	other.Model = "m-2"
	ask(t, p, other)
	if got := messagesOf(t, server); contains(got, "gAAAA") {
		t.Errorf("a request to another model has the item:\n%s", strings.Join(got, "\n"))
	}
	ask(t, provider(t, server, openai.Config{Name: "acme", API: openai.Responses}), asked)
	if got := messagesOf(t, server); contains(got, "gAAAA") {
		t.Errorf("a request to another provider has the item:\n%s", strings.Join(got, "\n"))
	}
}

// A reasoning item keeps its place between the texts and calls of its reply. An item that
// nothing followed is left out.
func TestReasoningKeepsItsPlace(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(openai.Responses, providerstest.OpenAIReply{Text: "ok"}))
	item := func(id string, text, calls int) events.ProviderItem {
		data := compact(t, map[string]any{"text": text, "calls": calls, "item": map[string]any{"type": "reasoning", "id": id, "summary": []any{}, "encrypted_content": id}})
		return events.ProviderItem{Provider: "openai", Model: "m-1", Data: json.RawMessage(data)}
	}
	answered := reply("one two", call("c1", "read", `{}`, succeeded(domain.Text("x"))), call("c2", "read", `{}`, succeeded(domain.Text("y"))))
	answered.Reply.Items = []events.ProviderItem{item("rs_a", 0, 0), item("rs_b", 3, 0), item("rs_c", 7, 1), item("rs_d", 7, 2), {Provider: "openai", Model: "m-1", Data: json.RawMessage(`7`)}}
	ask(t, provider(t, server, openai.Config{API: openai.Responses}), turn(prompt("go"), answered))
	var order []string
	for _, m := range messagesOf(t, server) {
		for _, mark := range []string{"rs_a", "rs_b", "rs_c", "rs_d", `"one"`, `" two"`, `"c1"`, `"c2"`} {
			if strings.Contains(m, mark) {
				order = append(order, mark)
			}
		}
	}
	if want := []string{"rs_a", `"one"`, "rs_b", `" two"`, `"c1"`, "rs_c", `"c2"`, `"c1"`, `"c2"`}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
}

// If the server cannot read the reasoning items, the request is sent once more without
// them.
func TestUnreadableReasoningIsLeftOut(t *testing.T) {
	t.Parallel()
	server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
		if strings.Contains(string(r.Body), `"type":"reasoning"`) {
			return providerstest.OpenAIFailure(400, "invalid_encrypted_content", "The encrypted content could not be verified.")
		}
		return providerstest.ModelAnswer{Chunks: stream(openai.Responses, providerstest.OpenAIReply{Text: "ok"})}
	})
	answered := reply("one")
	answered.Reply.Items = []events.ProviderItem{{Provider: "openai", Model: "m-1", Data: json.RawMessage(`{"item":{"type":"reasoning","id":"rs_a","summary":[],"encrypted_content":"g"}}`)}}
	got := ask(t, provider(t, server, openai.Config{API: openai.Responses}), turn(prompt("go"), answered, prompt("on")))
	if got.err != nil || got.text != "ok" || len(server.Requests()) != 2 {
		t.Errorf("after %d requests the reply is %q, %v; want two requests and the reply", len(server.Requests()), got.text, got.err)
	}
}

// The limit of a reply has the name that the server knows.
func TestTheLimitOfAReplyIsSent(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(openai.ChatCompletions, providerstest.OpenAIReply{Text: "ok"}))
	ask(t, provider(t, server, openai.Config{MaxOutputTokens: 50}), turn(prompt("go")))
	if got := body(t, server.Requests()[0])["max_tokens"]; got != 50.0 {
		t.Errorf("max_tokens = %v, want 50", got)
	}
}
