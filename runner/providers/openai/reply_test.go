package openai_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/openai"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// whole is a reply with all that a reply can have.
var whole = providerstest.OpenAIReply{
	Thinking: "Two files, I think.", Encrypted: "gAAAA", Text: "Ich prüfe die Dateien.",
	Calls: []providerstest.OpenAICall{
		{ID: "call_a", Name: "read", Arguments: `{"path":"a.go"}`}, {ID: "call_b", Name: "read", Arguments: `{"path":"b.go","limit":10}`},
		{ID: "call_c", Name: "glob", Arguments: `{}`},
	},
}

const wholeCalls = `call_a read {"path":"a.go"}; call_b read {"path":"b.go","limit":10}; call_c glob {}`

// A streamed reply has its text, its reasoning, each parallel call, the finish reason as
// the server spells it, the model that replied, and the token counts.
func TestAReplyIsReadWhole(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, whole))
		got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
		if got.err != nil || got.text != whole.Text || got.thinking != whole.Thinking || got.inputs() != wholeCalls {
			t.Errorf("the reply is %q, %q, %s, %v", got.text, got.thinking, got.inputs(), got.err)
		}
		want := runner.FinishPart{Reason: "tool_calls", Model: "m-1-served", Tokens: events.Tokens{Input: 40, Output: 20, CacheRead: 60}}
		if format == openai.Responses {
			want.Reason = "completed"
		}
		if got.finish == nil || *got.finish != want {
			t.Errorf("the reply ended with %v, want %v", got.finish, want)
		}
	})
}

// A refusal is the text of the reply, with the finish reason of the server.
func TestARefusalIsText(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Refusal: "I cannot help with that.", Finish: "content_filter"}))
		got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
		if got.err != nil || got.text != "I cannot help with that." || got.finish == nil || got.finish.Reason != "content_filter" {
			t.Errorf("the reply is %q, %v, %v; want the refusal", got.text, got.finish, got.err)
		}
	})
}

// An empty reply ends in order, without a part but its end.
func TestAnEmptyReplyEnds(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{}))
		got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
		if got.err != nil || got.text+got.thinking+got.inputs() != "" || got.finish == nil {
			t.Errorf("the reply is %+v, want an empty one", got)
		}
	})
}

// If the model stops for want of tokens, the call that broke off has a JSON string as its
// input, even if its text so far is JSON, and the calls before it are whole.
func TestACallThatBrokeOffHasNoInput(t *testing.T) {
	for _, text := range []string{`{"path":"b.g`, `{"path":"b"}`, `{}`, `1`, ``} {
		t.Run(text, func(t *testing.T) {
			eachFormat(t, func(t *testing.T, format openai.WireFormat) {
				finish := "length"
				if format == openai.Responses {
					finish = "max_output_tokens"
				}
				server := serve(t, replies(format, providerstest.OpenAIReply{Finish: finish, Calls: []providerstest.OpenAICall{
					{ID: "call_a", Name: "read", Arguments: `{"path":"a.go"}`}, {ID: "call_b", Name: "read", Arguments: text},
				}}))
				got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
				if got.err != nil || got.finish == nil || got.finish.Reason != finish || len(got.calls) != 2 {
					t.Fatalf("the reply is %+v, want two calls and the reason %s", got, finish)
				}
				if string(got.calls[0].Input) != `{"path":"a.go"}` || !isString(got.calls[1].Input) {
					t.Errorf("the calls are %s, want the first whole and the second a JSON string", got.inputs())
				}
			})
		})
	}
}

// Arguments that are no JSON are passed on as they came.
func TestMalformedArgumentsArePassedOn(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Calls: []providerstest.OpenAICall{{ID: "call_a", Name: "read", Arguments: `{"path": a.go`}}}))
		got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
		if want := "call_a read {\"path\": a.go"; got.err != nil || got.inputs() != want {
			t.Errorf("the calls are %s, %v; want %s", got.inputs(), got.err, want)
		}
	})
}

// Two calls with one ID are passed on; the runner refuses such a reply.
func TestTwoCallsWithOneIDArePassedOn(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Calls: []providerstest.OpenAICall{
			{ID: "call_a", Name: "read", Arguments: `{"n":1}`}, {ID: "call_a", Name: "read", Arguments: `{"n":2}`},
		}}))
		got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
		if want := `call_a read {"n":1}; call_a read {"n":2}`; got.err != nil || got.inputs() != want {
			t.Errorf("the calls are %s, %v; want %s", got.inputs(), got.err, want)
		}
	})
}

// A call without an ID gets one in Chat Completions, the same for the same reply. In
// Responses its ID stays empty, and the runner refuses the reply.
func TestACallWithoutAnID(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, replies(format, providerstest.OpenAIReply{Calls: []providerstest.OpenAICall{
			{Name: "read", Arguments: `{"n":1}`}, {Name: "read", Arguments: `{"n":2}`},
		}}))
		p, asked := provider(t, server, openai.Config{API: format}), turn(prompt("go"))
		got, again := ask(t, p, asked), ask(t, p, asked)
		if got.err != nil || len(got.calls) != 2 || got.inputs() != again.inputs() {
			t.Fatalf("the calls are %s and then %s, %v", got.inputs(), again.inputs(), got.err)
		}
		made := got.calls[0].ID != "" && got.calls[1].ID != "" && got.calls[0].ID != got.calls[1].ID
		if made != (format == openai.ChatCompletions) {
			t.Errorf("the calls are %s", got.inputs())
		}
	})
}

// 200 calls of one reply are all read, in order.
func TestManyCallsAreRead(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		var many []providerstest.OpenAICall
		for range 200 {
			many = append(many, providerstest.OpenAICall{ID: "call_" + mint.Message().String(), Name: "read", Arguments: `{"path":"a"}`})
		}
		server := serve(t, replies(format, providerstest.OpenAIReply{Calls: many}))
		got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
		if got.err != nil || len(got.calls) != len(many) {
			t.Fatalf("%d calls, %v; want %d", len(got.calls), got.err, len(many))
		}
		for i, c := range got.calls {
			if string(c.ID) != many[i].ID {
				t.Errorf("call %d is %s, want %s", i, c.ID, many[i].ID)
			}
		}
	})
}

// A stream that is cut at any chunk is an error, with the parts before the cut: the text
// is a prefix, and an input that is not whole is a JSON string.
func TestACutStreamIsAnError(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		chunks := stream(format, whole)
		cuts := chunks
		if os.Getenv("LEDGER_TEST_LONG") != "" {
			cuts = strings.Split(strings.Join(chunks, ""), "")
		}
		for _, end := range []providerstest.AnswerEnd{providerstest.EndWhole, providerstest.EndReset} {
			server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
				return providerstest.ModelAnswer{Chunks: []string{strings.Join(cuts[:r.Number], "")}, End: end}
			})
			p := provider(t, server, openai.Config{API: format})
			for n := range cuts {
				sent := strings.Join(cuts[:n], "")
				checkCut(t, format, sent, end, ask(t, p, turn(prompt("go"))))
			}
		}
	})
}

// checkCut checks the reply from a stream that ended after sent.
func checkCut(t *testing.T, format openai.WireFormat, sent string, end providerstest.AnswerEnd, got received) {
	t.Helper()
	if format == openai.ChatCompletions && strings.Contains(sent, `"finish_reason":"tool_calls"`) && strings.Contains(sent[strings.Index(sent, `"finish_reason":"tool_calls"`):], "\n\n") && end == providerstest.EndWhole {
		if got.err != nil || got.inputs() != wholeCalls {
			t.Errorf("a stream that ends behind its finish reason has %s, %v; want the whole reply", got.inputs(), got.err)
		}
		return
	}
	if strings.Contains(sent, "data: [DONE]\n\n") {
		return
	}
	failed, ok := errors.AsType[*runner.ProviderError](got.err)
	if !ok || failed.Failure != runner.StreamCut || failed.Request != "req_local" || got.finish != nil {
		t.Fatalf("after %q came %v, %v; want a cut stream of the request req_local", sent, got.err, got.finish)
	}
	if !strings.HasPrefix(whole.Text, got.text) || !strings.HasPrefix(whole.Thinking, got.thinking) {
		t.Errorf("after %q the reply is %q, %q", sent, got.text, got.thinking)
	}
	for i, c := range got.calls {
		if !isString(c.Input) && string(c.Input) != whole.Calls[i].Arguments {
			t.Errorf("after %q call %d has the input %s", sent, i, c.Input)
		}
	}
	if n := len(got.calls); n > 0 && n < len(whole.Calls) && format == openai.ChatCompletions && !isString(got.calls[n-1].Input) {
		t.Errorf("after %q the last call has the input %s, want a JSON string", sent, got.calls[n-1].Input)
	}
}
