package anthropic_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/anthropic"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// A response over a limit, of another type or status, or to another address is a failure
// that names the request, with a short text.
func TestAnUnreadableResponseIsAFailure(t *testing.T) {
	t.Parallel()
	long := os.Getenv("LEDGER_TEST_LONG") != ""
	text, line := providerstest.AnthropicStream("m-1", everything)[0], strings.Repeat(" ", 1<<20)
	answer := func(status int, kind string, chunks ...string) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Status: status, Header: http.Header{"Content-Type": {kind}}, Chunks: chunks}
	}
	moved := answer(307, "text/html")
	moved.Header.Set("Location", "http://127.0.0.1:1/v1/messages?"+key)
	for name, c := range map[string]struct {
		answer  providerstest.ModelAnswer
		failure runner.FailureKind
	}{
		"an event of 33 MiB":        {answer(200, "text/event-stream", append([]string{text, "data: "}, slices.Repeat([]string{line}, 33)...)...), runner.StreamFailure},
		"65 MiB of comments":        {answer(200, "text/event-stream", append([]string{text}, slices.Repeat([]string{":" + line + "\n\n"}, 65)...)...), runner.StreamFailure},
		"an error of 65 MiB":        {answer(500, "text/html", slices.Repeat([]string{line}, 65)...), runner.StreamFailure},
		"a page":                    {answer(200, "text/html", "<html>hello</html>"), runner.StreamCut},
		"no content":                {answer(204, "text/html"), runner.StreamCut},
		"a redirect":                {moved, runner.InvalidRequest},
		"a whole message":           {answer(200, "application/json; charset=utf-8", `{"type":"message","content":[]}`), runner.StreamFailure},
		"an event that is no JSON":  {answer(200, "text/event-stream", "event: error\ndata: boom "+key+"\n\n"), runner.StreamFailure},
		"an event that is an array": {answer(200, "text/event-stream", "data: []\n\n"), runner.StreamFailure},
		"an index that is text":     {answer(200, "text/event-stream", "data: {\"type\":\"content_block_stop\",\"index\":\"0\"}\n\n"), runner.StreamFailure},
		"an error without a text":   {answer(200, "text/event-stream", "data: {\"type\":\"error\"}\n\n"), runner.StreamFailure},
	} {
		if strings.Contains(name, "65 MiB") && !long {
			continue // package modelapi tests the limit
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer { return c.answer })
			r := ask(t, provider(t, server, anthropic.Config{}), turn(prompt("go")))
			if failed := r.failure(t); failed.Failure != c.failure || failed.Request != "req_local" || failed.Message == "" || len(failed.Message) > 5000 {
				t.Errorf("the failure is %.300v, want %s", failed, c.failure)
			}
			if r.finish != nil || len(r.calls) > 0 {
				t.Errorf("the reply has an end or calls: %+v", r)
			}
		})
	}
}

// A reader that stops closes the request, and an interruption ends a request that has no
// response yet.
func TestARequestEndsWithItsReader(t *testing.T) {
	t.Parallel()
	stopped := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
		return providerstest.ModelAnswer{Chunks: providerstest.AnthropicStream("m-1", everything)[:4], End: providerstest.EndHeld}
	})
	for range provider(t, stopped, anthropic.Config{}).Reply(t.Context(), turn(prompt("go"))) {
		break
	}
	stopped.Close() // returns when each request is closed
	if n := stopped.Ended(); n != 1 {
		t.Errorf("%d responses ended, want 1", n)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	cause := errors.New("the user presses a key")
	silent := serve(t, func(providerstest.ModelRequest) providerstest.ModelAnswer {
		cancel(cause)
		return providerstest.ModelAnswer{NoHeader: true, End: providerstest.EndHeld}
	})
	var last error
	for _, err := range provider(t, silent, anthropic.Config{}).Reply(ctx, turn(prompt("go"))) {
		last = err
	}
	if last != cause {
		t.Errorf("the reply ended with %v, want the cause", last)
	}
	silent.Close()
	if n := silent.Ended(); n != 1 {
		t.Errorf("%d responses ended, want 1", n)
	}
}
