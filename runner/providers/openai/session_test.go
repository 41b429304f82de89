package openai_test

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
	"github.com/settlement-ledger/ledger/runner/providers/openai"
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
// cut is on record as refused, and the session goes on with valid requests.
func TestASessionRunsWholeCallsOnly(t *testing.T) {
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		finish := map[openai.WireFormat]string{openai.ChatCompletions: "length", openai.Responses: "max_output_tokens"}[format]
		list := [][]string{
			stream(format, providerstest.OpenAIReply{Text: "I look.", Encrypted: "gAAAA", Calls: []providerstest.OpenAICall{{ID: "c1", Name: "read", Arguments: `{"path":"a"}`}, {ID: "c2", Name: "read", Arguments: `{"path":"b"}`}, {ID: "c3", Name: "read", Arguments: `{"path": c`}}}),
			stream(format, providerstest.OpenAIReply{Text: "More.", Finish: finish, Calls: []providerstest.OpenAICall{{ID: "c1", Name: "read", Arguments: `{"path":"d"}`}, {ID: "c2", Name: "read", Arguments: `{"path":"no"}`}}}),
			stream(format, providerstest.OpenAIReply{Text: "And more.", Calls: []providerstest.OpenAICall{{ID: "c1", Name: "read", Arguments: `{"path":"no"}`}}}),
			stream(format, providerstest.OpenAIReply{Text: "Done."}),
		}
		list[2] = list[2][:len(list[2])-4]
		server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
			answer := providerstest.ModelAnswer{Chunks: list[r.Number]}
			if r.Number == 2 {
				answer.End = providerstest.EndReset
			}
			return answer
		})
		var mu sync.Mutex
		var ran []string
		r, ledger, session := openSession(t, provider(t, server, openai.Config{API: format}), func(path string) {
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
	})
}

// A session outgrows the window of its model three times: the server refuses the request,
// and the run goes on with a smaller one. Each request is valid.
func TestASessionOutgrowsTheWindow(t *testing.T) {
	const window, calls = 5000, 24
	eachFormat(t, func(t *testing.T, format openai.WireFormat) {
		read := 0
		server := serve(t, func(r providerstest.ModelRequest) providerstest.ModelAnswer {
			if tokens := len(r.Body) / 4; tokens > window {
				return providerstest.OpenAIFailure(400, "context_length_exceeded", fmt.Sprintf("maximum context length is %d tokens, and the messages have %d", window, tokens))
			}
			reply := providerstest.OpenAIReply{Text: "Done.", Encrypted: "gAAAA"}
			switch {
			case strings.Contains(string(r.Body), "Summarize this session"):
				reply = providerstest.OpenAIReply{Text: "We read pages."}
			case read < calls:
				read++
				reply.Text, reply.Calls = "", []providerstest.OpenAICall{{ID: fmt.Sprint("c", read), Name: "read", Arguments: fmt.Sprintf(`{"path":%q}`, strings.Repeat("p", 1500))}}
			}
			return providerstest.ModelAnswer{Chunks: stream(format, reply)}
		})
		r, ledger, session := openSession(t, provider(t, server, openai.Config{API: format}), func(string) {})
		if err := r.Run(t.Context(), session); err != nil {
			t.Errorf("Run = %v", err)
		}
		compactions := 0
		for v, err := range ledger.Read(t.Context(), events.SessionStream(session), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e, ok := v.Event.(events.ContextCompacted); ok {
				if compactions++; e.Trigger != events.CompactedExceeded || !strings.Contains(e.Summary, "We read pages.") && e.Detail == "" {
					t.Errorf("the compaction is %+v", e)
				}
			}
		}
		if compactions < 3 || read != calls {
			t.Errorf("%d compactions, %d calls", compactions, read)
		}
	})
}
