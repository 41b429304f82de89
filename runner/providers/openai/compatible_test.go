package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/openai"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// sse returns the events of a stream, each with its data.
func sse(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		fmt.Fprintf(&b, "data: %s\n\n", d)
	}
	return b.String()
}

// delta returns a chunk of Chat Completions without the members that no reader needs.
func delta(members string) string { return `{"choices":[{"delta":{` + members + `}}]}` }

// toolDelta returns a chunk with one delta of a call.
func toolDelta(members string) string { return delta(`"tool_calls":[{` + members + `}]`) }

// The streams of compatible servers, which leave members out or add some, are read.
func TestStreamsOfCompatibleServersAreRead(t *testing.T) {
	t.Parallel()
	const stop, done = `{"choices":[{"delta":{},"finish_reason":"stop"}]}`, "[DONE]"
	const usage = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}}`
	for name, c := range map[string]struct {
		stream, text, calls, finish string
		tokens                      events.Tokens
	}{
		"no done":               {sse(delta(`"content":"hi"`), stop), "hi", "", "stop", events.Tokens{}},
		"no finish reason":      {sse(delta(`"content":"hi"`), `{"choices":[{"delta":{},"finish_reason":null}]}`, done), "hi", "", "", events.Tokens{}},
		"finish with the text":  {sse(`{"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}`, done), "hi", "", "stop", events.Tokens{}},
		"usage in the end":      {sse(delta(`"content":"hi"`), stop, usage, done), "hi", "", "stop", events.Tokens{Input: 7, Output: 2}},
		"usage in each chunk":   {sse(`{"choices":[{"delta":{"content":"hi"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}`, stop, usage, done), "hi", "", "stop", events.Tokens{Input: 7, Output: 2}},
		"usage in another form": {sse(delta(`"content":"hi"`), `{"choices":[],"usage":"many"}`, stop, done), "hi", "", "stop", events.Tokens{}},
		"comments":              {": keep-alive\n\n" + sse(delta(`"content":"h"`)) + ": ping\n\n:\n\n" + sse(delta(`"content":"i"`), stop, done), "hi", "", "stop", events.Tokens{}},
		"carriage returns":      {strings.ReplaceAll(sse(delta(`"content":"hi"`), stop, done), "\n", "\r\n"), "hi", "", "stop", events.Tokens{}},
		"no space":              {strings.ReplaceAll(sse(delta(`"content":"hi"`), stop, done), "data: ", "data:"), "hi", "", "stop", events.Tokens{}},
		"text behind done":      {sse(delta(`"content":"hi"`), stop, done, delta(`"content":"no"`)), "hi", "", "stop", events.Tokens{}},
		"null error":            {sse(`{"error":null,"choices":[{"delta":{"content":"hi"}}]}`, stop, done), "hi", "", "stop", events.Tokens{}},
		"null members":          {sse(`{"id":null,"model":null,"usage":null,"choices":[{"index":0,"delta":{"content":"hi","refusal":null,"tool_calls":null,"function_call":null},"finish_reason":null}]}`, stop, done), "hi", "", "stop", events.Tokens{}},
		"parts of content":      {sse(delta(`"content":[{"type":"text","text":"h"},{"type":"text","text":"i"}]`), stop, done), "hi", "", "stop", events.Tokens{}},
		"a second choice":       {sse(`{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"hi"}}]}`, stop, done), "hi", "", "stop", events.Tokens{}},
		"an empty event":        {"data:\n\ndata: {}\n\n" + sse(delta(`"content":"hi"`), stop, done), "hi", "", "stop", events.Tokens{}},
		"arguments in one piece": {sse(toolDelta(`"index":0,"id":"a","function":{"name":"read","arguments":"{\"n\":1}"}`), toolDelta(`"index":1,"id":"b","function":{"name":"read","arguments":"{\"n\":2}"}`), stop, done),
			"", `a read {"n":1}; b read {"n":2}`, "stop", events.Tokens{}},
		"arguments as an object": {sse(toolDelta(`"index":0,"id":"a","function":{"name":"read","arguments":{"n":1}}`), stop, done), "", `a read {"n":1}`, "stop", events.Tokens{}},
		"no arguments":           {sse(toolDelta(`"index":0,"id":"a","function":{"name":"read"}`), stop, done), "", `a read `, "stop", events.Tokens{}},
		"all calls in one chunk": {sse(delta(`"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"glob","arguments":"{}"}}]`), stop, done), "", `a read {}; b glob {}`, "stop", events.Tokens{}},
		"calls between calls": {sse(toolDelta(`"index":0,"id":"a","function":{"name":"read","arguments":"{\"n\""}`), toolDelta(`"index":1,"id":"b","function":{"name":"glob","arguments":"{}"}`), toolDelta(`"index":0,"function":{"arguments":":1}"}`), stop, done),
			"", `a read {"n":1}; b glob {}`, "stop", events.Tokens{}},
		"no index": {sse(toolDelta(`"id":"a","function":{"name":"read","arguments":"{\"n\":"}`), toolDelta(`"function":{"arguments":"1}"}`), toolDelta(`"id":"b","function":{"name":"read","arguments":"{}"}`), stop, done),
			"", `a read {"n":1}; b read {}`, "stop", events.Tokens{}},
		"one index for all": {sse(toolDelta(`"index":0,"id":"a","function":{"name":"read","arguments":"{\"n\":1}"}`), toolDelta(`"index":0,"id":"b","function":{"name":"read","arguments":"{\"n\":2}"}`), stop, done),
			"", `a read {"n":1}; b read {"n":2}`, "stop", events.Tokens{}},
		"the ID in each delta": {sse(toolDelta(`"index":0,"id":"a","function":{"name":"read","arguments":"{\"n\""}`), toolDelta(`"index":0,"id":"a","function":{"name":"read","arguments":":1}"}`), toolDelta(`"index":0,"id":"a","function":{"name":"read","arguments":""}`), stop, done),
			"", `a read {"n":1}`, "stop", events.Tokens{}},
		"the name in pieces": {sse(toolDelta(`"index":0,"id":"a","function":{"name":"re","arguments":""}`), toolDelta(`"index":0,"function":{"name":"ad","arguments":"{}"}`), stop, done), "", `a read {}`, "stop", events.Tokens{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
				return providerstest.ModelAnswer{Chunks: []string{c.stream}}
			})
			got := ask(t, provider(t, server, openai.Config{}), turn(prompt("go")))
			if got.err != nil || got.text != c.text || got.inputs() != c.calls || got.finish == nil || got.finish.Reason != c.finish || got.finish.Tokens != c.tokens {
				t.Errorf("the reply is %q, %s, %v, %v; want %q, %s, %s, %v", got.text, got.inputs(), got.finish, got.err, c.text, c.calls, c.finish, c.tokens)
			}
		})
	}
}

// Calls without index and ID are told apart by their names and their whole arguments.
func TestCallsWithoutIndexAndIDAreToldApart(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{
		sse(toolDelta(`"function":{"name":"read","arguments":"{\"n\":1}"}`), toolDelta(`"function":{"name":"read","arguments":"{\"n\":2}"}`), toolDelta(`"function":{"name":"glob","arguments":"{}"}`), "[DONE]"),
		sse(toolDelta(`"function":{"name":"read","arguments":"{\"n\""}`), toolDelta(`"function":{"name":"read","arguments":":1}"}`), toolDelta(`"function":{"name":"read","arguments":"{\"n\":2}"}`), toolDelta(`"function":{"name":"glob"}`), "[DONE]"),
		sse(toolDelta(`"index":0,"function":{"name":"read","arguments":"{\"n\":1}"}`), toolDelta(`"index":0,"function":{"name":"read","arguments":"{\"n\":2}"}`), delta(`"function_call":{"name":"glob","arguments":"{}"}`), "[DONE]"),
	} {
		server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
			return providerstest.ModelAnswer{Chunks: []string{stream}}
		})
		got := ask(t, provider(t, server, openai.Config{}), turn(prompt("go")))
		var calls []string
		for _, c := range got.calls {
			calls = append(calls, c.Name+strings.TrimPrefix(string(c.Input), "{}"))
		}
		if want := `[read{"n":1} read{"n":2} glob]`; got.err != nil || fmt.Sprint(calls) != want {
			t.Errorf("the calls of %s are %v, %v; want %s", stream, calls, got.err, want)
		}
	}
}

// Reasoning under either name is thinking, and once if a server sends both.
func TestReasoningOfCompatibleServersIsThinking(t *testing.T) {
	t.Parallel()
	server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: []string{sse(delta(`"reasoning":"a"`), delta(`"reasoning_content":"b"`), delta(`"reasoning":"c","reasoning_content":"c"`), delta(`"content":"hi"`), "[DONE]")}}
	})
	if got := ask(t, provider(t, server, openai.Config{}), turn(prompt("go"))); got.err != nil || got.thinking != "abc" || got.text != "hi" {
		t.Errorf("the reply is %q, %q, %v", got.thinking, got.text, got.err)
	}
}

// An error that a server reports in a stream, in each of the known forms, ends the reply
// with its text. The parts before it stay.
func TestErrorsInAStreamAreErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		format  openai.WireFormat
		event   string
		failure runner.FailureKind
	}{
		{openai.ChatCompletions, sse(`{"error":{"message":"disk on fire","type":"server_error","code":null}}`), runner.Overloaded},
		{openai.ChatCompletions, sse(`{"error":{"message":"disk on fire","code":502},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}`), runner.Overloaded},
		{openai.ChatCompletions, sse(`{"error":"disk on fire"}`), runner.StreamFailure},
		{openai.ChatCompletions, sse(`{"object":"error","message":"disk on fire","type":"BadRequestError","code":400}`), runner.InvalidRequest},
		{openai.ChatCompletions, "event: error\n" + sse(`{"error":{"message":"disk on fire"}}`), runner.StreamFailure},
		{openai.ChatCompletions, sse(`{"error":{"message":"disk on fire","code":"rate_limit_exceeded"}}`), runner.RateLimited},
		{openai.ChatCompletions, sse(`disk on fire`), runner.StreamFailure},
		{openai.ChatCompletions, sse(`["disk on fire"]`), runner.StreamFailure},
		{openai.Responses, "event: error\n" + sse(`{"type":"error","code":"server_error","message":"disk on fire","param":null,"sequence_number":3}`), runner.Overloaded},
		{openai.Responses, "event: error\n" + sse(`{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"disk on fire"}}`), runner.ContextExceeded},
		{openai.Responses, sse(`{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"disk on fire"}}}`), runner.RateLimited},
		{openai.Responses, sse(`{"error":{"message":"disk on fire"}}`), runner.StreamFailure},
		{openai.Responses, sse(`disk on fire`), runner.StreamFailure},
		{openai.Responses, sse(`{"type":"response.output_item.done","output_index":0,"item":"disk on fire"}`), runner.StreamFailure},
		{openai.Responses, sse(`{"type":"response.completed","response":"disk on fire"}`), runner.StreamFailure},
	} {
		before := sse(delta(`"content":"so far"`), toolDelta(`"index":0,"id":"a","function":{"name":"read","arguments":"{}"}`))
		if c.format == openai.Responses {
			before = sse(`{"type":"response.output_text.delta","output_index":0,"delta":"so far"}`, `{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"a","name":"read","arguments":""}}`, `{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{}"}`)
		}
		server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
			return providerstest.ModelAnswer{Chunks: []string{before, c.event}}
		})
		got := ask(t, provider(t, server, openai.Config{API: c.format}), turn(prompt("go")))
		failed := got.failure(t)
		if failed.Failure != c.failure || !strings.Contains(failed.Message, "disk on fire") || failed.Request != "req_local" {
			t.Errorf("%s: %v, want %s with the text and the request", c.event, failed, c.failure)
		}
		if got.text != "so far" || got.inputs() != `a read "{}"` || got.finish != nil {
			t.Errorf("%s: the reply so far is %q, %s, %v", c.event, got.text, got.inputs(), got.finish)
		}
	}
}

// A response that is one document is an error: the one that it reports, or that it is no
// stream.
func TestADocumentIsNoStream(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		for document, want := range map[string]string{
			`{"error":{"message":"disk on fire"}}`:                       "disk on fire",
			`{"choices":[{"message":{"content":"a whole completion"}}]}`: "a whole completion",
		} {
			server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
				return providerstest.ModelAnswer{Header: map[string][]string{"Content-Type": {"application/json"}}, Chunks: []string{document}}
			})
			got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
			if failed := got.failure(t); failed.Failure != runner.StreamFailure || !strings.Contains(failed.Message, want) {
				t.Errorf("%s: %v", document, failed)
			}
		}
	})
}

// A server of Responses that sends no deltas, or leaves the events of items out, is read
// from what it sends.
func TestSparseResponsesAreRead(t *testing.T) {
	t.Parallel()
	const message, call = `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"hi"}]}`, `{"type":"function_call","id":"fc_1","call_id":"a","name":"read","arguments":"{}"}`
	for name, stream := range map[string]string{
		"only the response":    sse(`{"type":"response.completed","response":{"status":"completed","output":[` + message + "," + call + `]}}`),
		"only done items":      sse(`{"type":"response.output_item.done","output_index":0,"item":`+message+`}`, `{"type":"response.output_item.done","output_index":1,"item":`+call+`}`, `{"type":"response.completed","response":{"status":"completed","output":[]}}`),
		"deltas and done":      sse(`{"type":"response.output_text.delta","output_index":0,"delta":"hi"}`, `{"type":"response.output_item.done","output_index":0,"item":`+message+`}`, `{"type":"response.completed","response":{"status":"completed","output":[`+message+","+call+`]}}`),
		"the type in the name": strings.ReplaceAll(sse(`{"response":{"status":"completed","output":[`+message+","+call+`]}}`), "data:", "event: response.completed\ndata:"),
		"arguments done":       sse(`{"type":"response.output_text.delta","delta":"hi"}`, `{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"a","name":"read","arguments":""}}`, `{"type":"response.function_call_arguments.done","output_index":1,"arguments":"{}"}`, `{"type":"response.completed","response":{"status":"completed"}}`),
		"unknown events":       sse(`{"type":"response.web_search_call.searching","output_index":7}`, `{"type":"keepalive"}`, `{"type":"response.completed","response":{"status":"completed","output":[`+message+","+call+`]}}`),
	} {
		server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
			return providerstest.ModelAnswer{Chunks: []string{stream}}
		})
		got := ask(t, provider(t, server, openai.Config{API: openai.Responses}), turn(prompt("go")))
		if got.err != nil || got.text != "hi" || got.inputs() != "a read {}" || got.finish == nil || got.finish.Reason != "completed" {
			t.Errorf("%s: the reply is %q, %s, %v, %v", name, got.text, got.inputs(), got.finish, got.err)
		}
	}
}

// An empty line separates the messages of one response.
func TestMessagesOfAResponseAreSeparated(t *testing.T) {
	t.Parallel()
	server := serve(t, replies(openai.Responses, providerstest.OpenAIReply{Text: "one", Refusal: "two"}))
	if got := ask(t, provider(t, server, openai.Config{API: openai.Responses}), turn(prompt("go"))); got.text != "one\n\ntwo" {
		t.Errorf("the text is %q, want the messages with an empty line between them", got.text)
	}
}

// A reply of more calls than a model makes ends as soon as there are too many: a server
// cannot make the client search without end.
func TestAReplyOfTooManyCallsEnds(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		var r providerstest.OpenAIReply
		for i := range 5000 {
			r.Calls = append(r.Calls, providerstest.OpenAICall{ID: fmt.Sprintf("call_%d", i), Name: "echo", Arguments: "{}"})
		}
		got := ask(t, provider(t, serve(t, replies(format, r)), openai.Config{API: format}), turn(prompt("go")))
		if failed := got.failure(t); failed.Failure != runner.StreamFailure || !strings.Contains(failed.Message, "more than 4096 calls") {
			t.Errorf("the reply ends with %v, want too many calls", failed)
		}
	})
}
