package anthropic_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/runner/providers/anthropic"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// A server that repeats the key in every part of a reply, whole or broken off, gets it into
// no part that is passed on.
func TestAServerThatRepeatsTheKey(t *testing.T) {
	t.Parallel()
	hostile := providerstest.AnthropicReply{
		Thinking: "I have " + key + ".", Text: "The key is " + key + ".", Stop: key,
		Calls: []providerstest.AnthropicCall{{ID: "call_" + key, Name: key, Input: `{"a":"` + key + `"}`}},
	}
	chunks := providerstest.AnthropicStream(key, hostile)
	for cut := range len(chunks) + 1 {
		server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
			return providerstest.ModelAnswer{Chunks: chunks[:cut]}
		})
		r := ask(t, provider(t, server, anthropic.Config{}), turn(prompt("go")))
		if all := fmt.Sprintf("%s %s %s %s %+v", r.text, r.thinking, r.inputs(), r.items, r.finish); strings.Contains(all, key) || len(r.items) > 0 {
			t.Errorf("after %d events the reply has the key: %s", cut, all)
		}
		if whole := cut == len(chunks); whole && (r.text != "The key is [redacted]." || r.thinking != "I have [redacted]." || r.inputs() != `call_[redacted] [redacted] "{\"a\":\"[redacted]\"}"` ||
			r.finish == nil || r.finish.Model != "[redacted]" || r.finish.Reason != "[redacted]") {
			t.Errorf("the reply is %q, %q, %s, %+v", r.text, r.thinking, r.inputs(), r.finish)
		}
	}
}
