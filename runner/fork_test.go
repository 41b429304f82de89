package runner_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/projections/openwork"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// read returns a session with the past of a fork.
func (p *program) read(session domain.SessionID) *conversation.State {
	p.t.Helper()
	s, err := conversation.Read(p.t.Context(), p.ledger, session)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// fork forks a session at a place.
func (p *program) fork(session domain.SessionID, at runner.ForkPlace, prompt string) domain.SessionID {
	p.t.Helper()
	found, err := runner.FindFork(p.t.Context(), p.ledger, session, at)
	if err != nil {
		p.t.Fatal(err)
	}
	fork, err := p.runner.Fork(p.t.Context(), found, prompt)
	if err != nil {
		p.t.Fatal(err)
	}
	return fork
}

// ownTurns returns the turns of a stream in order.
func (p *program) ownTurns(session domain.SessionID) (turns []events.TurnMaterialized) {
	p.t.Helper()
	for v, err := range p.ledger.Read(p.t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if e, ok := v.Event.(events.TurnMaterialized); ok {
			turns = append(turns, e)
		}
	}
	return turns
}

// texts returns what a model reads, one text for each message.
func texts(s *conversation.State) (shown []string) {
	for _, m := range s.ModelMessages() {
		shown = append(shown, m.Text+m.Reading.Text+m.Reading.Error)
	}
	return shown
}

func TestAForkContinuesItsPast(t *testing.T) {
	t.Parallel()
	model := plays(
		[]runner.Part{runner.TextPart("first"), ask("1", "echo", `{"text":"one"}`)},
		[]runner.Part{runner.TextPart("second"), ask("1", "echo", `{"text":"two"}`)},
		[]runner.Part{runner.TextPart("the end")},
	)
	p := start(t, registry.Tools{"echo": echo(new(counter))}, runner.Config{Provider: model})
	parent := p.open("go")
	p.run(parent)
	before := p.kinds(parent)
	model.replies = [][]runner.Part{{runner.TextPart("another end")}}
	fork := p.fork(parent, runner.ForkPlace{Turn: p.ownTurns(parent)[0].Turn}, "differently, please")
	p.run(fork)
	if got, want := texts(p.read(fork)), []string{"go", "first", "one", "differently, please", "another end"}; !slices.Equal(got, want) {
		t.Errorf("the fork reads %q, want %q", got, want)
	}
	if got := p.kinds(parent); got != before {
		t.Errorf("the parent has %s after the fork, want %s", got, before)
	}
	if got, want := p.kinds(fork), "SessionOpened SessionForked PromptAdmitted TurnMaterialized ReplyReceived"; got != want {
		t.Errorf("the fork has %s, want %s: no event of the past", got, want)
	}

	model.replies = [][]runner.Part{{runner.TextPart("a third end")}}
	grandchild := p.fork(fork, runner.ForkPlace{}, "and once more")
	p.run(grandchild)
	if got, want := texts(p.read(grandchild)), []string{"go", "first", "one", "differently, please", "another end", "and once more", "a third end"}; !slices.Equal(got, want) {
		t.Errorf("the fork of the fork reads %q, want %q", got, want)
	}
	if e, err := runner.FindFork(t.Context(), p.ledger, grandchild, runner.ForkPlace{Turn: p.ownTurns(parent)[1].Turn}); !errors.Is(err, runner.ErrNoPlace) {
		t.Errorf("FindFork at a turn behind the past = %+v, %v, want ErrNoPlace", e, err)
	}
	if e, err := runner.FindFork(t.Context(), p.ledger, grandchild, runner.ForkPlace{Turn: p.ownTurns(parent)[0].Turn}); err != nil || e.Parent != parent {
		t.Errorf("FindFork at a turn of the past = %+v, %v, want a fork of the parent that has it", e, err)
	}
	if found := exceptions(t, p.ledger); len(found) > 0 {
		t.Errorf("the log breaks laws: %v", found)
	}
}

func TestAForkAnswersTheCallsThatItsPastLeavesOpen(t *testing.T) {
	t.Parallel()
	model := plays([]runner.Part{ask("fast", "echo", `{"text":"done"}`), ask("slow", "slow", `{"text":"later"}`)})
	var p *program
	ended := make(chan struct{})
	tools := registry.Tools{"echo": echo(new(counter)), "slow": must(domain.Spec[text, string]{
		Execute: func(ctx context.Context, in text, _ domain.Invocation) (string, error) {
			select {
			case <-ended:
				return in.Text, nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		},
	})}
	p = start(t, tools, runner.Config{Provider: model})
	parent := p.open("go")
	running := make(chan error, 1)
	go func() { running <- p.runner.Run(t.Context(), parent) }()
	for v, err := range p.ledger.Follow(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := v.Event.(events.CallSettled); ok && e.Call == "fast" {
			break
		}
	}
	turn := p.ownTurns(parent)[0].Turn
	for _, at := range []runner.ForkPlace{{Turn: turn}, {Turn: turn, Call: "slow"}} {
		if _, err := runner.FindFork(t.Context(), p.ledger, parent, at); !errors.Is(err, runner.ErrOpenPlace) {
			t.Errorf("FindFork(%v) = %v while a call runs, want ErrOpenPlace", at, err)
		}
	}
	found, err := runner.FindFork(t.Context(), p.ledger, parent, runner.ForkPlace{Turn: turn, Call: "fast"})
	if err != nil {
		t.Fatal(err)
	}
	close(ended)
	if err := <-running; err != nil {
		t.Fatal(err)
	}
	fork, err := p.runner.Fork(t.Context(), found, "")
	if err != nil {
		t.Fatal(err)
	}
	p.run(fork)
	got := texts(p.read(fork))
	if len(got) != 5 || got[2] != "done" || got[3] != conversation.ForkedWhile && got[3] != conversation.ForkedBefore || got[4] != "done" {
		t.Errorf("the fork reads %q: the call that was open must say so", got)
	}
	if got := texts(p.read(parent)); got[3] != "later" {
		t.Errorf("the parent reads %q: its call has its own end", got)
	}
	open := openwork.Projection()
	state := open.Init()
	for v, err := range p.ledger.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		state = open.Apply(state, v)
	}
	if left := state.Sessions(); len(left) > 0 {
		t.Errorf("the log has open work: %v", left)
	}
}

func TestAForkSeesTheLoopOfItsPast(t *testing.T) {
	t.Parallel()
	again := []runner.Part{ask("1", "echo", `{"text":"x"}`)}
	model := plays(again, again)
	found := 0
	config := runner.Config{Provider: model, Looping: func(context.Context, domain.Invocation, events.LoopDetected) error { found++; return nil }}
	p := start(t, registry.Tools{"echo": echo(new(counter))}, config)
	parent := p.open("go")
	p.run(parent)
	model.replies = [][]runner.Part{again}
	p.run(p.fork(parent, runner.ForkPlace{Turn: p.ownTurns(parent)[1].Turn}, ""))
	if found != 1 {
		t.Errorf("the detector found %d loops over the past and the fork, want 1", found)
	}
	model.replies = [][]runner.Part{again}
	p.run(p.fork(parent, runner.ForkPlace{Turn: p.ownTurns(parent)[1].Turn}, "a person asks again"))
	if found != 1 {
		t.Errorf("the detector found %d loops, want no further one behind a prompt", found)
	}
}

func TestAForkKeepsTheCompactionOfItsPast(t *testing.T) {
	t.Parallel()
	model := &narrowModel{window: 3000, reserved: 500, counts: true, replies: pages(12, 1200)}
	p := start(t, registry.Tools{"page": pageTool()}, runner.Config{Provider: knownModel{model}})
	parent := p.open("read it all")
	p.run(parent)
	past := p.read(parent)
	if past.Compaction == nil {
		t.Fatal("the past has no compaction")
	}
	fork := p.fork(parent, runner.ForkPlace{}, "what did you read?")
	model.replies = [][]runner.Part{{runner.TextPart("pages")}}
	p.run(fork)
	if got := p.ownTurns(fork); len(got) != 1 || got[0].Compacted != past.Compaction.Event {
		t.Errorf("the turn of the fork names the compaction %v, want that of the past, %v", got[0].Compacted, past.Compaction.Event)
	}
	if got, want := len(p.read(fork).ModelMessages()), len(past.ModelMessages())+2; got != want {
		t.Errorf("the fork reads %d messages, want %d", got, want)
	}
}

func TestAForkWithoutItsPastIsAnError(t *testing.T) {
	t.Parallel()
	p := start(t, registry.Tools{}, runner.Config{Provider: plays()})
	parent := p.open("go")
	p.run(parent)
	found, err := runner.FindFork(t.Context(), p.ledger, parent, runner.ForkPlace{})
	if err != nil {
		t.Fatal(err)
	}
	found.Revision++
	if _, err := p.runner.Fork(t.Context(), found, ""); !errors.Is(err, conversation.ErrNoPast) {
		t.Errorf("Fork at another event = %v, want ErrNoPast", err)
	}
	for _, session := range []domain.SessionID{p.ledger.Mint().Session()} {
		if _, err := runner.FindFork(t.Context(), p.ledger, session, runner.ForkPlace{}); !errors.Is(err, runner.ErrNoSession) {
			t.Errorf("FindFork of an unknown session = %v, want ErrNoSession", err)
		}
	}
	unasked := p.open("not yet")
	if _, err := runner.FindFork(t.Context(), p.ledger, unasked, runner.ForkPlace{}); !errors.Is(err, runner.ErrNoPlace) {
		t.Errorf("FindFork of a session without turns = %v, want ErrNoPlace", err)
	}
}

// A power cut at any append of a fork leaves the whole fork or no event of it.
func TestAPowerCutLeavesAWholeForkOrNone(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		for _, after := range []bool{false, true} {
			fs := vfs.NewCrashableMem()
			store, err := embedded.Open(t.Context(), "store", embedded.Config{FS: fs})
			if err != nil {
				t.Fatal(err)
			}
			model := plays()
			p, err := boot(t, store, noOutputs{}, registry.Tools{}, runner.Config{Provider: model})
			if err != nil {
				t.Fatal(err)
			}
			parent := p.open("go")
			p.run(parent)
			found, err := runner.FindFork(t.Context(), p.ledger, parent, runner.ForkPlace{})
			if err != nil {
				t.Fatal(err)
			}
			var disk vfs.FS
			c := &cutting{Store: store, at: at, after: after, cut: func() { disk = fs.CrashClone(vfs.CrashCloneCfg{}) }}
			cut := events.NewLedger(c, p.ledger.Mint(), p.ledger.Now)
			_, err = runner.New(runner.Config{Ledger: cut}).Fork(t.Context(), found, "again")
			if err == nil {
				if at < 2 {
					t.Error("a fork appended nothing")
				}
				_ = store.Close()
				return
			}
			_ = store.Close()
			again, err := embedded.Open(t.Context(), "store", embedded.Config{FS: disk})
			if err != nil {
				t.Fatal(err)
			}
			l := events.NewLedger(again, p.ledger.Mint(), p.ledger.Now)
			forks := map[events.Stream]int{}
			for v, err := range l.ReadAll(t.Context(), events.Position{}) {
				if err != nil {
					t.Fatal(err)
				}
				if session, ok := v.Stream.Session(); ok && session != parent {
					forks[v.Stream]++
				}
			}
			want := 0
			if after {
				want = 1
			}
			for _, n := range forks {
				if n != 3 {
					t.Errorf("cut at append %d: a fork has %d events, want 3", at, n)
				}
			}
			if len(forks) != want {
				t.Errorf("cut at append %d, after it: %v: %d forks, want %d", at, after, len(forks), want)
			}
			_ = again.Close()
		}
	}
}
