package runner_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// An adding tool adds calls to its own call with the runner of a program, which starts
// after the tools are made.
type adding struct {
	program atomic.Pointer[program]
	// detach replaces the context of the added calls. Nil: they have that of the call.
	detach func(context.Context) context.Context
}

// The input of an adding tool: the names of the tools that it calls.
type added struct {
	Names []string `json:"names"`
}

// tool returns the tool. It returns the IDs of the added calls and their outcomes.
func (a *adding) tool(world *counter) domain.Tool {
	return must(domain.Spec[added, string]{Execute: func(ctx context.Context, in added, inv domain.Invocation) (string, error) {
		world.add(inv)
		if a.detach != nil {
			ctx = a.detach(ctx)
		}
		calls, ends, err := a.program.Load().runner.SettleAdded(ctx, inv, callsOf(in.Names...))
		if err != nil {
			return "", err
		}
		var b strings.Builder
		for i, c := range calls {
			fmt.Fprintf(&b, "%s %s\n", c.ID, ends[i].Outcome)
		}
		return b.String(), nil
	}})
}

// callsOf returns a call of each tool. They all have the same ID.
func callsOf(names ...string) []domain.Call {
	made := make([]domain.Call, len(names))
	for i, name := range names {
		made[i] = domain.Call{ID: "x", Name: name, Input: []byte(`{"text":"t"}`)}
	}
	return made
}

// wantLaws fails the test if the log breaks a law of calls or has open work.
func (p *program) wantLaws() {
	p.t.Helper()
	for _, e := range exceptions(p.t, p.ledger) {
		p.t.Errorf("%s: %s", e.Law, e.Detail)
	}
}

// allCalls returns every call of a session by its ID, added ones too.
func (p *program) allCalls(session domain.SessionID) map[domain.CallID]conversation.ReplyCall {
	p.t.Helper()
	found := map[domain.CallID]conversation.ReplyCall{}
	for _, m := range p.state(session).Messages {
		for c := range m.Reply.All() {
			found[c.ID] = *c
		}
	}
	return found
}

// Each added call has an ID that no other call of the reply has, also if the model used
// such an ID, for a call that has ended or for one that has not begun yet.
func TestAnAddedCallHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	var world counter
	a := new(adding)
	model := plays([]runner.Part{
		ask("c", "adds", `{"names":["echo","adds","missing"]}`), ask("c/1", "echo", `{"text":"model"}`), ask("c/3", "echo", `{"text":"model"}`),
	})
	p := start(t, registry.Tools{"echo": echo(&world), "adds": a.tool(&world)}, runner.Config{Provider: model, Parallel: 1})
	a.program.Store(p)
	session := p.open("go")
	p.run(session)
	p.wantLaws()
	made := p.allCalls(session)
	if got, want := made["c"].ToolResult().Text, "c/2 succeeded\nc/4 invalid_input\nc/5 unknown_tool\n"; got != want {
		t.Errorf("the tool reads %q, want %q", got, want)
	}
	for id, parent := range map[domain.CallID]domain.CallID{"c": "", "c/1": "", "c/2": "c", "c/3": "", "c/4": "c", "c/5": "c"} {
		if c, ok := made[id]; !ok || c.Parent != parent || c.Settlement == nil || (c.Started == nil) == c.Settlement.Began {
			t.Errorf("call %s is %+v with the end %+v, want it of %q with an end and a start if it ran", id, c.Call, c.Settlement, parent)
		}
	}
	if len(made) != 6 || model.shown[1] != "user assistant tool tool tool" {
		t.Errorf("%d calls, and the model reads %s, want 6 and the results of its three", len(made), model.shown[1])
	}
}

// A second process that runs a session does not repeat the ID of a call that ended before.
func TestAnAddedCallOfALaterProcessHasAnIDOfItsOwn(t *testing.T) {
	t.Parallel()
	var world counter
	a := new(adding)
	p := start(t, registry.Tools{"echo": echo(&world), "adds": a.tool(&world)}, runner.Config{Provider: plays()})
	a.program.Store(p)
	session := p.open("go")
	turn, message := p.ledger.Mint().Turn(), p.ledger.Mint().Message()
	m, err := p.registry.Materialize(t.Context(), registry.TurnSpec{ID: turn})
	if err != nil {
		t.Fatal(err)
	}
	ended := domain.Settlement{Outcome: domain.UnknownTool, Text: "Unknown tool: missing"}
	for i, e := range []events.Event{
		events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Tools: m.Offer().Tools},
		events.ReplyReceived{Turn: turn, Message: message, Calls: []domain.Call{
			{ID: "c", Name: "adds", Input: []byte(`{"names":["echo"]}`)}, {ID: "c/1", Name: "missing", Input: []byte(`{}`)},
		}},
		events.Settled(turn, message, domain.Call{ID: "c/1", Name: "missing"}, ended),
	} {
		if _, err := p.ledger.Append(t.Context(), events.SessionStream(session), events.Revision(2+i), p.ledger.Draft(e, domain.EventID{})); err != nil {
			t.Fatal(err)
		}
	}
	p.run(session)
	p.wantLaws()
	if got := p.allCalls(session)["c"].ToolResult().Text; got != "c/2 succeeded\n" {
		t.Errorf("the tool reads %q, want the end of c/2", got)
	}
}

// At most Config.Parallel of the added calls run at the same time, and so many do.
func TestAddedCallsRunInParallelUpToTheLimit(t *testing.T) {
	t.Parallel()
	var running, most atomic.Int32
	meet := make(chan struct{})
	meets := must(domain.Spec[text, string]{Execute: func(ctx context.Context, _ text, _ domain.Invocation) (string, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		select {
		case meet <- struct{}{}:
		case <-meet:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		return "met", nil
	}})
	a := new(adding)
	p := start(t, registry.Tools{"meets": meets, "adds": a.tool(&counter{})}, runner.Config{
		Parallel: 2, Provider: plays([]runner.Part{ask("c", "adds", `{"names":["meets","meets","meets","meets","meets","meets"]}`)}),
	})
	a.program.Store(p)
	session := p.open("go")
	p.run(session)
	p.wantLaws()
	if got := most.Load(); got != 2 {
		t.Errorf("%d calls ran at the same time, want 2", got)
	}
}

// Only a call that has begun and not ended adds calls, and only while its session runs
// here. Otherwise no event is recorded.
func TestOnlyARunningCallAddsCalls(t *testing.T) {
	t.Parallel()
	var p *program
	var first domain.Invocation
	errs := map[string]error{}
	add := func(ctx context.Context, name string, inv domain.Invocation) {
		_, _, errs[name] = p.runner.SettleAdded(ctx, inv, callsOf("echo"))
	}
	tools := registry.Tools{
		"first": must(domain.Spec[nothing, string]{Execute: func(_ context.Context, _ nothing, inv domain.Invocation) (string, error) {
			first = inv
			return "", nil
		}}),
		"later": must(domain.Spec[nothing, string]{Execute: func(ctx context.Context, _ nothing, inv domain.Invocation) (string, error) {
			add(ctx, "a call that ended in an earlier reply", first)
			next := inv
			next.Call = "next"
			add(ctx, "a call that has not begun", next)
			next.Call = "none"
			add(ctx, "a call that no reply asks for", next)
			next = inv
			next.Session = p.ledger.Mint().Session()
			add(ctx, "a session that does not run", next)
			return "", nil
		}}),
	}
	p = start(t, tools, runner.Config{Parallel: 1, Provider: plays(
		[]runner.Part{ask("c", "first", `{}`)}, []runner.Part{ask("c2", "later", `{}`), ask("next", "first", `{}`)},
	)})
	session := p.open("go")
	p.run(session)
	add(t.Context(), "a session that has ended its run", first)
	for name, err := range errs {
		if !errors.Is(err, runner.ErrNotRunning) {
			t.Errorf("SettleAdded for %s = %v, want ErrNotRunning", name, err)
		}
	}
	if kinds := p.kinds(session); len(errs) != 5 || strings.Contains(kinds, "CallsAdded") {
		t.Errorf("after %d tries the events are %s, want no added call", len(errs), kinds)
	}
	p.wantLaws()
}

// An interruption ends the running call and every call that it added, each once: those
// that run as interrupted while they ran, the others before they began. This holds for
// calls that the tool settles without its own context too.
func TestAnInterruptionEndsEveryAddedCallOnce(t *testing.T) {
	t.Parallel()
	for name, detach := range map[string]func(context.Context) context.Context{
		"in the context of the call": nil, "without it": context.WithoutCancel,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancelCause(t.Context())
			var both sync.WaitGroup
			both.Add(2)
			waits := must(domain.Spec[text, string]{Execute: func(ctx context.Context, _ text, _ domain.Invocation) (string, error) {
				both.Done()
				select {
				case <-ctx.Done():
					return "", context.Cause(ctx)
				case <-time.After(10 * time.Second):
					return "the interruption did not come", nil
				}
			}})
			a := &adding{detach: detach}
			p := start(t, registry.Tools{"waits": waits, "adds": a.tool(&counter{})}, runner.Config{
				Parallel: 2, Provider: plays([]runner.Part{ask("c", "adds", `{"names":["waits","waits","waits","waits"]}`)}),
			})
			a.program.Store(p)
			session := p.open("go")
			go func() { both.Wait(); interrupt(domain.ByUser) }()
			if err := p.runner.Run(ctx, session); !errors.Is(err, domain.ByUser) {
				t.Errorf("Run = %v, want the interruption", err)
			}
			p.wantLaws()
			began := 0
			for _, id := range []domain.CallID{"c/1", "c/2", "c/3", "c/4"} {
				end := p.allCalls(session)[id].Settlement
				if end == nil || end.Outcome != domain.Interrupted || end.Interruption != domain.ByUser {
					t.Errorf("call %s ended %+v, want it interrupted by the user", id, end)
					continue
				}
				if end.Began {
					began++
				}
			}
			if began != 2 || p.state(session).Interrupted == nil {
				t.Errorf("%d calls had begun, and the interruption is %v; want 2 and one on record", began, p.state(session).Interrupted)
			}
		})
	}
}

// A tool that the registry left behind after the grace period adds no calls.
func TestAToolLeftBehindAddsNoCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancelCause(t.Context())
		var p *program
		ran, tried := make(chan struct{}), make(chan error, 1)
		stays := must(domain.Spec[nothing, string]{Execute: func(_ context.Context, _ nothing, inv domain.Invocation) (string, error) {
			interrupt(domain.ByUser)
			<-ran
			_, _, err := p.runner.SettleAdded(context.Background(), inv, callsOf("stays"))
			tried <- err
			return "", err
		}})
		p = start(t, registry.Tools{"stays": stays}, runner.Config{Provider: plays([]runner.Part{ask("c", "stays", `{}`)})})
		session := p.open("go")
		err := p.runner.Run(ctx, session)
		close(ran)
		if tried := <-tried; !errors.Is(err, domain.ByUser) || !errors.Is(tried, runner.ErrNotRunning) {
			t.Errorf("Run = %v and SettleAdded = %v, want the interruption and ErrNotRunning", err, tried)
		}
		if err := p.layers.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if kinds := p.kinds(session); strings.Contains(kinds, "CallsAdded") {
			t.Errorf("events = %s, want no added call", kinds)
		}
		p.wantLaws()
	})
}

// A tool that returns while another goroutine adds calls for it either has added them
// before its end, or adds none. The run waits for the ends of the added calls.
func TestTheEndOfACallFollowsTheCallsThatItAdds(t *testing.T) {
	t.Parallel()
	const rounds = 200
	var p *program
	var adders sync.WaitGroup
	var refused, done atomic.Int32
	returns := must(domain.Spec[text, string]{Execute: func(_ context.Context, _ text, inv domain.Invocation) (string, error) {
		for range 3 {
			adders.Go(func() {
				switch _, ends, err := p.runner.SettleAdded(context.Background(), inv, callsOf("echo", "echo")); {
				case errors.Is(err, runner.ErrNotRunning):
					refused.Add(1)
				case err != nil || len(ends) != 2:
					t.Errorf("SettleAdded = %v, %v", ends, err)
				default:
					done.Add(1)
				}
			})
		}
		return "", nil
	}})
	var replies [][]runner.Part
	for i := range rounds {
		replies = append(replies, []runner.Part{ask("c", "returns", fmt.Sprintf(`{"text":"%d"}`, i))})
	}
	p = start(t, registry.Tools{"returns": returns, "echo": echo(&counter{})}, runner.Config{Provider: plays(replies...)})
	session := p.open("go")
	p.run(session)
	adders.Wait()
	p.wantLaws()
	if n := refused.Load() + done.Load(); n != 3*rounds {
		t.Errorf("%d additions were refused and %d done, want %d in all", refused.Load(), done.Load(), 3*rounds)
	}
}

// An added call that the store left without a start is ended when the session runs again,
// and not run.
func TestAnAddedCallThatDidNotBeginIsEndedLater(t *testing.T) {
	t.Parallel()
	var world counter
	p := start(t, registry.Tools{"echo": echo(&world)}, runner.Config{Provider: plays()})
	session := p.open("go")
	turn, message := p.ledger.Mint().Turn(), p.ledger.Mint().Message()
	m, err := p.registry.Materialize(t.Context(), registry.TurnSpec{ID: turn})
	if err != nil {
		t.Fatal(err)
	}
	offered := m.Offer().Tools
	for i, e := range []events.Event{
		events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Tools: offered},
		events.ReplyReceived{Turn: turn, Message: message, Calls: []domain.Call{{ID: "c", Name: "echo", Input: []byte(`{"text":"t"}`)}}},
		events.CallStarted{Turn: turn, Message: message, Call: "c", Tool: "echo", Offered: offered[0], Effective: offered[0]},
		events.CallsAdded{Message: message, Parent: "c", Calls: []domain.Call{{ID: "c/1", Name: "echo", Input: []byte(`{"text":"t"}`)}}},
	} {
		if _, err := p.ledger.Append(t.Context(), events.SessionStream(session), events.Revision(2+i), p.ledger.Draft(e, domain.EventID{})); err != nil {
			t.Fatal(err)
		}
	}
	p.run(session)
	p.wantLaws()
	made := p.allCalls(session)
	if made["c"].Settlement.Outcome != domain.Lost || made["c/1"].Settlement.Outcome != domain.Interrupted || world.total() != 0 {
		t.Errorf("the calls ended %v and %v after %d runs, want lost and interrupted after none", made["c"].Settlement.Outcome, made["c/1"].Settlement.Outcome, world.total())
	}
	if kinds := strings.Fields(p.kinds(session)); !slices.Equal(kinds[6:8], []string{"CallSettled", "CallSettled"}) {
		t.Errorf("events = %v, want the ends first", kinds)
	}
}
