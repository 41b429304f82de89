package openai_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
	"github.com/settlement-ledger/ledger/runner/providers/openai"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// Each failed request has its kind, its status, the text of the server and the ID of the
// request, whether the body is an error of the API or not, and never the key.
func TestFailedRequestsAreDescribed(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		failure := providerstest.OpenAIFailure
		page := func(status int, text string) providerstest.ModelAnswer {
			return providerstest.ModelAnswer{Status: status, Header: http.Header{"Content-Type": {"text/html"}}, Chunks: []string{text}}
		}
		slow := failure(429, "rate_limit_exceeded", "Slow down.")
		slow.Header.Set("Retry-After", "7")
		for _, c := range []struct {
			answer  providerstest.ModelAnswer
			failure runner.FailureKind
			text    string
		}{
			{failure(400, "invalid_value", "No such parameter."), runner.InvalidRequest, "invalid_value: No such parameter."},
			{failure(400, "context_length_exceeded", "Too long."), runner.ContextExceeded, "Too long."},
			{failure(401, "invalid_api_key", "Incorrect API key provided: "+key), runner.AuthenticationFailure, "Incorrect API key provided: [redacted]"},
			{failure(413, "", "Too large."), runner.ContextExceeded, "Too large."},
			{slow, runner.RateLimited, "Slow down."},
			{failure(500, "server_error", "Broken."), runner.Overloaded, "Broken."},
			{failure(503, "", "Busy."), runner.Overloaded, "Busy."},
			{failure(529, "", "Busy."), runner.Overloaded, "Busy."},
			{page(502, "<html>Bad gateway "+key+"</html>"), runner.Overloaded, "Bad gateway [redacted]"},
			{page(503, ""), runner.Overloaded, "Service Unavailable"},
			{page(400, `{"error":"the model is not there"}`), runner.InvalidRequest, "the model is not there"},
			{page(400, `{"detail":"the model is not there"}`), runner.InvalidRequest, "the model is not there"},
			{page(404, `{"error":{"message":null}}`), runner.InvalidRequest, ""},
		} {
			server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer { return c.answer })
			got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
			failed := got.failure(t)
			if failed.Failure != c.failure || failed.Status != c.answer.Status || failed.Request != "req_local" || failed.Provider != "openai" || failed.Model != "m-1" || !strings.Contains(failed.Message, c.text) {
				t.Errorf("%v: %v, want %s with %q", c.answer, failed, c.failure, c.text)
			}
			if c.failure == runner.RateLimited && failed.RetryAfter != 7*time.Second {
				t.Errorf("the server asks to wait %v, want 7s", failed.RetryAfter)
			}
			if n := len(server.Requests()); n != 1 {
				t.Errorf("one attempt made %d requests", n)
			}
		}
	})
}

// A failure that passes is repeated, and the reply is whole.
func TestAFailureThatPassesIsRepeated(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
			switch r.Number {
			case 0:
				return providerstest.OpenAIFailure(529, "overloaded", "Busy.")
			case 1:
				return providerstest.ModelAnswer{NoHeader: true, End: providerstest.EndReset}
			case 2:
				return providerstest.ModelAnswer{Chunks: stream(format, whole)[:1], End: providerstest.EndReset}
			}
			return providerstest.ModelAnswer{Chunks: stream(format, whole)}
		})
		got := ask(t, provider(t, server, openai.Config{API: format, Policy: modelapi.Policy{Attempts: 4, Backoff: time.Millisecond}}), turn(prompt("go")))
		if got.err != nil || got.text != whole.Text || got.inputs() != wholeCalls || len(got.failed) != 3 {
			t.Fatalf("after %d failures the reply is %q, %s, %v", len(got.failed), got.text, got.inputs(), got.err)
		}
		for i, want := range []runner.FailureKind{runner.Overloaded, runner.ConnectionFailure, runner.StreamCut} {
			if got.failed[i].Err.Failure != want {
				t.Errorf("failure %d is %v, want %s", i, got.failed[i].Err, want)
			}
		}
	})
}

// A server that never answers, or stops in mid stream, has stalled; and the request is
// closed.
func TestAStallIsAFailure(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		for _, answer := range []providerstest.ModelAnswer{
			{NoHeader: true, End: providerstest.EndHeld}, {Chunks: stream(format, whole)[:6], End: providerstest.EndHeld},
		} {
			server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer { return answer })
			p := provider(t, server, openai.Config{API: format, Policy: modelapi.Policy{Attempts: 1, Stall: 100 * time.Millisecond}})
			got := ask(t, p, turn(prompt("go")))
			if failed := got.failure(t); failed.Failure != runner.StreamStalled || got.finish != nil {
				t.Errorf("the reply ended with %v, want a stall", failed)
			}
			server.Close() // returns when each request is closed
		}
	})
}

// An interruption in mid stream ends the reply with its cause, and closes the request.
func TestAnInterruptionClosesTheRequest(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := providerstest.NewOpenAIServer(func(providerstest.ModelRequest) providerstest.ModelAnswer {
			return providerstest.ModelAnswer{Chunks: stream(format, whole)[:len(stream(format, whole))-3], End: providerstest.EndHeld}
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		cause := errors.New("the user presses a key")
		var last error
		for part, err := range provider(t, server, openai.Config{API: format}).Reply(ctx, turn(prompt("go"))) {
			if _, ok := part.(runner.TextPart); ok {
				cancel(cause)
			}
			last = err
		}
		if last != cause {
			t.Errorf("the reply ended with %v, want the cause", last)
		}
		server.Close() // returns when each request is closed
		if got := server.Ended(); got != 1 {
			t.Errorf("%d responses ended, want 1", got)
		}
	})
}

// An event over the limit of the SDK is a failure, and what came before it is kept.
func TestAnOversizedEventIsAFailure(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
			return providerstest.ModelAnswer{Chunks: []string{stream(format, providerstest.OpenAIReply{Text: "hi"})[0], "data: " + strings.Repeat(" ", 33<<20)}}
		})
		got := ask(t, provider(t, server, openai.Config{API: format}), turn(prompt("go")))
		if failed := got.failure(t); failed.Failure != runner.StreamFailure || failed.Request != "req_local" {
			t.Errorf("the reply ended with %v, want a failed stream", failed)
		}
	})
}

// Without a key a server that is not on this machine gets no request; a server on a
// loopback address gets one without a key.
func TestTheKeyIsRequired(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", key)
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
	for _, url := range []string{"", "https://models.example/v1", "http://10.0.0.1/v1"} {
		if _, err := openai.New(openai.Config{BaseURL: url}); !errors.Is(err, openai.ErrNoKey) {
			t.Errorf("New(%q) = %v, want ErrNoKey", url, err)
		}
	}
	server := serve(t, replies(openai.ChatCompletions, providerstest.OpenAIReply{Text: "ok"}))
	p, err := openai.New(openai.Config{BaseURL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, p, turn(prompt("go"))); got.text != "ok" || server.Requests()[0].Header.Get("Authorization") != "" {
		t.Errorf("the reply is %q, %v, to a request with %q", got.text, got.err, server.Requests()[0].Header)
	}
	ask(t, provider(t, server, openai.Config{}), turn(prompt("go")))
	if got := server.Requests()[1].Header.Get("Authorization"); got != "Bearer "+key {
		t.Errorf("the key is sent as %q", got)
	}
}

// A config that names no server, no known format or a negative limit is refused, without
// the URL in the text, which may have a password.
func TestBadConfigsAreRefused(t *testing.T) {
	t.Parallel()
	for _, config := range []openai.Config{
		{BaseURL: "models.example/v1"}, {BaseURL: "ftp://models.example"}, {BaseURL: "https://user:" + key + "@models.example"}, {BaseURL: "https://models.example/v1?k=" + key},
		{BaseURL: "://"}, {API: "completions"}, {MaxOutputTokens: -1},
	} {
		config.APIKey = key
		if _, err := openai.New(config); !errors.Is(err, openai.ErrBadServer) || strings.Contains(err.Error(), key) {
			t.Errorf("New(%+v) = %v, want ErrBadServer", config, err)
		}
	}
}

// The format is Responses for OpenAI and Chat Completions for other servers, unless the
// config names one; the name of the provider and the model are those of the config.
func TestTheDefaultsFollowTheServer(t *testing.T) {
	t.Parallel()
	warm := 0.5
	for _, c := range []struct {
		config openai.Config
		want   string
	}{
		{openai.Config{}, `"store":false`},
		{openai.Config{API: openai.ChatCompletions, MaxOutputTokens: 9}, `"max_completion_tokens":9`},
		{openai.Config{BaseURL: "https://models.example/v1", MaxOutputTokens: 9}, `"max_tokens":9`},
		{openai.Config{BaseURL: "https://models.example/v1", API: openai.Responses, Temperature: &warm}, `"temperature":0.5`},
	} {
		c.config.APIKey = key
		p, err := openai.New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		if record, err := p.PrepareRequest(turn(prompt("go"))); err != nil || !strings.Contains(record.Parameters, c.want) || record.Schemas != "" {
			t.Errorf("PrepareRequest = %+v, %v, want the parameters with %s", record, err, c.want)
		}
	}
	p, err := openai.New(openai.Config{Name: "acme", Model: "m-2", APIKey: key})
	if name, model := p.NextModel(nil, "m-1"); err != nil || name != "acme" || model != "m-2" {
		t.Errorf("NextModel = %s, %s, %v, want acme and m-2", name, model, err)
	}
}

// The limits of a model are known by its name, and replaced by those of the config.
func TestContextLimitsAreKnown(t *testing.T) {
	t.Parallel()
	p, err := openai.New(openai.Config{APIKey: key, Windows: map[string]modelapi.ContextWindow{"m-1": {Window: 1000, Output: 100}, "gpt-4.1": {Window: 7}}})
	capped, err2 := openai.New(openai.Config{APIKey: key, MaxOutputTokens: 50})
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	for _, c := range []struct {
		p              *openai.Provider
		model          string
		window, output int64
	}{
		{p, "gpt-5-mini", 400_000, 128_000}, {p, "openai/gpt-4o-mini", 128_000, 16_384}, {p, "gpt-4.1", 7, 0}, {p, "m-1", 1000, 100}, {p, "unknown", 0, 0},
		{capped, "gpt-5", 400_000, 50}, {capped, "unknown", 0, 50},
	} {
		if window, output := c.p.ContextLimit(c.model); window != c.window || output != c.output {
			t.Errorf("ContextLimit(%s) = %d, %d, want %d, %d", c.model, window, output, c.window, c.output)
		}
	}
}
