package anthropic_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/anthropic"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// key is the key of each test. No error text may contain it.
const key = "sk-ant-0123456789abcdef"

// replies returns the answers that stream replies in order, and the last one again and
// again.
func replies(list ...providerstest.AnthropicReply) func(providerstest.ModelRequest) providerstest.ModelAnswer {
	return func(r providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: providerstest.AnthropicStream("m-1-x", list[min(r.Number, len(list)-1)])}
	}
}

// serve starts a server, which must see no invalid request.
func serve(t testing.TB, answer func(providerstest.ModelRequest) providerstest.ModelAnswer) *providerstest.ModelServer {
	t.Helper()
	server := providerstest.NewAnthropicServer(answer)
	t.Cleanup(func() {
		server.Close()
		for _, fault := range server.Faults() {
			t.Errorf("the server refused a request: %s", fault)
		}
	})
	return server
}

// provider returns a provider of a server.
func provider(t testing.TB, server *providerstest.ModelServer, config anthropic.Config) *anthropic.Provider {
	t.Helper()
	config.APIKey, config.BaseURL = key, server.URL()
	config.Policy.Attempts = max(config.Policy.Attempts, 1)
	p, err := anthropic.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// mint makes the IDs of the tests.
var mint = domain.NewMint(time.Now, rand.Reader)

// turn returns a turn over messages.
func turn(messages ...conversation.Message) runner.Turn {
	return runner.Turn{
		Session: mint.Session(), ID: mint.Turn(), Message: mint.Message(), Agent: "build", Model: "m-1", System: "Be brief.",
		Conversation: &conversation.State{Messages: messages},
	}
}

// prompt returns a message of the user.
func prompt(text string) conversation.Message {
	return conversation.Message{ID: mint.Message(), Prompt: &conversation.Prompt{Text: text}}
}

// reply returns a message of the model.
func reply(text string, calls ...conversation.ReplyCall) conversation.Message {
	return conversation.Message{ID: mint.Message(), Reply: &conversation.Reply{Text: text, Calls: calls}}
}

// call returns a call with a settlement. A nil settlement leaves it open.
func call(id, name, input string, end *domain.Settlement) conversation.ReplyCall {
	return conversation.ReplyCall{Call: domain.Call{ID: domain.CallID(id), Name: name, Input: json.RawMessage(input)}, Settlement: end}
}

// succeeded returns the settlement of a successful call.
func succeeded(content ...domain.Content) *domain.Settlement {
	return &domain.Settlement{Outcome: domain.Succeeded, Began: true, Content: content}
}

// A received reply has the parts of a reply.
type received struct {
	text, thinking string
	calls          []domain.Call
	items          []runner.ProviderPart
	finish         *runner.FinishPart
	failed         []runner.FailedAttemptPart
	err            error
}

// ask sends a turn and collects the reply. No error text may contain the key.
func ask(t testing.TB, p *anthropic.Provider, turn runner.Turn) received {
	t.Helper()
	var r received
	for part, err := range p.Reply(t.Context(), turn) {
		if r.err != nil || r.finish != nil {
			t.Fatalf("after the end came %v, %v", part, err)
		}
		switch part := part.(type) {
		case runner.TextPart:
			r.text += string(part)
		case runner.ThinkingPart:
			r.thinking += string(part)
		case runner.CallPart:
			r.calls = append(r.calls, domain.Call(part))
		case runner.ProviderPart:
			r.items = append(r.items, part)
		case runner.FailedAttemptPart:
			r.failed = append(r.failed, part)
		case runner.FinishPart:
			r.finish = &part
		}
		if r.err = err; err != nil && strings.Contains(err.Error(), key) {
			t.Errorf("the error has the key: %v", err)
		}
	}
	return r
}

// inputs returns the IDs, names and inputs of the calls.
func (r received) inputs() string {
	var all []string
	for _, c := range r.calls {
		all = append(all, fmt.Sprintf("%s %s %s", c.ID, c.Name, c.Input))
	}
	return strings.Join(all, "; ")
}

// failure returns the *runner.ProviderError of the reply, or fails the test.
func (r received) failure(t testing.TB) *runner.ProviderError {
	t.Helper()
	failed, ok := errors.AsType[*runner.ProviderError](r.err)
	if !ok {
		t.Fatalf("the reply ended with %v, want a *runner.ProviderError", r.err)
	}
	return failed
}

// isString reports whether an input is a JSON string.
func isString(input json.RawMessage) bool {
	var text string
	return json.Unmarshal(input, &text) == nil
}
