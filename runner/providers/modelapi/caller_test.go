package modelapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
	"github.com/settlement-ledger/ledger/runner/secrets"
)

// secret is the secret of each test.
const secret = "sk-0123456789abcdef"

// quick is a policy with short waits.
var quick = modelapi.Policy{Attempts: 3, Backoff: time.Millisecond, Stall: time.Minute}

// serve starts a server and returns its URL.
func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// get returns a function that makes one attempt: it reads a URL and emits each piece that it
// reads. An error status is a reported error, and a text without a full stop is cut.
func get(url string) func(context.Context, modelapi.Attempt) error {
	return func(ctx context.Context, a modelapi.Attempt) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		response, err := a.Client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode >= 400 {
			text, _ := io.ReadAll(response.Body)
			if reported, ok := modelapi.ReportedIn(text); ok {
				return reported
			}
			return &modelapi.ReportedError{Message: string(text)}
		}
		whole := false
		for buffer := make([]byte, 32<<10); ; {
			n, err := response.Body.Read(buffer)
			if n > 0 && !a.Emit(runner.TextPart(buffer[:n])) {
				return modelapi.ErrStopped
			}
			whole = whole || strings.HasSuffix(string(buffer[:n]), ".")
			if err == io.EOF && whole {
				return nil
			}
			if err == io.EOF {
				return modelapi.ErrCut
			}
			if err != nil {
				return err
			}
		}
	}
}

// collect reads a reply: its text, the failed attempts, and its error, which does not have
// the secret.
func collect(t *testing.T, ctx context.Context, policy modelapi.Policy, run func(context.Context, modelapi.Attempt) error) (text string, failed []*runner.ProviderError, err error) {
	t.Helper()
	caller := modelapi.NewCaller("acme", policy, secrets.New(secret))
	for part, e := range caller.Stream(ctx, "m-1", run) {
		switch part := part.(type) {
		case runner.TextPart:
			text += string(part)
		case runner.FailedAttemptPart:
			failed = append(failed, part.Err)
			if part.Attempt != len(failed) {
				t.Errorf("attempt %d has the number %d", len(failed), part.Attempt)
			}
		}
		if e != nil {
			err = e
		}
	}
	for _, f := range append(failed, nil) {
		if text := fmt.Sprintf("%+v %v", f, err); strings.Contains(text, secret) {
			t.Errorf("an error has the secret: %s", text)
		}
	}
	return text, failed, err
}

// failure returns err as a *runner.ProviderError.
func failure(t *testing.T, err error) *runner.ProviderError {
	t.Helper()
	failed, ok := errors.AsType[*runner.ProviderError](err)
	if !ok {
		t.Fatalf("the error is %v, want a *runner.ProviderError", err)
	}
	return failed
}

// Each error status has its kind. Those that may pass are repeated up to the number of
// attempts, the others never; and every error names the request.
func TestFailuresThatMayPassAreRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status  int
		body    string
		failure runner.FailureKind
		repeats bool
	}{
		{400, `{"error":{"message":"no"}}`, runner.InvalidRequest, false},
		{400, `{"error":{"code":"context_length_exceeded","message":"too long"}}`, runner.ContextExceeded, false},
		{400, `{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens"}}`, runner.ContextExceeded, false},
		{401, `{"error":{"message":"bad key ` + secret + `"}}`, runner.AuthenticationFailure, false},
		{403, `nothing of JSON`, runner.AuthenticationFailure, false},
		{404, ``, runner.InvalidRequest, false},
		{408, ``, runner.Overloaded, true},
		{413, ``, runner.ContextExceeded, false},
		{429, `{"error":{"code":"rate_limit_exceeded","message":"slow"}}`, runner.RateLimited, true},
		{429, `{"error":{"code":"insufficient_quota","message":"pay"}}`, runner.RateLimited, false},
		{500, `{"error":"broken"}`, runner.Overloaded, true},
		{503, `<html>`, runner.Overloaded, true},
		{529, `{"error":{"type":"overloaded_error","message":"busy"}}`, runner.Overloaded, true},
	} {
		var requests atomic.Int64
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.Header().Set("X-Request-Id", "req_7")
			w.WriteHeader(c.status)
			io.WriteString(w, c.body)
		})
		text, failed, err := collect(t, t.Context(), quick, get(url))
		last, want := failure(t, err), 1
		if c.repeats {
			want = 3
		}
		if text != "" || int(requests.Load()) != want || len(failed) != want-1 {
			t.Errorf("%d %s: %d requests and %d failed attempts, want %d requests", c.status, c.body, requests.Load(), len(failed), want)
		}
		for _, f := range append(failed, last) {
			if f.Failure != c.failure || f.Status != c.status || f.Request != "req_7" || f.Provider != "acme" || f.Model != "m-1" {
				t.Errorf("%d %s: %v, want %s of the request req_7", c.status, c.body, f, c.failure)
			}
		}
	}
}

// A failure that passes leaves a whole reply.
func TestALaterAttemptSucceeds(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) < 3 {
			w.WriteHeader(529)
			return
		}
		io.WriteString(w, "done.")
	})
	if text, failed, err := collect(t, t.Context(), quick, get(url)); text != "done." || len(failed) != 2 || err != nil {
		t.Errorf("the reply is %q after %v, %v; want it after two failures", text, failed, err)
	}
}

// The client waits as long as the server asks, in each form of the header, and gives up if
// that is longer than the policy allows.
func TestTheServerSaysHowLongToWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		header, value string
		asked         time.Duration
		requests      int64
	}{
		{"Retry-After-Ms", "2", 2 * time.Millisecond, 2},
		{"Retry-After", "0.002", 2 * time.Millisecond, 2},
		{"Retry-After", "soon", 0, 2},
		{"Retry-After", "-5", 0, 2},
		{"Retry-After", "NaN", 0, 2},
		{"Retry-After", "3600", time.Hour, 1},
		{"Retry-After", "1e300", 24 * time.Hour, 1},
		{"Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), time.Hour, 1},
	} {
		var requests atomic.Int64
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.Header().Set(c.header, c.value)
			w.WriteHeader(429)
		})
		policy := quick
		policy.Attempts = 2
		_, _, err := collect(t, t.Context(), policy, get(url))
		got := failure(t, err).RetryAfter
		if requests.Load() != c.requests || got > c.asked || got < c.asked-time.Minute {
			t.Errorf("%s: %s: %d requests and a wait of %v, want %d and %v", c.header, c.value, requests.Load(), got, c.requests, c.asked)
		}
	}
}

// A reply that has a part is never asked for again.
func TestAReplyThatBeganIsNotRepeated(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	text, failed, err := collect(t, t.Context(), quick, get(url))
	if last := failure(t, err); text != "half" || requests.Load() != 1 || len(failed) != 0 || last.Failure != runner.StreamCut {
		t.Errorf("after %d requests the reply is %q, %v; want it cut after one", requests.Load(), text, err)
	}
}

// A server that cannot be reached, or that closes the connection without a response, is a
// failed connection.
func TestNoResponseIsAConnectionFailure(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	url := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, address := range []string{closed.URL, url} {
		_, failed, err := collect(t, t.Context(), quick, get(address))
		if last := failure(t, err); last.Failure != runner.ConnectionFailure || last.Status != 0 || len(failed) != 2 {
			t.Errorf("%s: %v after %d failed attempts, want a failed connection after two", address, err, len(failed))
		}
	}
}

// A server that sends nothing for the stall time, before or in a response, has stalled. The
// request is then closed.
func TestAStalledServerEndsTheAttempt(t *testing.T) {
	t.Parallel()
	for _, sends := range []string{"", "half"} {
		closed := make(chan struct{})
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if sends != "" {
				io.WriteString(w, sends)
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
			close(closed)
		})
		text, _, err := collect(t, t.Context(), modelapi.Policy{Attempts: 1, Stall: 100 * time.Millisecond}, get(url))
		if last := failure(t, err); !strings.HasPrefix(sends, text) || last.Failure != runner.StreamStalled {
			t.Errorf("the reply is %q, %v; want up to %q and a stall", text, err, sends)
		}
		<-closed
	}
}

// A server that keeps a connection alive and never sends a part of a reply has stalled too.
// The request is closed and not repeated.
func TestAServerThatOnlyKeepsAliveEndsTheAttempt(t *testing.T) {
	t.Parallel()
	requests := make(chan struct{}, 10)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests <- struct{}{}
		io.Copy(io.Discard, r.Body)
		for r.Context().Err() == nil {
			io.WriteString(w, ": alive\n\n")
			w.(http.Flusher).Flush()
			runtime.Gosched()
		}
	})
	read := func(ctx context.Context, a modelapi.Attempt) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		response, err := a.Client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		for buffer := make([]byte, 10); err == nil; {
			_, err = response.Body.Read(buffer)
		}
		return err
	}
	_, _, err := collect(t, t.Context(), modelapi.Policy{Attempts: 3, Stall: 200 * time.Millisecond}, read)
	if last := failure(t, err); last.Failure != runner.StreamStalled || last.Message != "the model server sent bytes and no part of a reply for too long (2.4s)" {
		t.Errorf("the reply ended with %v, want a stall", err)
	}
	if len(requests) != 1 {
		t.Errorf("%d requests were sent, want 1", len(requests))
	}
}

// A reader that holds a part for longer than the stall time stalls nothing.
func TestASlowReaderIsNoStall(t *testing.T) {
	t.Parallel()
	resumed := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		select {
		case <-resumed:
			io.WriteString(w, "done.")
		case <-r.Context().Done():
		}
	})
	caller, text := modelapi.NewCaller("acme", modelapi.Policy{Attempts: 1, Stall: 300 * time.Millisecond}, nil), ""
	for part, err := range caller.Stream(t.Context(), "m-1", get(url)) {
		if err != nil {
			t.Errorf("the reply ended with %v", err)
		}
		if piece, ok := part.(runner.TextPart); ok {
			text += string(piece)
		}
		if text == "half" {
			<-time.After(700 * time.Millisecond) // more than two stall times
			close(resumed)
		}
	}
	if text != "halfdone." {
		t.Errorf("the reply is %q, want all of it", text)
	}
}

// The cause with which the context ends is the error, during an attempt and between two.
func TestAnInterruptionEndsTheRequest(t *testing.T) {
	t.Parallel()
	cause := errors.New("the user presses a key")
	for _, status := range []int{200, 500} {
		ctx, cancel := context.WithCancelCause(t.Context())
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if status == 500 {
				w.Header().Set("Retry-After", "50")
				w.WriteHeader(status)
				return
			}
			cancel(cause)
			<-r.Context().Done()
		})
		caller := modelapi.NewCaller("acme", modelapi.Policy{}, nil)
		var last error
		for part, err := range caller.Stream(ctx, "m-1", get(url)) {
			if _, ok := part.(runner.FailedAttemptPart); ok {
				cancel(cause)
			}
			last = err
		}
		if last != cause {
			t.Errorf("with the status %d the reply ended with %v, want the cause", status, last)
		}
	}
}

// A reader that stops ends the request.
func TestAReaderThatStopsEndsTheRequest(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "half")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(closed)
	})
	for range modelapi.NewCaller("acme", modelapi.Policy{}, nil).Stream(t.Context(), "m-1", get(url)) {
		break
	}
	<-closed
}

// A redirect is an error, and the other host sees no request.
func TestARedirectIsAnError(t *testing.T) {
	t.Parallel()
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the other host received %v", r.Header) })
	url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusTemporaryRedirect) })
	_, failed, err := collect(t, t.Context(), quick, get(url))
	if last := failure(t, err); last.Failure != runner.InvalidRequest || last.Status != 307 || len(failed) != 0 {
		t.Errorf("the redirect ended with %v after %v", err, failed)
	}
}

// A response over the limit is an error.
func TestAnOversizedResponseIsAnError(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		piece := strings.Repeat("x", 1<<20)
		for range modelapi.MaxResponse>>20 + 1 {
			if _, err := io.WriteString(w, piece); err != nil {
				return
			}
		}
	})
	caller, size := modelapi.NewCaller("acme", quick, nil), 0
	var last error
	for part, err := range caller.Stream(t.Context(), "m-1", get(url)) {
		if text, ok := part.(runner.TextPart); ok {
			size += len(text)
		}
		last = err
	}
	if failed := failure(t, last); failed.Failure != runner.StreamFailure || size > modelapi.MaxResponse {
		t.Errorf("after %d bytes the reply ended with %v", size, last)
	}
}

// An error of the provider itself, such as one about the turn, is passed on.
func TestAnIncompatibleTurnIsPassedOn(t *testing.T) {
	t.Parallel()
	refusal := &runner.IncompatibleError{Provider: "acme", Model: "m-1", Rule: "no"}
	_, failed, err := collect(t, t.Context(), quick, func(context.Context, modelapi.Attempt) error { return refusal })
	if err != error(refusal) || len(failed) != 0 {
		t.Errorf("the reply ended with %v after %v, want the refusal", err, failed)
	}
}
