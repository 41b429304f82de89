package anthropic_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/anthropic"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// everything is a reply with thinking, text and parallel calls.
var everything = providerstest.AnthropicReply{
	Thinking: "Where is it?", Text: "I read both.",
	Calls: []providerstest.AnthropicCall{{ID: "toolu_1", Name: "read", Input: `{"path":"a.go"}`}, {ID: "toolu_2", Name: "read", Input: `{"path": "b.go"}`}},
}

// A reply comes with its text, thinking, calls, stop reason, model and tokens, and its
// signed thinking as an item.
func TestAReplyHasAllItsParts(t *testing.T) {
	t.Parallel()
	r := ask(t, provider(t, serve(t, replies(everything)), anthropic.Config{}), turn(prompt("go")))
	if r.err != nil || r.text != "I read both." || r.thinking != "Where is it?" || r.inputs() != `toolu_1 read {"path":"a.go"}; toolu_2 read {"path": "b.go"}` {
		t.Errorf("the reply is %+v with the calls %s", r, r.inputs())
	}
	want := runner.FinishPart{Reason: "tool_use", Model: "m-1-x", Tokens: events.Tokens{Input: 11, Output: 23, CacheRead: 5, CacheWrite: 7}}
	if r.finish == nil || *r.finish != want {
		t.Errorf("the end is %+v, want %+v", r.finish, want)
	}
	if len(r.items) != 1 || r.items[0].Provider != "anthropic" || r.items[0].Model != "m-1" || !strings.Contains(string(r.items[0].Data), "signed") {
		t.Errorf("the items are %+v, want the signed thinking", r.items)
	}
}

// cutPlaces returns the places at which the tests cut a stream: each boundary of an event,
// or each byte in long tests.
func cutPlaces(chunks []string) (places []int) {
	whole := strings.Join(chunks, "")
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		for i := range len(whole) {
			places = append(places, i)
		}
		return places
	}
	at := 0
	for _, c := range chunks {
		places = append(places, at, at+len(c)/2)
		at += len(c)
	}
	return places
}

// A stream that is cut anywhere before its end is an error that names the request. The
// text so far is kept, and a call that broke off is a JSON string that no tool accepts.
func TestACutStreamIsNoReply(t *testing.T) {
	t.Parallel()
	chunks := providerstest.AnthropicStream("m-1", everything)
	whole := strings.Join(chunks, "")
	places := cutPlaces(chunks)
	for _, end := range []providerstest.AnswerEnd{providerstest.EndWhole, providerstest.EndReset} {
		server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
			return providerstest.ModelAnswer{Chunks: []string{whole[:places[r.Number]]}, End: end}
		})
		p := provider(t, server, anthropic.Config{})
		for _, place := range places {
			r := ask(t, p, turn(prompt("go")))
			failed := r.failure(t)
			if failed.Failure != runner.StreamCut || failed.Request != "req_local" || r.finish != nil {
				t.Fatalf("a stream cut at byte %d, %v, ends with %v", place, end, r.err)
			}
			if !strings.HasPrefix(everything.Text, r.text) || !strings.HasPrefix(everything.Thinking, r.thinking) {
				t.Fatalf("a stream cut at byte %d has the text %q", place, r.text)
			}
			for i, c := range r.calls {
				if c.ID != domain.CallID(everything.Calls[i].ID) || i == len(r.calls)-1 && !isString(c.Input) {
					t.Fatalf("a stream cut at byte %d has the calls %s", place, r.inputs())
				}
			}
		}
	}
}

// The last call of a reply that stopped early is a JSON string, even if its input is JSON
// so far or absent. The calls before it are whole.
func TestACallThatBrokeOffNeverRuns(t *testing.T) {
	t.Parallel()
	for _, stop := range []string{"max_tokens", "model_context_window_exceeded", "refusal", "unheard_of"} {
		for _, input := range []string{"", "{}", `{"path":`, `{"path":"b.go"}`} {
			broken := everything
			broken.Stop = stop
			broken.Calls = []providerstest.AnthropicCall{everything.Calls[0], {ID: "toolu_2", Name: "read", Input: input}}
			r := ask(t, provider(t, serve(t, replies(broken)), anthropic.Config{}), turn(prompt("go")))
			if r.err != nil || r.finish.Reason != stop || len(r.calls) != 2 || isString(r.calls[0].Input) || !isString(r.calls[1].Input) {
				t.Errorf("a reply that stops with %s and the input %q has the calls %s and the error %v", stop, input, r.inputs(), r.err)
			}
		}
	}
	// A call whose block does not end, before one that does.
	begin := func(index int) string {
		return providerstest.AnthropicEvent("content_block_start", map[string]any{"type": "content_block_start", "index": index, "content_block": map[string]any{"type": "tool_use", "id": fmt.Sprint("toolu_", index), "name": "read", "input": map[string]any{}}})
	}
	stop := providerstest.AnthropicEvent("content_block_stop", map[string]any{"type": "content_block_stop", "index": 1})
	whole := providerstest.AnthropicStream("m-1", providerstest.AnthropicReply{Stop: "tool_use"})
	open := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: slices.Concat(whole[:2], []string{begin(0), begin(1), stop}, whole[2:])}
	})
	if r := ask(t, provider(t, open, anthropic.Config{}), turn(prompt("go"))); r.err != nil || r.inputs() != `toolu_0 read "{}"; toolu_1 read {}` {
		t.Errorf("a reply with a block that does not end has the calls %s and the error %v", r.inputs(), r.err)
	}
	malformed := everything
	malformed.Calls = []providerstest.AnthropicCall{{ID: "toolu_1", Name: "read", Input: `{"path": a}`}, {Name: "read", Input: ""}, {ID: "toolu_1", Name: "read", Input: "{}"}}
	r := ask(t, provider(t, serve(t, replies(malformed)), anthropic.Config{}), turn(prompt("go")))
	if want := `toolu_1 read {"path": a};  read {}; toolu_1 read {}`; r.err != nil || r.inputs() != want {
		t.Errorf("the calls are %s after %v, want %s unchanged", r.inputs(), r.err, want)
	}
}

// Each failure has its kind and names the request. Those that may pass are repeated, up to
// the number of attempts.
func TestAFailureHasItsKind(t *testing.T) {
	t.Parallel()
	failing := providerstest.AnthropicFailure
	late := failing(429, "rate_limit_error", "slow down")
	late.Header.Set("Retry-After", "3600")
	middle := func(chunks ...string) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: append(providerstest.AnthropicStream("m-1", everything)[:3], chunks...)}
	}
	ended := func(kind string) providerstest.ModelAnswer {
		event := func(kind string) string {
			return providerstest.AnthropicEvent(kind, map[string]any{"type": kind, "index": 0})
		}
		return middle(event("content_block_stop"), event(kind))
	}
	broken := func(data any) string { return providerstest.AnthropicEvent("error", data) }
	for name, c := range map[string]struct {
		answer   providerstest.ModelAnswer
		failure  runner.FailureKind
		status   int
		attempts int
	}{
		"400":           {failing(400, "invalid_request_error", "no"), runner.InvalidRequest, 400, 1},
		"400 too long":  {failing(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), runner.ContextExceeded, 400, 1},
		"401":           {failing(401, "authentication_error", "invalid x-api-key "+key), runner.AuthenticationFailure, 401, 1},
		"403":           {failing(403, "permission_error", "no"), runner.AuthenticationFailure, 403, 1},
		"404":           {failing(404, "not_found_error", "model: m-1"), runner.InvalidRequest, 404, 1},
		"413":           {failing(413, "request_too_large", "too large"), runner.ContextExceeded, 413, 1},
		"429":           {failing(429, "rate_limit_error", "slow down"), runner.RateLimited, 429, 3},
		"429 for hours": {late, runner.RateLimited, 429, 1},
		"500":           {failing(500, "api_error", "oops"), runner.Overloaded, 500, 3},
		"529":           {failing(529, "overloaded_error", "busy"), runner.Overloaded, 529, 3},
		"502 with HTML": {providerstest.ModelAnswer{Status: 502, Header: http.Header{"Content-Type": {"text/html"}}, Chunks: []string{"<h1>no " + key + "</h1>"}}, runner.Overloaded, 502, 3},
		"a document":    {providerstest.ModelAnswer{Header: http.Header{"Content-Type": {"application/json"}}, Chunks: []string{`{"id":"x"}`}}, runner.StreamFailure, 200, 1},
		"an error document": {providerstest.ModelAnswer{
			Header: http.Header{"Content-Type": {"application/json"}}, Chunks: []string{`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`},
		}, runner.Overloaded, 200, 3},
		"an error event at once": {providerstest.ModelAnswer{Chunks: []string{broken(map[string]any{"type": "error", "error": map[string]any{"type": "overloaded_error", "message": "busy " + key}})}}, runner.Overloaded, 200, 3},
		"an error event behind text": {
			providerstest.ModelAnswer{Chunks: append(providerstest.AnthropicStream("m-1", everything)[:4], broken(map[string]any{"type": "error", "error": map[string]any{"type": "overloaded_error", "message": "busy"}}))}, runner.Overloaded, 200, 1,
		},
		"a delta without a block": {middle(providerstest.AnthropicEvent("content_block_delta", map[string]any{"type": "content_block_delta", "index": 7})), runner.StreamFailure, 200, 1},
		"a block ends twice":      {ended("content_block_stop"), runner.StreamFailure, 200, 1},
		"a delta behind a block":  {ended("content_block_delta"), runner.StreamFailure, 200, 1},
		"a block twice":           {middle(providerstest.AnthropicEvent("content_block_start", map[string]any{"type": "content_block_start", "index": 0})), runner.StreamFailure, 200, 1},
		"no JSON":                 {middle("event: message_delta\ndata: {\n\n"), runner.StreamFailure, 200, 1},
		"no response":             {providerstest.ModelAnswer{NoHeader: true, End: providerstest.EndReset}, runner.ConnectionFailure, 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer { return c.answer })
			r := ask(t, provider(t, server, anthropic.Config{Policy: modelapi.Policy{Attempts: 3, Backoff: time.Millisecond}}), turn(prompt("go")))
			failed := r.failure(t)
			request := "req_local"
			if c.status == 0 {
				request = ""
			}
			if failed.Failure != c.failure || failed.Status != c.status || failed.Request != request || failed.Provider != "anthropic" || failed.Model != "m-1" || strings.Contains(failed.Message, key) {
				t.Errorf("the failure is %+v, want %s with the status %d", failed, c.failure, c.status)
			}
			if n := len(server.Requests()); n != c.attempts || len(r.failed) != c.attempts-1 {
				t.Errorf("%d requests were sent and %d attempts reported, want %d requests", n, len(r.failed), c.attempts)
			}
		})
	}
}

// An attempt that fails before its first part is repeated, and the reply is that of the
// next attempt.
func TestARepeatedAttemptReplies(t *testing.T) {
	t.Parallel()
	server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
		if r.Number < 2 {
			return providerstest.AnthropicFailure(529, "overloaded_error", "busy")
		}
		return providerstest.ModelAnswer{Chunks: providerstest.AnthropicStream("m-1", everything)}
	})
	r := ask(t, provider(t, server, anthropic.Config{Policy: modelapi.Policy{Attempts: 3, Backoff: time.Millisecond}}), turn(prompt("go")))
	if r.err != nil || r.text != everything.Text || len(r.failed) != 2 || r.failed[1].Attempt != 2 || r.failed[1].Err.Failure != runner.Overloaded {
		t.Errorf("the reply is %+v, want the text behind two failed attempts", r)
	}
}

// The end of the context ends the request at the server, and Reply yields the cause. A
// server that sends nothing more has stalled.
func TestAnInterruptionEndsTheRequest(t *testing.T) {
	t.Parallel()
	chunks := providerstest.AnthropicStream("m-1", everything)
	server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: chunks[:4], End: providerstest.EndHeld}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var last error
	for part, err := range provider(t, server, anthropic.Config{}).Reply(ctx, turn(prompt("go"))) {
		if part != nil {
			cancel(domain.ByUser)
		}
		last = err
	}
	if !errors.Is(last, domain.ErrInterrupted) {
		t.Errorf("the reply ends with %v, want the interruption", last)
	}
	for deadline := time.Now().Add(time.Minute); server.Ended() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the request goes on at the server")
		}
	}
	r := ask(t, provider(t, server, anthropic.Config{Policy: modelapi.Policy{Stall: 50 * time.Millisecond}}), turn(prompt("go")))
	if failed := r.failure(t); failed.Failure != runner.StreamStalled {
		t.Errorf("a silent server is %v, want a stall", failed)
	}
}

// Without a key, with an invalid URL or with limits that do not fit, there is no provider,
// and no error has the URL.
func TestABadConfigIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config anthropic.Config
		want   error
	}{
		{anthropic.Config{}, anthropic.ErrNoKey},
		{anthropic.Config{BaseURL: "http://127.0.0.1:1"}, nil},
		{anthropic.Config{BaseURL: "https://ada:" + key + "@models.example"}, anthropic.ErrBadServer},
		{anthropic.Config{BaseURL: "ftp://models.example", APIKey: key}, anthropic.ErrBadServer},
		{anthropic.Config{APIKey: key, MaxOutputTokens: -1}, anthropic.ErrBadServer},
		{anthropic.Config{APIKey: key, MaxOutputTokens: 2048, ThinkingBudget: 2048}, anthropic.ErrBadServer},
		{anthropic.Config{APIKey: key, ThinkingBudget: 1023}, anthropic.ErrBadServer},
		{anthropic.Config{APIKey: key, Temperature: new(1.5)}, anthropic.ErrBadServer},
		{anthropic.Config{APIKey: key, Temperature: new(math.NaN())}, anthropic.ErrBadServer},
		{anthropic.Config{APIKey: key, Temperature: new(0.5), ThinkingBudget: 1024}, anthropic.ErrBadServer},
		{anthropic.Config{APIKey: key, Temperature: new(1.0), ThinkingBudget: 1024}, nil},
	} {
		if _, err := anthropic.New(c.config); !errors.Is(err, c.want) || err != nil && strings.Contains(err.Error(), key) {
			t.Errorf("New(%+v) = %v, want %v", c.config, err, c.want)
		}
	}
}
