package anthropic

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// decode returns the decoder of a response body, as the SDK makes it.
func decode(body []byte) ssestream.Decoder {
	return ssestream.NewDecoder(&http.Response{Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body))})
}

// mayRun returns the number of the calls that a stream has whole: the blocks of calls that
// end, without the last block of a reply that stops early or has no end. It knows nothing
// of the errors of a stream, so a stream has at most that many.
func mayRun(body []byte) int {
	ended, whole, early := 0, false, true
	var open, last string
	for stream := decode(body); stream.Next(); {
		var e struct {
			Type  string          `json:"type"`
			Index json.RawMessage `json:"index"`
			Block streamBlock     `json:"content_block"`
			Delta struct {
				Reason string `json:"stop_reason"`
			} `json:"delta"`
		}
		if json.Unmarshal(stream.Event().Data, &e) != nil {
			continue
		}
		switch e.Type {
		case "content_block_start":
			if last = e.Block.Type; last == callBlock {
				open += "c"
			}
		case "content_block_stop":
			ended++
		case "message_delta":
			if e.Delta.Reason != "" {
				early = stopsEarly(e.Delta.Reason)
			}
		case "message_stop":
			whole = true
		}
		if whole {
			break
		}
	}
	n := min(len(open), ended)
	if (early || !whole) && last == callBlock && n == len(open) && n > 0 {
		n--
	}
	return n
}

// A stream, whatever its bytes, is read to an end: the end of the reply as the last part,
// or an error. A call that broke off has no input that could run.
func FuzzAnthropicStream(f *testing.F) {
	calls := []providerstest.AnthropicCall{{ID: "a", Name: "read", Input: `{"n":1}`}, {ID: "b", Name: "read", Input: `{}`}}
	for _, r := range []providerstest.AnthropicReply{{Text: "hi", Thinking: "well", Calls: calls}, {Calls: calls, Stop: "max_tokens"}, {Stop: "refusal"}} {
		chunks := providerstest.AnthropicStream("m", r)
		f.Add([]byte(strings.Join(chunks, "")))
		f.Add([]byte(strings.Join(chunks[:len(chunks)/2], "")))
		f.Add([]byte(strings.Join(chunks[:len(chunks)-2], "")))
	}
	f.Add([]byte("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"))
	f.Add([]byte("data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\",\"input\":[]}}\n\n: ping\n\ndata: {\"type\":\"message_stop\"}\n\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		ended, runs := false, 0
		r := &replyReader{provider: "anthropic", model: "m", emit: func(part runner.Part) bool {
			if ended {
				t.Fatalf("after the end came %v", part)
			}
			switch part := part.(type) {
			case runner.FinishPart:
				ended = true
			case runner.TextPart:
				if part == "" || !utf8.ValidString(string(part)) {
					t.Fatalf("the text %q is empty or not UTF-8", part)
				}
			case runner.ProviderPart:
				if !json.Valid(part.Data) {
					t.Fatalf("the item %s is no JSON", part.Data)
				}
			case runner.CallPart:
				var text string
				if json.Unmarshal(part.Input, &text) != nil {
					runs++
				}
			}
			return true
		}}
		if err := r.read(decode(body)); ended != (err == nil) {
			t.Fatalf("the reply ended: %t, with the error %v", ended, err)
		}
		if most := mayRun(body); runs > most {
			t.Fatalf("%d calls could run, and the stream has at most %d whole", runs, most)
		}
	})
}
