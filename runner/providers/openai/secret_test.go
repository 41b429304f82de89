package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/runner/providers/openai"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// A server that repeats the key in every part of a reply, whole or broken off, gets it into
// no part that is passed on.
func TestAServerThatRepeatsTheKey(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		hostile := providerstest.OpenAIReply{
			Thinking: "I have " + key + ".", Encrypted: key, Text: "The key is " + key + ".", Refusal: "Not " + key + ".",
			Calls: []providerstest.OpenAICall{{ID: "call_" + key, Name: key, Arguments: `{"a":"` + key + `"}`}}, Finish: key,
		}
		chunks := stream(format, hostile)
		for i, chunk := range chunks {
			chunks[i] = strings.ReplaceAll(chunk, `"m-1`, `"`+key)
		}
		for cut := range len(chunks) + 1 {
			server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
				return providerstest.ModelAnswer{Chunks: chunks[:cut]}
			})
			r := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
			if all := fmt.Sprintf("%s %s %s %s %+v", r.text, r.thinking, r.inputs(), r.items, r.finish); strings.Contains(all, key) || len(r.items) > 0 {
				t.Errorf("after %d events the reply has the key: %s", cut, all)
			}
			if cut < len(chunks) {
				continue
			}
			if !strings.HasPrefix(r.text, "The key is [redacted].") || !strings.HasSuffix(r.text, "Not [redacted].") || r.thinking != "I have [redacted]." || strings.Count(r.inputs(), "[redacted]") != 3 ||
				r.finish == nil || r.finish.Reason != "[redacted]" || !strings.HasPrefix(r.finish.Model, "[redacted]") {
				t.Errorf("the reply is %q, %q, %s, %+v", r.text, r.thinking, r.inputs(), r.finish)
			}
		}
	})
}
