package anthropic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/providers/anthropic"
	"github.com/settlement-ledger/ledger/runner/providers/modelapi"
	"github.com/settlement-ledger/ledger/runner/providers/providerstest"
)

// noOutputs is a store of outputs that fails every Keep.
type noOutputs struct{}

func (noOutputs) Keep(context.Context, domain.Ref, string, io.Reader) (domain.Retained, error) {
	return domain.Retained{}, errors.New("this test keeps no outputs")
}
func (noOutputs) Confirm(context.Context, domain.EventID) error { return nil }

// A page is the input of the tool of the tests.
type page struct {
	Path string `json:"path"`
}

// openSession starts a process with one tool, which adds the paths that it runs with to
// ran, and opens a session in it.
func openSession(t *testing.T, p runner.Provider, ran func(string)) (*runner.Runner, *events.Ledger, domain.SessionID) {
	t.Helper()
	ledger, ctx := events.NewLedger(eventstest.NewSlice(), mint, time.Now), t.Context()
	self := mint.Process()
	if _, err := ledger.Append(ctx, events.ProcessStream(self), 0, ledger.Draft(events.ProcessStarted{Process: self, Host: "test", PID: 1, Program: "test", Version: "1"}, domain.EventID{})); err != nil {
		t.Fatal(err)
	}
	read, err := domain.Make(domain.Spec[page, string]{Description: "Reads.", Execute: func(_ context.Context, in page, _ domain.Invocation) (string, error) {
		ran(in.Path)
		return "text of " + in.Path, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	layers := registry.NewLayers(ledger, self)
	place, err := layers.Location(ctx, "/here")
	if err != nil {
		t.Fatal(err)
	}
	if err := place.Scope().Register(ctx, registry.Tools{"read": read}); err != nil {
		t.Fatal(err)
	}
	tools, err := layers.Registry(registry.Config{Outputs: noOutputs{}, Grace: time.Second}, place)
	if err != nil {
		t.Fatal(err)
	}
	r := runner.New(runner.Config{Ledger: ledger, Registry: tools, Provider: p})
	session, err := r.Open(ctx, events.SessionOpened{Agent: "build", Location: "/here", Model: "m-1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Admit(ctx, session, mint.Message(), "read it all"); err != nil {
		t.Fatal(err)
	}
	return r, ledger, session
}

// A session runs the calls of whole replies and no call that broke off. A reply that was
// cut is on record as refused, and the session goes on with valid requests, which contain
// the signed thinking of its replies.
func TestASessionRunsWholeCallsOnly(t *testing.T) {
	t.Parallel()
	type calls = []providerstest.AnthropicCall
	list := [][]string{
		providerstest.AnthropicStream("m-1", providerstest.AnthropicReply{Thinking: "Hm.", Text: "I look.", Calls: calls{{ID: "c1", Name: "read", Input: `{"path":"a"}`}, {ID: "c2", Name: "read", Input: `{"path":"b"}`}, {ID: "c3", Name: "read", Input: `{"path": c`}}}),
		providerstest.AnthropicStream("m-1", providerstest.AnthropicReply{Text: "More.", Stop: "max_tokens", Calls: calls{{ID: "c1", Name: "read", Input: `{"path":"d"}`}, {ID: "c2", Name: "read", Input: `{"path":"no"}`}}}),
		providerstest.AnthropicStream("m-1", providerstest.AnthropicReply{Text: "And more.", Calls: calls{{ID: "c1", Name: "read", Input: `{"path":"no"}`}}}),
		providerstest.AnthropicStream("m-1", providerstest.AnthropicReply{Text: "Done."}),
	}
	list[2] = list[2][:len(list[2])-3]
	server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
		answer := providerstest.ModelAnswer{Chunks: list[r.Number]}
		if r.Number == 2 {
			answer.End = providerstest.EndReset
		}
		return answer
	})
	var mu sync.Mutex
	var ran []string
	r, ledger, session := openSession(t, provider(t, server, anthropic.Config{ThinkingBudget: 2048}), func(path string) {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, path)
	})
	err := r.Run(t.Context(), session)
	if failed, ok := errors.AsType[*runner.ProviderError](err); !ok || failed.Failure != runner.StreamCut {
		t.Errorf("the first run ended with %v, want a cut stream", err)
	}
	if err := r.Run(t.Context(), session); err != nil {
		t.Errorf("the second run ended with %v", err)
	}
	if slices.Sort(ran); fmt.Sprint(ran) != "[a b d]" {
		t.Errorf("the calls of %v ran, want a, b and d", ran)
	}
	if requests := server.Requests(); len(requests) != 4 || strings.Count(string(requests[3].Body), `"signature":"signed"`) != 1 {
		t.Errorf("%d requests were sent, want 4, and the thinking in the last one: %s", len(requests), requests[len(requests)-1].Body)
	}
	var outcomes []string
	var refused []events.ReplyRefused
	for v, err := range ledger.Read(t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := v.Event.(type) {
		case events.CallSettled:
			outcomes = append(outcomes, e.Outcome.String())
		case events.ReplyRefused:
			refused = append(refused, e)
		}
	}
	if slices.Sort(outcomes); strings.Join(outcomes, " ") != "invalid_input invalid_input succeeded succeeded succeeded" {
		t.Errorf("the calls ended as %v", outcomes)
	}
	if len(refused) != 1 || refused[0].Text != "And more." || len(refused[0].Calls) != 1 || !isString(refused[0].Calls[0].Input) {
		t.Errorf("the refused replies are %+v, want one with its text and the call that broke off", refused)
	}
}

// A reply with odd values of a hostile server is recorded, or the run ends with an error;
// the session can be read afterwards and goes on.
func TestASessionSurvivesOddReplies(t *testing.T) {
	t.Parallel()
	begin := func(usage string) string {
		return "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"\\ud800\\u0000\",\"usage\":" + usage + "}}\n\n"
	}
	const end = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"\\ud800\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n"
	call := func(id, name string) string {
		return "data: {\"type\":\"content_block_start\",\"index\":-7,\"content_block\":{\"type\":\"tool_use\",\"id\":" + id + ",\"name\":" + name + "}}\n\ndata: {\"type\":\"content_block_stop\",\"index\":-7}\n\n"
	}
	for _, stream := range []string{
		begin(`{"input_tokens":-5,"output_tokens":-9223372036854775808,"cache_read_input_tokens":1e3}`) + end,
		begin(`{"input_tokens":9223372036854775807}`) + end,
		begin(`[]`) + call(`"\ud800"`, `""`) + end,
		begin(`null`) + call(`""`, `"read"`) + end,
		begin(`7`) + call(`"`+strings.Repeat("x", 2000)+`"`, `"`+strings.Repeat("y", 2000)+`"`) + end,
		begin(`{}`) + call(`"c"`, `"read\u0000"`) + end,
	} {
		server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
			if r.Number == 0 {
				return providerstest.ModelAnswer{Chunks: []string{stream}}
			}
			return providerstest.ModelAnswer{Chunks: providerstest.AnthropicStream("m-1", providerstest.AnthropicReply{Text: "Done."})}
		})
		r, ledger, session := openSession(t, provider(t, server, anthropic.Config{}), func(string) {})
		first := r.Run(t.Context(), session)
		if first != nil && !errors.Is(first, runner.ErrBadReply) {
			t.Errorf("%.200s: the first run ended with %v", stream, first)
		}
		if err := r.Admit(t.Context(), session, mint.Message(), "go on"); err != nil {
			t.Errorf("%.200s: after %v, Admit = %v", stream, first, err)
		}
		if err := r.Run(t.Context(), session); err != nil {
			t.Errorf("%.200s: after %v the second run ended with %v", stream, first, err)
		}
		for _, err := range ledger.Read(t.Context(), events.SessionStream(session), 0) {
			if err != nil {
				t.Errorf("%.200s: the session cannot be read: %v", stream, err)
			}
		}
	}
}

// A session outgrows the window of its model three times: the server refuses what is too
// large, or the runner leaves out the beginning before, from the sizes that the server
// counted. Each request is valid, and the session goes on to its end.
func TestASessionOutgrowsTheWindow(t *testing.T) {
	t.Parallel()
	const window, calls = 6000, 24
	for _, known := range []bool{true, false} {
		read := 0
		server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
			tokens := len(r.Body) / 4
			if tokens > window-1000 {
				return providerstest.AnthropicFailure(400, "invalid_request_error", fmt.Sprintf("prompt is too long: %d tokens > %d maximum", tokens, window-1000))
			}
			reply := providerstest.AnthropicReply{Thinking: "Hm.", Text: "Done."}
			switch {
			case strings.Contains(string(r.Body), "Summarize this session"):
				reply = providerstest.AnthropicReply{Text: "We read pages."}
			case read < calls:
				read++
				reply.Text, reply.Calls = "", []providerstest.AnthropicCall{{ID: "c", Name: "read", Input: fmt.Sprintf(`{"path":%q}`, strings.Repeat("p", 1500))}}
			}
			chunks := providerstest.AnthropicStream("m-1", reply)
			chunks[0] = strings.Replace(chunks[0], `"input_tokens":11`, fmt.Sprintf(`"input_tokens":%d`, tokens), 1)
			return providerstest.ModelAnswer{Chunks: chunks}
		})
		config := anthropic.Config{ThinkingBudget: 1024, MaxOutputTokens: 2048}
		if known {
			config.Windows = map[string]modelapi.ContextWindow{"m-1": {Window: window, Output: 1000}}
		}
		r, ledger, session := openSession(t, provider(t, server, config), func(string) {})
		if err := r.Run(t.Context(), session); err != nil {
			t.Errorf("known %v: Run = %v", known, err)
		}
		compactions, refused := 0, 0
		for v, err := range ledger.Read(t.Context(), events.SessionStream(session), 0) {
			if err != nil {
				t.Fatal(err)
			}
			switch e := v.Event.(type) {
			case events.ContextCompacted:
				if compactions++; e.Model != "m-1" || !strings.Contains(e.Summary, "We read pages.") {
					t.Errorf("known %v: the compaction is %+v", known, e)
				}
			case events.ProviderFailed:
				refused++
			}
		}
		if compactions < 3 || known == (refused > 0) || read != calls {
			t.Errorf("known %v: %d compactions, %d refused requests, %d calls", known, compactions, refused, read)
		}
	}
}
