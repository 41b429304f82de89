package openai

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// decode returns the decoder of a response body, as the SDK makes it.
func decode(body []byte) ssestream.Decoder {
	return ssestream.NewDecoder(&http.Response{Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))})
}

// seeds adds streams to a corpus: whole ones, ones that stop early, and faulty events.
func seeds(f *testing.F, stream func(string, providerstest.OpenAIReply) []string, more ...string) {
	calls := []providerstest.OpenAICall{{ID: "a", Name: "read", Arguments: `{"n":1}`}, {ID: "b", Name: "read", Arguments: `{}`}}
	for _, r := range []providerstest.OpenAIReply{
		{Text: "hi", Thinking: "well", Encrypted: "g", Calls: calls}, {Refusal: "no"}, {Calls: calls, Finish: "length"}, {},
	} {
		chunks := stream("m", r)
		f.Add([]byte(strings.Join(chunks, "")))
		f.Add([]byte(strings.Join(chunks[:len(chunks)/2], "")))
	}
	for _, text := range more {
		f.Add([]byte(text))
	}
}

// check checks the parts of a reply: one end, which is the last part and comes only
// without an error, and valid text.
func check(t *testing.T, parts []runner.Part, err error) (calls []runner.CallPart) {
	t.Helper()
	ended := false
	for _, part := range parts {
		if ended {
			t.Fatalf("after the end came %v", part)
		}
		switch part := part.(type) {
		case runner.FinishPart:
			ended = true
		case runner.CallPart:
			calls = append(calls, part)
		case runner.ProviderPart:
			if !json.Valid(part.Data) {
				t.Fatalf("the item %s is no JSON", part.Data)
			}
		case runner.TextPart:
			if string(part) == "" || modelapi.ValidText(string(part)) != string(part) {
				t.Fatalf("the text %q is empty or not UTF-8", part)
			}
		}
	}
	if ended != (err == nil) {
		t.Fatalf("the reply ended: %t, with the error %v", ended, err)
	}
	return calls
}

// isString reports whether an input is a JSON string, which no tool accepts.
func isString(input json.RawMessage) bool {
	var text string
	return json.Unmarshal(input, &text) == nil
}

// A stream of Chat Completions, whatever its bytes, is read to an end. After an error the
// last call has no input that could run.
func FuzzChatStream(f *testing.F) {
	seeds(f, providerstest.OpenAIChatStream,
		"data: {\"error\":{\"message\":\"x\"}}\n\n", "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":{\"a\":1}}}]}}]}\n\ndata: [DONE]\n\n",
		": ping\n\ndata: {\"choices\":[{\"delta\":{\"content\":[{\"text\":\"x\"}]},\"finish_reason\":\"stop\"}]}\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"a\",\"arguments\":\"{}\"}}]},\"finish_reason\":\"length\"}]}\n\n")
	f.Fuzz(func(t *testing.T, body []byte) {
		var parts []runner.Part
		err := readChat(decode(body), domain.MessageID{}, func(part runner.Part) bool { parts = append(parts, part); return true })
		calls := check(t, parts, err)
		for _, c := range calls {
			if c.ID == "" {
				t.Fatalf("the call %v has no ID", c)
			}
		}
		early := err != nil
		if n := len(parts); err == nil {
			finish, _ := parts[n-1].(runner.FinishPart)
			early = stopsEarly(finish.Reason)
		}
		if n := len(calls); early && n > 0 && !bytes.Contains(body, []byte(`"index"`)) && !isString(calls[n-1].Input) {
			t.Fatalf("the last call of a reply that broke off has the input %s", calls[n-1].Input)
		}
	})
}

// A stream of Responses, whatever its bytes, is read to an end. A call that no event has
// whole has no input that could run.
func FuzzResponsesStream(f *testing.F) {
	seeds(f, providerstest.OpenAIResponsesStream,
		"event: error\ndata: {\"code\":\"x\",\"message\":\"y\"}\n\n", "data: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"type\":\"reasoning\",\"encrypted_content\":\"g\"},{\"type\":\"function_call\",\"status\":\"incomplete\",\"arguments\":\"{}\"}]}}\n\n",
		"data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"arguments\":\"{}\"}}\n\n")
	f.Fuzz(func(t *testing.T, body []byte) {
		var parts []runner.Part
		err := readResponses(decode(body), "openai", "m", func(part runner.Part) bool { parts = append(parts, part); return true })
		for _, c := range check(t, parts, err) {
			if whole := bytes.Contains(body, []byte("done")) || bytes.Contains(body, []byte("output\"")) || bytes.Contains(body, []byte("\\u")); !whole && !isString(c.Input) {
				t.Fatalf("a call that no event has whole has the input %s", c.Input)
			}
		}
	})
}
