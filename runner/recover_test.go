package runner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// appendTo appends an event to the end of a session's stream, as a process other than the
// session's runner does.
func (p *program) appendTo(session domain.SessionID, e events.Event) {
	p.t.Helper()
	s := p.state(session)
	if _, err := p.ledger.Append(p.t.Context(), events.SessionStream(session), s.Revision, p.ledger.Draft(e, s.Last)); err != nil {
		p.t.Fatal(err)
	}
}

// bootOver is boot for a store that does not fail.
func bootOver(t *testing.T, store events.Store, tools registry.Tools, config runner.Config) *program {
	t.Helper()
	p, err := boot(t, store, noOutputs{}, tools, config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A recovery that cannot read one session ends the open calls of the others, and reports
// the one.
func TestRecoveryEndsTheOtherSessionsWhenOneCannotBeRead(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	dead := bootOver(t, store, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays()})
	unknown, before, after := dead.open("a"), dead.open("b"), dead.open("c")
	for _, session := range []domain.SessionID{before, unknown, after} { // the unknown one is neither the first nor the last
		leave(t, dead, session)
	}
	dead.appendTo(unknown, events.Unknown{Name: "BudgetSpent", Version: 1, Data: json.RawMessage(`{}`)})
	next := bootOver(t, store, registry.Tools{}, runner.Config{})
	done := next.recoverOrphans()
	if len(done.Sessions) != 2 || slices.Contains(done.Sessions, unknown) || len(done.Layers) != 1 || len(done.Processes) != 1 {
		t.Errorf("RecoverAll = %+v, want the two other sessions, the layer and the process", done)
	}
	if len(done.Left) != 1 || done.Left[0].Session != unknown || !errors.Is(done.Left[0].Err, events.ErrUnknownKind) ||
		!strings.Contains(done.Left[0].Err.Error(), "BudgetSpent") {
		t.Errorf("RecoverAll leaves %+v, want the session with the unknown kind, which is named", done.Left)
	}
	for _, session := range []domain.SessionID{before, after} {
		next.ends(session)
	}
	if open := next.state(unknown).Open(); len(open) != 2 {
		t.Errorf("%d calls of the session that cannot be read are open, want both as they were", len(open))
	}
	if again := next.recoverOrphans(); len(again.Left) != 1 || len(again.Sessions)+len(again.Processes) != 0 {
		t.Errorf("RecoverAll again = %+v, want the session left once more, and nothing ended", again)
	}
}

// A recovery leaves a session unchanged to which another process appends, and ends the
// open calls of the others.
func TestRecoveryEndsTheOtherSessionsWhenOneConflicts(t *testing.T) {
	t.Parallel()
	store := &meddling{Slice: eventstest.NewSlice()}
	dead := bootOver(t, store, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays()})
	first, second := dead.open("a"), dead.open("b")
	leave(t, dead, first)
	leave(t, dead, second)
	next := bootOver(t, store, registry.Tools{}, runner.Config{})
	store.stream = events.SessionStream(first)
	done := next.recoverOrphans()
	if len(done.Sessions) != 1 || done.Sessions[0] != second || len(done.Left) != 1 || done.Left[0].Session != first ||
		!errors.Is(done.Left[0].Err, events.ErrConflict) {
		t.Errorf("RecoverAll = %+v, want the second session ended, and the first left for its conflict", done)
	}
}

// A meddling store returns a conflict for each append to one stream.
type meddling struct {
	*eventstest.Slice
	stream events.Stream
}

func (m *meddling) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	if s == m.stream {
		return &events.Conflict{Stream: s, After: after}
	}
	return m.Slice.Append(ctx, s, after, records...)
}

// An error of the store ends a recovery, which reports no session that it did not reach.
func TestRecoveryStopsAtAStoreThatFails(t *testing.T) {
	t.Parallel()
	store := &severed{Store: eventstest.NewSlice()}
	dead := bootOver(t, store, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays()})
	leave(t, dead, dead.open("a"))
	next := bootOver(t, store, registry.Tools{}, runner.Config{})
	w, err := foldOrphans(t.Context(), next.ledger, next.layers.Process())
	if err != nil {
		t.Fatal(err)
	}
	store.off.Store(true)
	done, err := next.runner.RecoverAll(t.Context(), w)
	if !errors.Is(err, errUnreachable) || len(done.Left) != 0 {
		t.Errorf("RecoverAll = %+v, %v, want the error of the store", done, err)
	}
}

// elsewhere returns the Config.Elsewhere of a test in which one other process may be
// alive.
func elsewhere(living *program) func(context.Context, []domain.LayerID) (domain.ProcessID, error) {
	return func(ctx context.Context, layers []domain.LayerID) (domain.ProcessID, error) {
		w, err := foldOrphans(ctx, living.ledger, domain.ProcessID{})
		if err != nil {
			return domain.ProcessID{}, err
		}
		w.Others = []domain.ProcessID{living.layers.Process()}
		return w.Elsewhere(layers), nil
	}
}

// ask brings a session into the state in which a reply has calls and no call has begun.
func (p *program) ask(session domain.SessionID, disabled bool, hidden bool, calls ...domain.Call) {
	p.t.Helper()
	mint := p.ledger.Mint()
	var rules domain.Rules
	if hidden {
		rules = domain.Rules{{Action: "*", Resource: "*", Effect: domain.Deny}}
	}
	m, err := p.registry.Materialize(p.t.Context(), registry.TurnSpec{ID: mint.Turn(), Facts: domain.TurnFacts{Rules: domain.RuleSets{rules}}})
	if err != nil {
		p.t.Fatal(err)
	}
	message, turn := mint.Message(), events.TurnMaterialized{Turn: m.Offer().Turn, Agent: "build", Tools: m.Offer().Tools, Hidden: m.Hidden(), Disabled: disabled}
	if disabled {
		turn.Tools, turn.Hidden = nil, nil
	}
	turn.Message = message
	p.appendTo(session, turn)
	p.appendTo(session, events.ReplyReceived{Turn: turn.Turn, Message: message, Calls: calls})
}

// Calls that have not begun belong to the process that offered their tools, and another
// process does not end them while that process may be alive.
func TestCallsOfALivingProcessThatHaveNotBegunAreItsOwn(t *testing.T) {
	t.Parallel()
	call := domain.Call{ID: "c", Name: "echo", Input: json.RawMessage(`{"text":"a"}`)}
	for _, test := range []struct {
		name string
		make func(*program, domain.SessionID)
	}{
		{"offered", func(p *program, s domain.SessionID) { p.ask(s, false, false, call) }},
		{"hidden by a rule", func(p *program, s domain.SessionID) { p.ask(s, false, true, call) }},
		{"disabled in the last step", func(p *program, s domain.SessionID) {
			p.ask(s, false, false)
			p.ask(s, true, false, call)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			store := eventstest.NewSlice()
			living := bootOver(t, store, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays()})
			session := living.open("go")
			test.make(living, session)
			before := living.kinds(session)
			other := bootOver(t, store, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays(), Elsewhere: elsewhere(living)})
			for name, run := range map[string]func(context.Context, domain.SessionID) error{"Run": other.runner.Run, "Recover": other.runner.Recover} {
				if err := run(t.Context(), session); !errors.Is(err, runner.ErrElsewhere) || !strings.Contains(err.Error(), living.layers.Process().String()) {
					t.Errorf("%s = %v, want ErrElsewhere that names the process", name, err)
				}
			}
			w, err := foldOrphans(t.Context(), other.ledger, other.layers.Process())
			if err != nil {
				t.Fatal(err)
			}
			w.Processes, w.Others = nil, w.Processes
			if done, err := other.runner.RecoverAll(t.Context(), w); err != nil || len(done.Sessions)+len(done.Left) != 0 {
				t.Errorf("RecoverAll = %+v, %v, want nothing", done, err)
			}
			if after := living.kinds(session); after != before {
				t.Errorf("the session holds %s, want %s", after, before)
			}
			living.run(session)
			living.ends(session)
		})
	}
}

// A run does not call Config.Elsewhere, which reads the log, for calls of its own turns.
func TestARunAsksNobodyAboutTurnsOfItsOwn(t *testing.T) {
	t.Parallel()
	asked := 0
	model := plays([]runner.Part{ask("1", "echo", `{"text":"a"}`)}, []runner.Part{ask("2", "echo", `{"text":"b"}`)})
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: model,
		Elsewhere: func(context.Context, []domain.LayerID) (domain.ProcessID, error) {
			asked++
			return domain.ProcessID{}, nil
		}})
	session := p.open("go")
	p.run(session)
	if asked != 0 {
		t.Errorf("Elsewhere was asked %d times about calls of turns that this run took, want never", asked)
	}
}

// A call belongs to the process of the layer under which it runs, which can differ from
// the offered layer: the policy ByFingerprint runs the registration in effect in the
// process that resumes.
func TestACallBelongsToTheProcessUnderWhoseLayerItBegan(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	offering := bootOver(t, store, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays()})
	session := offering.open("go")
	offering.ask(session, false, false, domain.Call{ID: "c", Name: "echo", Input: json.RawMessage(`{"text":"a"}`)})
	running := bootOver(t, store, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays()})
	s := running.state(session)
	m, err := running.registry.Materialize(t.Context(), registry.TurnSpec{ID: running.ledger.Mint().Turn()})
	if err != nil {
		t.Fatal(err)
	}
	running.appendTo(session, events.CallStarted{
		Turn: s.Turn.Turn, Message: s.Turn.Message, Call: "c", Tool: "echo",
		Offered: s.Turn.Tools[0], Effective: m.Offer().Tools[0], Process: running.layers.Process(),
	})
	other := bootOver(t, store, registry.Tools{}, runner.Config{Provider: plays(), Elsewhere: elsewhere(running)})
	if err := other.runner.Run(t.Context(), session); !errors.Is(err, runner.ErrElsewhere) {
		t.Errorf("Run = %v, want ErrElsewhere", err)
	}
	if open := other.state(session).Open(); len(open) != 1 {
		t.Errorf("%d calls are open, want the one that runs", len(open))
	}
}

// A turn offers the tools that are in effect when it is materialized, while other
// goroutines register and close tools; verify reports no violation.
func TestToolsThatComeAndGoBesideARunBreakNoLaw(t *testing.T) {
	t.Parallel()
	var replies [][]runner.Part
	for i := range 60 {
		replies = append(replies, []runner.Part{ask(fmt.Sprint(i), "echo", fmt.Sprintf(`{"text":"%d"}`, i))})
	}
	p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: plays(replies...)})
	session := p.open("go")
	ran := make(chan struct{})
	var beside sync.WaitGroup
	for range 2 {
		beside.Go(func() {
			for range 2000 {
				select {
				case <-ran:
					return
				default:
				}
				scope := p.place.Scope()
				if err := errors.Join(scope.Register(t.Context(), registry.Tools{"echo": echo(&counter{})}), scope.Close(t.Context())); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	p.run(session)
	close(ran)
	beside.Wait()
	if broken := exceptions(t, p.ledger); len(broken) != 0 {
		t.Errorf("%d exceptions, such as %+v, want none", len(broken), broken[0])
	}
}
