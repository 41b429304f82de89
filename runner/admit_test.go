package runner_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A pausingStore stops one of its reads, after the read has yielded its last entry, until
// the test releases it.
type pausingStore struct {
	events.Store
	paused, release chan struct{}
	mu              struct {
		sync.Mutex
		reads, at int // the read that stops, from 1; zero: none
	}
}

func (p *pausingStore) Read(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	p.mu.Lock()
	p.mu.reads++
	stops := p.mu.reads == p.mu.at
	p.mu.Unlock()
	return func(yield func(events.Entry, error) bool) {
		for e, err := range p.Store.Read(ctx, s, after) {
			if !yield(e, err) {
				return
			}
		}
		if stops {
			close(p.paused)
			<-p.release
		}
	}
}

// counted makes the read with a number from now on stop, and returns the number of reads
// before.
func (p *pausingStore) counted(at int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.mu.reads
	p.mu.reads, p.mu.at = 0, at
	return before
}

// A prompt that is admitted during any read of a run is answered: at the beginning of the
// run, between two steps, or when the run decides whether it is idle.
func TestPromptAdmittedAtAnyReadOfARunIsAnswered(t *testing.T) {
	t.Parallel()
	reads := admitAt(t, 0, false)
	if reads < 5 {
		t.Fatalf("the run reads %d times, want 5 at least", reads)
	}
	for at := 1; at <= reads; at++ {
		admitAt(t, at, true)
		admitAt(t, at, false)
	}
}

// admitAt stops a run at one of its reads until another goroutine has admitted a prompt,
// or until the admission waits for the run, and checks that the prompt is answered: by
// that run, or by the run that the admitting goroutine starts. It returns the number of
// reads of the run.
func admitAt(t *testing.T, at int, runs bool) (reads int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &pausingStore{Store: eventstest.NewSlice(), paused: make(chan struct{}), release: make(chan struct{})}
		model := plays([]runner.Part{ask("c1", "echo", `{"text":"a"}`)})
		p, err := boot(t, store, noOutputs{}, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: model})
		if err != nil {
			t.Fatal(err)
		}
		session := p.open("go")
		store.counted(at)
		var all sync.WaitGroup
		var admitted atomic.Bool
		owed := at > 0 && runs
		all.Go(func() {
			if err := p.runner.Run(t.Context(), session); err != nil {
				t.Errorf("read %d: Run = %v", at, err)
			}
		})
		if at > 0 {
			<-store.paused
			all.Go(func() {
				if err := p.runner.Admit(t.Context(), session, p.ledger.Mint().Message(), "and more"); err != nil {
					t.Errorf("read %d: Admit = %v", at, err)
				}
				admitted.Store(true)
				if !runs {
					return
				}
				if err := p.runner.Run(t.Context(), session); err != nil {
					t.Errorf("read %d: Run after Admit = %v", at, err)
				}
			})
			synctest.Wait()
			owed = owed || admitted.Load()
			close(store.release)
		}
		all.Wait()
		reads = store.counted(0)
		last := model.shown[len(model.shown)-1]
		if s := p.state(session); owed && (s.Unread != 0 || !s.Replied || strings.Count(last, "user") != 2) {
			t.Errorf("read %d: %d prompts are unread, the last turn showed %s: %s", at, s.Unread, last, p.kinds(session))
		}
		if got := exceptions(t, p.ledger); len(got) != 0 {
			t.Errorf("read %d: exceptions = %v", at, got)
		}
	})
	return reads
}

// An admitting provider admits a prompt while it replies to the first turn.
type admitting struct {
	*player
	admit func()
}

func (a *admitting) Reply(ctx context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	if admit := a.admit; admit != nil {
		a.admit = nil
		admit()
	}
	return a.player.Reply(ctx, turn)
}

// A prompt that is admitted while the model replies has a turn of its own, and that reply
// uses up no step of the new prompt.
func TestPromptAdmittedWhileTheModelAnswersIsAnswered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first []runner.Part
		steps int
		shown string
	}{
		"beside a text":           {[]runner.Part{runner.TextPart("first")}, 0, "user assistant user"},
		"beside the last step":    {[]runner.Part{runner.TextPart("first")}, 1, "user assistant user"},
		"beside a call":           {[]runner.Part{ask("c1", "echo", `{"text":"a"}`)}, 0, "user assistant tool user"},
		"beside a call, one step": {[]runner.Part{ask("c1", "echo", `{"text":"a"}`)}, 1, "user assistant tool user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			model := &admitting{player: plays(c.first)}
			p := start(t, registry.Tools{"echo": echo(&counter{})}, runner.Config{Provider: model, Steps: c.steps})
			session := p.open("go")
			model.admit = func() { p.admit(session, "and more") }
			p.run(session)
			if s := p.state(session); len(model.shown) != 2 || model.shown[1] != c.shown || s.Unread != 0 || !s.Replied {
				t.Fatalf("the turns showed %q, want a second with %s: %s", model.shown, c.shown, p.kinds(session))
			}
		})
	}
}

// A refusal by a person stops the run for earlier prompts, and not for a prompt that was
// admitted meanwhile.
func TestPromptAdmittedBeforeARefusalIsAnswered(t *testing.T) {
	t.Parallel()
	var p *program
	var session domain.SessionID
	declines := must(domain.Spec[nothing, string]{
		Execute: func(context.Context, nothing, domain.Invocation) (string, error) {
			p.admit(session, "do something else")
			return "", &domain.Declined{}
		},
	})
	model := plays([]runner.Part{ask("c1", "declines", `{}`)})
	p = start(t, registry.Tools{"declines": declines}, runner.Config{Provider: model})
	session = p.open("go")
	p.run(session)
	if s := p.state(session); len(model.shown) != 2 || s.Unread != 0 || s.Interrupted != nil {
		t.Fatalf("the turns showed %q, want two: %s", model.shown, p.kinds(session))
	}
}

// A Run that joins a recovery runs the session afterwards, since a recovery asks no
// model.
func TestRunThatMeetsARecoveryAnswersThePrompt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &pausingStore{Store: eventstest.NewSlice(), paused: make(chan struct{}), release: make(chan struct{})}
		model := plays()
		p, err := boot(t, store, noOutputs{}, registry.Tools{}, runner.Config{Provider: model})
		if err != nil {
			t.Fatal(err)
		}
		session := p.open("go")
		store.counted(1)
		var all sync.WaitGroup
		var recovered, ran error
		all.Go(func() { recovered = p.runner.Recover(t.Context(), session) })
		<-store.paused
		all.Go(func() { ran = p.runner.Run(t.Context(), session) })
		synctest.Wait()
		close(store.release)
		all.Wait()
		if err := errors.Join(recovered, ran); err != nil || len(model.shown) != 1 {
			t.Fatalf("Recover and Run = %v in %d turns, want nil in one", err, len(model.shown))
		}
	})
}

// Two concurrent calls of Admit with the same message record it once. The second begins
// after the first has read the session and before it appends.
func TestMessageAdmittedAtOnceIsOnRecordOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &pausingStore{Store: eventstest.NewSlice(), paused: make(chan struct{}), release: make(chan struct{})}
		p, err := boot(t, store, noOutputs{}, registry.Tools{}, runner.Config{})
		if err != nil {
			t.Fatal(err)
		}
		session := p.open("go")
		message := p.ledger.Mint().Message()
		admit := func() {
			if err := p.runner.Admit(t.Context(), session, message, "more"); err != nil {
				t.Errorf("Admit = %v", err)
			}
		}
		store.counted(1)
		var all sync.WaitGroup
		all.Go(admit)
		<-store.paused
		all.Go(admit)
		synctest.Wait()
		close(store.release)
		all.Wait()
		if got := strings.Count(p.kinds(session), "PromptAdmitted"); got != 2 {
			t.Fatalf("%d prompts are on record, want 2", got)
		}
	})
}

// A last step whose turn is on record without a reply is taken again, because its process
// died or its provider failed.
func TestLastStepThatFailedIsTakenAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]int{"with the same steps": 2, "with more steps": 5, "with any number": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broke := errors.New("the provider is down")
			model := &failing{player: plays([]runner.Part{ask("c1", "echo", `{"text":"a"}`)}, []runner.Part{runner.TextPart("done")})}
			tools := registry.Tools{"echo": must(domain.Spec[text, string]{
				Execute: func(context.Context, text, domain.Invocation) (string, error) {
					model.err = broke // from the next turn on, which is the last
					return "a", nil
				},
			})}
			p := start(t, tools, runner.Config{Provider: model, Steps: 2})
			session := p.open("go")
			if err := p.runner.Run(t.Context(), session); !errors.Is(err, broke) {
				t.Fatalf("Run = %v, want the provider's error", err)
			}
			p.runner = runner.New(runner.Config{Ledger: p.ledger, Registry: p.registry, Provider: model, Steps: again})
			p.run(session)
			s := p.state(session)
			last := s.Messages[len(s.Messages)-1]
			if last.Reply == nil || last.Reply.Text != "done" || s.Turn.Disabled != (again == 2) {
				t.Fatalf("the last message is %+v after a turn without tools: %t: %s", last, s.Turn.Disabled, p.kinds(session))
			}
		})
	}
}
