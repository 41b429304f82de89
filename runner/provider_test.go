package runner_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A preparing provider yields its parts and then its error. It records the parameters and
// schemas of each request.
type preparing struct {
	parts    []runner.Part
	err      error
	refuses  error
	prepared []runner.Turn
	record   runner.RequestRecord
}

func (p *preparing) Reply(_ context.Context, _ runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		for _, part := range p.parts {
			if !yield(part, nil) {
				return
			}
		}
		if p.err != nil {
			yield(nil, p.err)
		}
	}
}

func (p *preparing) PrepareRequest(turn runner.Turn) (runner.RequestRecord, error) {
	p.prepared = append(p.prepared, turn)
	return p.record, p.refuses
}

// eventsOf returns the events of a session that have the type E.
func eventsOf[E events.Event](t *testing.T, p *program, session domain.SessionID) (found []E) {
	t.Helper()
	for v, err := range p.ledger.Read(t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// A turn names the parameters and schemas of its request by their digests, and the session
// has each text once.
func TestATurnRecordsItsRequestByDigest(t *testing.T) {
	t.Parallel()
	model := &preparing{record: runner.RequestRecord{Parameters: `{"max_tokens":5}`, Schemas: `[{"name":"echo"}]`}, parts: []runner.Part{runner.TextPart("done"), runner.FinishPart{Reason: "end"}}}
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: model})
	session := p.open("go")
	p.run(session)
	p.admit(session, "again")
	p.run(session)
	turns, texts := p.turns(session)
	for _, turn := range turns {
		for text, digest := range map[string]string{model.record.Parameters: turn.Parameters, model.record.Schemas: turn.Schemas} {
			if sum := sha256.Sum256([]byte(text)); digest != hex.EncodeToString(sum[:]) || texts[digest] != text {
				t.Errorf("the turn names %s by %q, which has the text %q", text, digest, texts[digest])
			}
		}
	}
	if all := eventsOf[events.TextRecorded](t, p, session); len(turns) != 2 || len(all) != 2 || len(model.prepared) != 2 || len(model.prepared[0].Tools) != 1 {
		t.Errorf("%d turns recorded %d texts, and prepared %v; want 2 turns with two texts in all", len(turns), len(all), model.prepared)
	}
}

// A turn that the model cannot accept is neither recorded nor sent.
func TestAnIncompatibleTurnIsNotRecorded(t *testing.T) {
	t.Parallel()
	refusal := &runner.IncompatibleError{Provider: "acme", Model: "m-1", Tool: "echo", Rule: "a schema is an object", Detail: "it is an array"}
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: &preparing{refuses: refusal}})
	session := p.open("go")
	err := p.runner.Run(t.Context(), session)
	if got, ok := errors.AsType[*runner.IncompatibleError](err); !ok || got != refusal || !strings.Contains(err.Error(), "acme m-1 does not accept the tool echo: a schema is an object: it is an array") {
		t.Errorf("Run = %v, want the refusal", err)
	}
	if got := p.kinds(session); strings.Contains(got, "TurnMaterialized") {
		t.Errorf("the session has %s, want no turn", got)
	}
}

// A request that fails is on record with each attempt. The parts before the failure are a
// refused reply, and no call of it runs. The next run takes the turn again.
func TestAFailedRequestIsOnRecordWithItsParts(t *testing.T) {
	t.Parallel()
	overloaded := &runner.ProviderError{Provider: "acme", Model: "m-1", Failure: runner.Overloaded, Status: 529, Request: "req-1", Message: "busy"}
	cut := &runner.ProviderError{Provider: "acme", Model: "m-1", Failure: runner.StreamCut, Status: 200, Request: "req-2", Message: "no end"}
	for name, row := range map[string]struct {
		parts   []runner.Part
		err     error
		kinds   string
		refused []events.ReplyRefused
	}{
		"before the first part": {[]runner.Part{runner.FailedAttemptPart{Attempt: 1, Err: overloaded}}, cut, "ProviderFailed ProviderFailed", nil},
		"behind some parts": {
			[]runner.Part{
				runner.FailedAttemptPart{Attempt: 1, Err: overloaded}, runner.ThinkingPart("hm"), runner.TextPart("half"), ask("c", "echo", `{"text":"t"}`),
			}, cut, "ProviderFailed ProviderFailed ReplyRefused",
			[]events.ReplyRefused{{Text: "half", Thinking: "hm", Calls: []domain.Call{{ID: "c", Name: "echo", Input: json.RawMessage(`{"text":"t"}`)}}}},
		},
		"of another type": {[]runner.Part{runner.TextPart("half")}, errors.New("no route"), "ReplyRefused", []events.ReplyRefused{{Text: "half"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var count counter
			model := &preparing{parts: row.parts, err: row.err}
			p := start(t, registry.Tools{"echo": echo(&count)}, runner.Config{Provider: model, Steps: 3})
			session := p.open("go")
			if err := p.runner.Run(t.Context(), session); !errors.Is(err, row.err) {
				t.Fatalf("Run = %v, want %v", err, row.err)
			}
			if got, want := p.kinds(session), "SessionOpened PromptAdmitted TurnMaterialized "+row.kinds; got != want || count.total() != 0 {
				t.Fatalf("the session has %s after %d calls, want %s after none", got, count.total(), want)
			}
			turns, _ := p.turns(session)
			for i, f := range eventsOf[events.ProviderFailed](t, p, session) {
				want := [...]events.ProviderFailed{
					{Detail: "busy", Status: 529, Attempt: 1, Turn: turns[0].Turn, Provider: "acme", Model: "m-1", Failure: "overloaded", Request: "req-1"},
					{Detail: "no end", Status: 200, Attempt: 2, Turn: turns[0].Turn, Provider: "acme", Model: "m-1", Failure: "cut", Request: "req-2"},
				}[i]
				if f != want {
					t.Errorf("attempt %d is recorded as %+v, want %+v", i+1, f, want)
				}
			}
			refused := eventsOf[events.ReplyRefused](t, p, session)
			if len(refused) != len(row.refused) {
				t.Fatalf("the refused replies are %+v, want %+v", refused, row.refused)
			}
			for i, r := range refused {
				want := row.refused[i]
				if r.Turn != turns[0].Turn || r.Message != turns[0].Message || r.Text != want.Text || r.Thinking != want.Thinking || len(r.Calls) != len(want.Calls) || !strings.Contains(r.Reason, row.err.Error()) {
					t.Errorf("the refused reply is %+v, want %+v with the error", r, want)
				}
			}
			model.parts, model.err = []runner.Part{runner.TextPart("done")}, nil
			p.run(session)
			if s := p.state(session); s.Messages[len(s.Messages)-1].Reply.Text != "done" || len(s.Messages) != 2 {
				t.Errorf("the session has %d messages after the next run, want the prompt and its reply", len(s.Messages))
			}
		})
	}
}

// Thinking and opaque items are recorded with the reply, and the model reads the items
// again. Each part reaches OnPart in order.
func TestAReplyKeepsThinkingAndItems(t *testing.T) {
	t.Parallel()
	item := runner.ProviderPart{Provider: "acme", Model: "m-1", Data: json.RawMessage(`{"signature":"s"}`)}
	model := &preparing{parts: []runner.Part{runner.ThinkingPart("a"), runner.ThinkingPart("b"), item, runner.TextPart("done"), runner.FinishPart{Reason: "end", Model: "m-1-x"}}}
	var live []runner.Part
	p := start(t, registry.Tools{}, runner.Config{Provider: model, OnPart: func(_ runner.Turn, part runner.Part) { live = append(live, part) }})
	session := p.open("go")
	p.run(session)
	reply := eventsOf[events.ReplyReceived](t, p, session)[0]
	if reply.Thinking != "ab" || len(reply.Items) != 1 || reply.Items[0].Provider != "acme" || reply.Model != "m-1-x" || len(live) != len(model.parts) {
		t.Errorf("the reply is %+v after the parts %v, want thinking, an item and the model", reply, live)
	}
	messages := p.state(session).ModelMessages()
	if got := messages[len(messages)-1].Items; !slices.EqualFunc(got, reply.Items, func(a, b events.ProviderItem) bool { return string(a.Data) == string(b.Data) && a.Model == b.Model }) {
		t.Errorf("the model reads the items %v again, want %v", got, reply.Items)
	}
}
