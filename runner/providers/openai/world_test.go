package openai_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/openai"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// key is the key of each test. No error text may contain it.
const key = "sk-test-0123456789abcdef"

// formats are the two formats of the API.
var formats = []openai.WireFormat{openai.ChatCompletions, openai.Responses}

// eachFormat runs a test in both formats.
func eachFormat(t *testing.T, test func(t *testing.T, format openai.WireFormat)) {
	t.Parallel()
	for _, format := range formats {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			test(t, format)
		})
	}
}

// stream returns the events of a reply in a format.
func stream(format openai.WireFormat, r providerstest.OpenAIReply) []string {
	if format == openai.ChatCompletions {
		return providerstest.OpenAIChatStream("m-1", r)
	}
	return providerstest.OpenAIResponsesStream("m-1", r)
}

// replies returns the answers that stream replies in order, and the last one again and
// again.
func replies(format openai.WireFormat, list ...providerstest.OpenAIReply) func(providerstest.ModelRequest) providerstest.ModelAnswer {
	return func(r providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: stream(format, list[min(r.Number, len(list)-1)])}
	}
}

// serve starts a server, which must see no invalid request.
func serve(t testing.TB, answer func(providerstest.ModelRequest) providerstest.ModelAnswer) *providerstest.ModelServer {
	t.Helper()
	server := providerstest.NewOpenAIServer(answer)
	t.Cleanup(func() {
		server.Close()
		for _, fault := range server.Faults() {
			t.Errorf("the server refused a request: %s", fault)
		}
	})
	return server
}

// provider returns a provider of a server.
func provider(t testing.TB, server *providerstest.ModelServer, config openai.Config) *openai.Provider {
	t.Helper()
	if config.APIKey == "" {
		config.APIKey = key
	}
	config.BaseURL = server.URL()
	config.Policy.Attempts = max(config.Policy.Attempts, 1)
	p, err := openai.New(config)
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
func ask(t testing.TB, p *openai.Provider, turn runner.Turn) received {
	t.Helper()
	var r received
	for part, err := range p.Reply(t.Context(), turn) {
		switch {
		case r.err != nil:
			t.Fatalf("after the error %v came %v, %v", r.err, part, err)
		case err != nil:
			r.err = err
			if strings.Contains(err.Error(), key) {
				t.Errorf("the error has the key: %v", err)
			}
		default:
			r.add(t, part)
		}
	}
	return r
}

// add adds a part. A FinishPart is the last one.
func (r *received) add(t testing.TB, part runner.Part) {
	if r.finish != nil {
		t.Fatalf("after the end came %v", part)
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

// body returns a request with its body as JSON.
func body(t testing.TB, r providerstest.ModelRequest) map[string]any {
	t.Helper()
	var decoded map[string]any
	if err := json.Unmarshal(r.Body, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

// compact returns JSON without insignificant space.
func compact(t testing.TB, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, data); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// contains reports whether list has an element with the text.
func contains(list []string, text string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, text) })
}
