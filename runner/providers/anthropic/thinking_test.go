package anthropic_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/anthropic"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// signed returns a block of signed thinking of this provider and model.
func signed(data string) events.ProviderItem {
	return events.ProviderItem{Provider: "anthropic", Model: "m-1", Data: json.RawMessage(data)}
}

// A budget for thinking is sent to the models that take one. Later models decide by
// themselves, and take no temperature. Without a budget no request mentions thinking.
func TestThinkingIsAskedForInTheFormOfTheModel(t *testing.T) {
	t.Parallel()
	const budget, adaptive = `{"budget_tokens":2048,"type":"enabled"}`, `{"display":"summarized","type":"adaptive"}`
	for model, want := range map[string]string{
		"m-1": budget, "claude-3-7-sonnet-20250219": budget, "claude-opus-4-20250514": budget, "claude-opus-4-1": budget, "claude-opus-4-6": budget, "claude-sonnet-4-6": budget,
		"proxy/claude-haiku-4-5": budget, "claude-opus-4-7": adaptive, "claude-opus-4-8": adaptive, "proxy/claude-sonnet-5": adaptive, "claude-mythos-preview": adaptive,
	} {
		half := 0.5
		for _, c := range []struct {
			config anthropic.Config
			want   string
		}{{anthropic.Config{ThinkingBudget: 2048}, want}, {anthropic.Config{}, ""}, {anthropic.Config{Temperature: &half}, ""}} {
			server := serve(t, replies(everything))
			asked := turn(prompt("go"))
			asked.Model = model
			err := ask(t, provider(t, server, c.config), asked).err
			if _, refused := errors.AsType[*runner.IncompatibleError](err); c.config.Temperature != nil && want == adaptive {
				if !refused || len(server.Requests()) != 0 {
					t.Errorf("a temperature for %s ends with %v, want an IncompatibleError", model, err)
				}
				continue
			}
			if err != nil || string(body(t, server)["thinking"]) != c.want {
				t.Errorf("%s is sent the thinking %s, %v, want %s", model, body(t, server)["thinking"], err, c.want)
			}
		}
	}
}

// A reply that is under way and does not start with thinking goes on without thinking: the
// API refuses a budget for it. The turn behind it thinks again.
func TestAForeignReplyGoesOnWithoutThinking(t *testing.T) {
	t.Parallel()
	result := succeeded(domain.Text("x"))
	own := reply("", call("a", "read", `{}`, result))
	own.Reply.Items = []events.ProviderItem{signed(`{"type":"redacted_thinking","data":"d"}`)}
	foreign, text := reply("", call("b", "read", `{}`, result)), reply("Done.")
	for _, c := range []struct {
		messages []conversation.Message
		thinks   bool
	}{
		{[]conversation.Message{prompt("go"), own}, true},
		{[]conversation.Message{prompt("go"), own, foreign}, true},
		{[]conversation.Message{prompt("go"), foreign}, false},
		{[]conversation.Message{prompt("go"), foreign, own}, false},
		{[]conversation.Message{prompt("go"), foreign, text, prompt("more")}, true},
		{[]conversation.Message{prompt("go"), own, prompt("steer"), foreign}, false},
		{[]conversation.Message{foreign}, false},
	} {
		server := serve(t, replies(everything))
		asked := turn(c.messages...)
		p := provider(t, server, anthropic.Config{ThinkingBudget: 2048})
		record, err := p.PrepareRequest(asked)
		if got := ask(t, p, asked); got.err != nil || err != nil {
			t.Fatal(got.err, err)
		}
		if thinks := body(t, server)["thinking"] != nil; thinks != c.thinks || strings.Contains(record.Parameters, `"thinking"`) != c.thinks {
			t.Errorf("the request %s thinks: %t, recorded as %s, want %t", server.Requests()[0].Body, thinks, record.Parameters, c.thinks)
		}
	}
}

// Thinking between texts and calls goes back in its place, exactly as it came. Thinking
// that nothing follows is left out.
func TestThinkingKeepsItsPlace(t *testing.T) {
	t.Parallel()
	event := func(kind string, data map[string]any) string {
		data["type"] = kind
		return providerstest.AnthropicEvent(kind, data)
	}
	type object = map[string]any
	stream := []string{event("message_start", object{"message": object{"model": "m-1"}})}
	for i, block := range []object{
		{"type": "thinking", "thinking": "T1", "signature": "S1"}, {"type": "text", "text": "Zwölf "}, {"type": "redacted_thinking", "data": "R"}, {"type": "text", "text": "ja"},
		{"type": "tool_use", "id": "c1", "name": "read", "input": object{}}, {"type": "thinking", "thinking": "", "signature": "S2"}, {"type": "tool_use", "id": "c2", "name": "read", "input": object{}},
		{"type": "thinking", "thinking": "unsigned"}, {"type": "thinking", "thinking": "T3", "signature": "S3"},
	} {
		stream = append(stream, event("content_block_start", object{"index": i, "content_block": block}), event("content_block_stop", object{"index": i}))
	}
	stream = append(stream, event("message_delta", object{"delta": object{"stop_reason": "tool_use"}}), event("message_delta", object{"usage": object{"output_tokens": 3}}), event("message_stop", object{}))
	server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: stream}
	})
	p := provider(t, server, anthropic.Config{ThinkingBudget: 2048})
	got := ask(t, p, turn(prompt("go")))
	if got.err != nil || got.finish.Reason != "tool_use" || got.finish.Tokens.Output != 3 || len(got.items) != 4 || got.inputs() != "c1 read {}; c2 read {}" {
		t.Fatalf("the reply is %+v, want four signed blocks and two calls", got)
	}
	m := reply(got.text, call("c1", "read", `{}`, succeeded(domain.Text("x"))), call("c2", "read", `{}`, succeeded(domain.Text("y"))))
	for _, item := range got.items {
		m.Reply.Items = append(m.Reply.Items, events.ProviderItem(item))
	}
	ask(t, p, turn(prompt("go"), m))
	sent := string(server.Requests()[1].Body)
	var order []string
	for _, mark := range regexp.MustCompile(`"(T1|S1|Zwölf |R|ja|c1|S2|c2|S3|unsigned)"`).FindAllStringSubmatch(sent, -1) {
		order = append(order, mark[1])
	}
	if got, want := strings.Join(order, "|"), "S1|T1|Zwölf |R|ja|c1|S2|c2|c1|c2"; got != want {
		t.Errorf("the request has the order %s, want %s: %s", got, want, sent)
	}
}

// A model that decides by itself how much it thinks gets its thinking back without a
// budget too.
func TestThinkingGoesBackWithoutABudget(t *testing.T) {
	t.Parallel()
	m := reply("ok", call("c", "read", `{}`, nil))
	m.Reply.Items = []events.ProviderItem{{Provider: "anthropic", Model: "claude-sonnet-5", Data: json.RawMessage(`{"type":"thinking","signature":"s"}`)}, {Provider: "anthropic", Model: "claude-haiku-4-5", Data: json.RawMessage(`{"type":"thinking","signature":"s"}`)}}
	for model, want := range map[string]int{"claude-sonnet-5": 1, "claude-haiku-4-5": 0} {
		server := serve(t, replies(everything))
		asked := turn(prompt("go"), m)
		asked.Model = model
		got := ask(t, provider(t, server, anthropic.Config{}), asked)
		if n := strings.Count(string(server.Requests()[0].Body), `"signature":"s"`); got.err != nil || n != want {
			t.Errorf("a request to %s has the thinking %d times, %v, want %d", model, n, got.err, want)
		}
	}
}

// Items of hostile or old records do not break a request.
func TestOddThinkingIsStillAValidRequest(t *testing.T) {
	t.Parallel()
	for _, data := range []string{
		`{"type":"thinking","thinking":"x","signature":"s","text":-3,"calls":-1}`, `{"type":"thinking","signature":"s","text":1,"calls":99}`, `{"type":"thinking","signature":"s","text":99}`,
		`{"type":"thinking","signature":"s","text":1e99}`, `{"type":"text"}`, `null`, `[]`,
	} {
		m := reply("ü \n", call("c", "read", `{}`, nil))
		m.Reply.Items = []events.ProviderItem{signed(data), signed(data)}
		silent := reply(" ")
		silent.Reply.Items = m.Reply.Items
		for _, messages := range [][]conversation.Message{{prompt("go"), m}, {prompt("go"), m, silent}, {silent}, {prompt("go"), silent, prompt("on")}} {
			server := serve(t, replies(everything))
			if got := ask(t, provider(t, server, anthropic.Config{ThinkingBudget: 2048}), turn(messages...)); got.err != nil {
				t.Errorf("with the item %s the request ends with %v", data, got.err)
			}
		}
	}
}
