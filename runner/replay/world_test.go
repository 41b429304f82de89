package replay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/replay"
)

// A world is a process that records a session with real tools over a store in memory.
type world struct {
	t       *testing.T
	store   events.Store
	alive   *atomic.Bool
	ledger  *events.Ledger
	process domain.ProcessID
	kept    *keptOutputs
	layers  *registry.Layers
	layer   *registry.Layer
	scope   *registry.Scope
	runner  *runner.Runner
	replies *replies
	session domain.SessionID
}

// keptOutputs keeps outputs in memory.
type keptOutputs struct {
	replay.Digests
	mu   sync.Mutex
	data map[domain.Ref][]byte
}

func (k *keptOutputs) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return domain.Retained{}, err
	}
	k.mu.Lock()
	k.data[ref] = data
	k.mu.Unlock()
	return k.Digests.Keep(ctx, ref, mime, bytes.NewReader(data))
}

func (k *keptOutputs) open(_ context.Context, ref domain.Ref) (io.ReadCloser, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	data, ok := k.data[ref]
	if !ok {
		return nil, fmt.Errorf("%w: %s", replay.ErrOutputGone, ref)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// replies is a provider that gives one prepared reply after the other. A reply with a
// function calls it before it ends.
type replies struct {
	mu   sync.Mutex
	next []preparedReply
}

type preparedReply struct {
	parts  []runner.Part
	before func(context.Context) error
	fails  error
}

func (r *replies) add(parts ...runner.Part) *replies { return r.addReply(preparedReply{parts: parts}) }

func (r *replies) addReply(p preparedReply) *replies {
	r.next = append(r.next, p)
	return r
}

func (r *replies) NextModel(*conversation.State, string) (string, string) { return "test", "model-1" }

func (r *replies) PrepareRequest(t runner.Turn) (runner.RequestRecord, error) {
	return runner.RequestRecord{Parameters: `{"max_tokens":100}`, Schemas: fmt.Sprintf("[%d]", len(t.Tools))}, nil
}

func (r *replies) Reply(ctx context.Context, _ runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		r.mu.Lock()
		if len(r.next) == 0 {
			r.mu.Unlock()
			yield(nil, errors.New("no further reply is prepared"))
			return
		}
		reply := r.next[0]
		r.next = r.next[1:]
		r.mu.Unlock()
		for _, p := range reply.parts {
			if !yield(p, nil) {
				return
			}
		}
		if reply.before != nil {
			if err := reply.before(ctx); err != nil {
				yield(nil, err)
				return
			}
		}
		if reply.fails != nil {
			yield(nil, reply.fails)
		}
	}
}

func text(s string) runner.Part { return runner.TextPart(s) }

func call(id, tool, input string) runner.Part {
	return runner.CallPart{ID: domain.CallID(id), Name: tool, Input: json.RawMessage(input)}
}

var finish = runner.FinishPart{Reason: "stop", Model: "model-1", Tokens: events.Tokens{Input: 10, Output: 5}}

// newWorld starts a process with the tools of a test.
func newWorld(t *testing.T, config runner.Config) *world {
	w := &world{t: t, store: eventstest.NewSlice(), kept: &keptOutputs{data: map[domain.Ref][]byte{}}, replies: &replies{}}
	w.boot(config)
	var err error
	if w.session, err = w.runner.Open(t.Context(), events.SessionOpened{Agent: "build", Location: "/here", Model: "model-1"}); err != nil {
		t.Fatal(err)
	}
	return w
}

// boot starts a process over the store of w.
func (w *world) boot(config runner.Config) {
	w.t.Helper()
	ctx := w.t.Context()
	w.alive = new(atomic.Bool)
	w.alive.Store(true)
	w.ledger = events.NewLedger(&mortal{w.store, w.alive}, domain.NewMint(time.Now, rand.Reader), time.Now)
	w.process = w.ledger.Mint().Process()
	started := w.ledger.Draft(events.ProcessStarted{Process: w.process, Program: "test"}, domain.EventID{})
	_, err := w.ledger.Append(ctx, events.ProcessStream(w.process), 0, started)
	w.layers = registry.NewLayers(w.ledger, w.process)
	if err == nil {
		w.layer, err = w.layers.Location(ctx, "/here")
	}
	if err == nil {
		w.scope = w.layer.Scope()
		err = w.scope.Register(ctx, w.tools())
	}
	var r *registry.Registry
	if err == nil {
		r, err = w.layers.Registry(registry.Config{Outputs: w.kept, Grace: time.Second}, w.layer)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	config.Ledger, config.Registry, config.Provider = w.ledger, r, w.replies
	w.runner = runner.New(config)
}

// restart starts another process over the store, which recovers the session.
func (w *world) restart() {
	w.t.Helper()
	ctx, dead := w.t.Context(), w.layer.ID()
	w.boot(runner.Config{})
	length := events.Revision(0)
	for v, err := range w.ledger.Read(ctx, events.LayerStream(dead), 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		length = v.Revision
	}
	_, err := w.ledger.Append(ctx, events.LayerStream(dead), length, w.ledger.Draft(events.LayerClosed{Layer: dead, Reason: events.ProcessLost}, domain.EventID{}))
	if err != nil {
		w.t.Fatal(err)
	}
	empty, err := w.layers.Registry(registry.Config{})
	if err == nil {
		err = runner.New(runner.Config{Ledger: w.ledger, Registry: empty}).Recover(ctx, w.session)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// A mortal store accepts appends while its process is alive.
type mortal struct {
	events.Store
	alive *atomic.Bool
}

func (m *mortal) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	if !m.alive.Load() {
		return events.ErrClosed
	}
	return m.Store.Append(ctx, s, after, records...)
}

type textInput struct {
	Text string `json:"text"`
}

// makeTool makes a tool of a function.
func (w *world) makeTool(description string, run func(context.Context, textInput, domain.Invocation) (string, error)) domain.Tool {
	tool, err := domain.Make(domain.Spec[textInput, string]{
		Description: description, Execute: run, Title: func(in textInput) string { return "do " + in.Text },
		Lost: func(out string) int64 { return int64(strings.Count(out, "\x01")) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return tool
}

// tools are tools that end in every way.
func (w *world) tools() registry.Tools {
	return registry.Tools{
		"echo": w.makeTool("Returns its text.", func(_ context.Context, in textInput, _ domain.Invocation) (string, error) { return in.Text, nil }),
		"long": w.makeTool("Returns a long text.", func(_ context.Context, in textInput, _ domain.Invocation) (string, error) {
			return strings.Repeat(in.Text+"\n", 10_000) + "\x01", nil
		}),
		"fail": w.makeTool("Fails.", func(_ context.Context, in textInput, inv domain.Invocation) (string, error) {
			inv.Report(domain.Progress{Content: domain.Contents{domain.Text("half done")}})
			return "", domain.Fail("cannot do %s", in.Text)
		}),
		"panic": w.makeTool("Panics.", func(_ context.Context, in textInput, _ domain.Invocation) (string, error) { panic("bug: " + in.Text) }),
		"broken": w.makeTool("Breaks.", func(_ context.Context, in textInput, _ domain.Invocation) (string, error) {
			return "", errors.New("no connection to " + in.Text)
		}),
		"ask": w.makeTool("Asks.", func(ctx context.Context, in textInput, inv domain.Invocation) (string, error) {
			id := w.ledger.Mint().Permission()
			err := w.runner.Note(ctx, inv, events.PermissionRequested{
				Permission: id, Message: inv.Message, Call: inv.Call, Agent: inv.Agent, Action: "ask", Resources: []string{in.Text},
			})
			if err != nil {
				return "", err
			}
			decided := events.PermissionDecided{Permission: id, Effect: domain.Allow, By: events.ByPerson, Scope: "once", WaitedMS: 1234}
			if in.Text != "yes" {
				decided.Effect, decided.Scope, decided.Feedback = domain.Deny, "reject", in.Text
			}
			if err := w.runner.Note(ctx, inv, decided); err != nil {
				return "", err
			}
			if in.Text != "yes" {
				return "", &domain.Declined{Feedback: in.Text}
			}
			return "asked", nil
		}),
		"deny": w.makeTool("Is denied.", func(_ context.Context, in textInput, _ domain.Invocation) (string, error) {
			return "", &domain.Denied{Action: "deny", Resource: in.Text, Rule: domain.Rule{Action: "deny", Resource: "*", Effect: domain.Deny, Source: "rules:3"}}
		}),
		"batch": w.makeTool("Makes calls.", func(ctx context.Context, in textInput, inv domain.Invocation) (string, error) {
			_, ends, err := w.runner.SettleAdded(ctx, inv, []domain.Call{
				{Name: "echo", Input: json.RawMessage(`{"text":"one"}`)}, {Name: "fail", Input: json.RawMessage(`{"text":"two"}`)},
			})
			return fmt.Sprintf("%d ended", len(ends)), err
		}),
		"wait": w.makeTool("Waits.", func(ctx context.Context, _ textInput, _ domain.Invocation) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}),
		"later": w.makeTool("Waits for another call.", func(ctx context.Context, in textInput, inv domain.Invocation) (string, error) {
			return in.Text, w.awaitEnd(ctx, inv.Message, "b")
		}),
	}
}

// awaitEnd waits for the end of a call.
func (w *world) awaitEnd(ctx context.Context, message domain.MessageID, id domain.CallID) error {
	for v, err := range w.ledger.Follow(ctx, events.Position{}) {
		if err != nil {
			return err
		}
		if e, ok := v.Event.(events.CallSettled); ok && e.Message == message && e.Call == id {
			return nil
		}
	}
	return nil
}

// prompt admits a prompt and runs the session.
func (w *world) prompt(text string) error {
	w.t.Helper()
	if err := w.runner.Admit(w.t.Context(), w.session, w.ledger.Mint().Message(), text); err != nil {
		w.t.Fatal(err)
	}
	return w.runner.Run(w.t.Context(), w.session)
}

// mustPrompt is prompt for a run that ends idle.
func (w *world) mustPrompt(text string) {
	w.t.Helper()
	if err := w.prompt(text); err != nil {
		w.t.Fatal(err)
	}
}

// replay replays the session into a store of its own, which a saboteur may change.
func (w *world) replay(sabotage func(events.Event) events.Event) *replay.Report {
	w.t.Helper()
	if sabotage == nil {
		return w.replayInto(eventstest.NewSlice())
	}
	return w.replayInto(&saboteur{Store: eventstest.NewSlice(), change: sabotage})
}

// replayInto replays the session into a store.
func (w *world) replayInto(store events.Store) *replay.Report {
	w.t.Helper()
	tape, err := replay.ReadTape(w.t.Context(), w.ledger, w.session)
	if err != nil {
		w.t.Fatal(err)
	}
	mint := domain.NewMint(time.Now, rand.Reader)
	report, err := tape.Run(w.t.Context(), replay.Config{
		Store: store, Mint: mint, Now: time.Now, Process: mint.Process(), Recording: w.store, Source: w.kept.open,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

// same fails the test unless a replay of the session is the same.
func (w *world) same() *replay.Report {
	w.t.Helper()
	r := w.replay(nil)
	for _, d := range r.Differences {
		w.t.Errorf("%v\n recorded: %s\n replayed: %s", d, d.Recorded, d.Replayed)
	}
	return r
}

// A saboteur is a store that changes events as they are appended.
type saboteur struct {
	events.Store
	change func(events.Event) events.Event
	did    bool
}

func (s *saboteur) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	for i, r := range records {
		v, err := events.Decode(events.Entry{Record: r, Stream: stream})
		if err != nil {
			return err
		}
		changed := s.change(v.Event)
		if changed == nil || s.did {
			continue
		}
		s.did = true
		if records[i], err = events.Encode(events.Draft{ID: r.ID, Time: r.Time, Correlation: v.Correlation, Causation: v.Causation, Event: changed}); err != nil {
			return err
		}
	}
	return s.Store.Append(ctx, stream, after, records...)
}

// A swapping store exchanges the first two texts that one append records.
type swapping struct {
	events.Store
	did bool
}

func (s *swapping) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	text := events.TextRecorded{}.Kind()
	if !s.did && len(records) > 1 && records[0].Kind == text && records[1].Kind == text {
		s.did = true
		records[0], records[1] = records[1], records[0]
	}
	return s.Store.Append(ctx, stream, after, records...)
}

// ends returns the outcomes of the calls of the session.
func (w *world) ends() map[domain.CallID]domain.Outcome {
	w.t.Helper()
	ends := map[domain.CallID]domain.Outcome{}
	for v, err := range w.ledger.Read(w.t.Context(), events.SessionStream(w.session), 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		if e, ok := v.Event.(events.CallSettled); ok {
			ends[e.Call] = e.Outcome
		}
	}
	return ends
}
