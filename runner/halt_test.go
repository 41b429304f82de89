package runner_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

var errLine = errors.New("the connection is lost")

// A mishap is the behaviour of a hostile store for one append: whether the store adds it,
// whether the run is interrupted meanwhile, and the error that it returns.
type mishap struct {
	name       string
	adds       bool
	interrupts bool
	err        error
	later      error // the error for each repetition of the same records; nil: it adds them
}

func mishaps() []mishap {
	return []mishap{
		{"interrupted before it is added", false, true, domain.ByUser, nil},
		{"interrupted after it was added", true, true, domain.ByUser, nil},
		{"interrupted after it was acknowledged", true, true, nil, nil},
		{"interrupted as it is refused", false, true, events.ErrTooLarge, nil},
		{"interrupted before it is refused", false, true, domain.ByUser, events.ErrTooLarge},
		{"lost before it is added", false, false, errLine, nil},
		{"lost after it was added", true, false, errLine, nil},
		{"lost before it is refused", false, false, errLine, events.ErrTooLarge},
		{"refused", false, false, events.ErrTooLarge, nil},
	}
}

// A hostileStore applies a mishap to one append of a session, and fails a number of the
// appends after it, every second one after it was added.
type hostileStore struct {
	events.Store
	mishap
	interrupt func()
	mu        struct {
		sync.Mutex
		armed   bool
		at      int // the append that the mishap is done to, from 1
		fails   int // appends behind it
		appends int
		victim  domain.EventID // the first record of the append that the mishap was done to
	}
}

func (h *hostileStore) Append(ctx context.Context, s events.Stream, after events.Revision, records ...events.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.armed || s.Category() != events.SessionCategory {
		return h.Store.Append(ctx, s, after, records...)
	}
	h.mu.appends++
	behind := h.mu.appends - h.mu.at
	if behind == 0 {
		h.mu.victim = records[0].ID
		if h.interrupts {
			h.interrupt()
		}
		if h.adds {
			return errors.Join(h.Store.Append(context.WithoutCancel(ctx), s, after, records...), h.err)
		}
		return h.err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if h.later != nil && records[0].ID == h.mu.victim {
		return h.later
	}
	if behind > 0 && behind <= h.mu.fails {
		if behind%2 == 0 {
			return errors.Join(h.Store.Append(ctx, s, after, records...), errLine)
		}
		return errLine
	}
	return h.Store.Append(ctx, s, after, records...)
}

// arm applies the mishap to an append from now on.
func (h *hostileStore) arm(at, fails int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.armed, h.mu.at, h.mu.fails = true, at, fails
}

// disarm ends the mishap, and returns the number of appends since arm.
func (h *hostileStore) disarm() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.armed = false
	return h.mu.appends
}

// parallelCalls returns a player of two replies, the first with many calls, one of which
// requests a permission and one of which adds calls.
func parallelCalls() *player {
	var first []runner.Part
	for i := range 5 {
		first = append(first, ask(fmt.Sprint("c", i), "echo", fmt.Sprintf(`{"text":"%d"}`, i)))
	}
	first = append(first, ask("asks", "asks", `{"text":"p"}`), ask("adds", "adds", `{"names":["echo","asks"]}`))
	return plays(first, []runner.Part{ask("c0", "echo", `{"text":"again"}`), ask("c1", "missing", `{}`)})
}

// asksFirst returns a tool that records a permission request and its decision before it
// acts.
func asksFirst(count *counter, p **program) domain.Tool {
	return must(domain.Spec[text, string]{
		Execute: func(ctx context.Context, in text, inv domain.Invocation) (string, error) {
			permission := (*p).ledger.Mint().Permission()
			requested := events.PermissionRequested{
				Permission: permission, Message: inv.Message, Call: inv.Call, Action: "bash", Resources: []string{"ls"},
			}
			if err := (*p).runner.Note(ctx, inv, requested); err != nil {
				return "", err
			}
			if err := (*p).runner.Note(ctx, inv, events.PermissionDecided{Permission: permission, Effect: domain.Allow}); err != nil {
				return "", err
			}
			count.add(inv)
			return in.Text, nil
		},
	})
}

// A run that is interrupted or fails at any append leaves no call and no permission
// request open, in every way in which a store may fail, and without a recovery. The
// session has parallel calls. The short run takes every second append: the odd ones if no
// further append fails, the even ones if three fail, and the other way round for the next
// mishap.
func TestRunThatEndsAtAnyAppendLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	const never = 1 << 20
	whole := haltAt(t, mishap{}, never, 0)
	if whole < 22 {
		t.Fatalf("the session makes %d appends, want 22 at least", whole)
	}
	step := 2
	if os.Getenv("LEDGER_TEST_LONG") != "" {
		step = 1
	}
	for i, m := range mishaps() {
		for _, fails := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s, and %d more fail", m.name, fails), func(t *testing.T) {
				t.Parallel()
				for at := 1 + (i+fails)%step; at <= whole; at += step {
					haltAt(t, m, at, fails)
				}
			})
		}
	}
}

// haltAt runs a session over a hostile store and checks the log afterwards. It returns
// the number of appends of the run.
func haltAt(t *testing.T, m mishap, at, fails int) int {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	store := &hostileStore{Store: eventstest.NewSlice(), mishap: m, interrupt: func() { cancel(domain.ByUser) }}
	world := &counter{}
	var p *program
	adds := new(adding)
	tools := registry.Tools{"echo": echo(world), "asks": asksFirst(world, &p), "adds": adds.tool(world)}
	p, err := boot(t, store, noOutputs{}, tools, runner.Config{Provider: parallelCalls()})
	if err != nil {
		t.Fatal(err)
	}
	adds.program.Store(p)
	session := p.open("go")
	store.arm(at, fails)
	err = p.runner.Run(ctx, session)
	appends := store.disarm()
	where := fmt.Sprintf("append %d %s, %d fail", at, m.name, fails)
	if m.interrupts && ctx.Err() != nil {
		if s := p.state(session); err == nil || s.Interrupted == nil || s.Interrupted.Reason != domain.ByUser {
			t.Errorf("%s: Run = %v, and the interruption on record is %v: %s", where, err, s.Interrupted, p.kinds(session))
		}
	}
	p.mustLeaveNothingOpen(session, world, where)
	runs := world.total()
	p.admit(session, "go on")
	p.runner = runner.New(runner.Config{Ledger: p.ledger, Registry: p.registry, Provider: plays()})
	p.run(session)
	if world.total() != runs {
		t.Errorf("%s: %d old calls run after a new prompt", where, world.total()-runs)
	}
	p.mustLeaveNothingOpen(session, world, where+", and after a new prompt")
	return appends
}

// mustLeaveNothingOpen fails the test unless, without a recovery, the log keeps all laws,
// every call has one end, a call that ran is on record as begun and ran once, and the
// cause of each end is its start or the event that asked for it.
func (p *program) mustLeaveNothingOpen(session domain.SessionID, world *counter, where string) {
	p.t.Helper()
	for _, e := range exceptions(p.t, p.ledger) {
		p.t.Errorf("%s: %s: %s: %s", where, e.Law, e.Detail, p.kinds(session))
	}
	for _, m := range p.state(session).Messages {
		if m.Reply == nil {
			continue
		}
		for c := range m.Reply.All() {
			runs := world.of(m.ID, c.ID)
			switch {
			case c.Settlement == nil:
				p.t.Errorf("%s: call %s has no end", where, c.ID)
			case runs > 1, runs == 1 && !c.Settlement.Began, runs == 0 && c.Settlement.Outcome == domain.Succeeded:
				p.t.Errorf("%s: call %s ran %d times and ended %s, began %t", where, c.ID, runs, c.Settlement.Outcome, c.Settlement.Began)
			}
		}
	}
	asked, starts := map[string]domain.EventID{}, map[string]domain.EventID{}
	for v, err := range p.ledger.Read(p.t.Context(), events.SessionStream(session), 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		switch e := v.Event.(type) {
		case events.ReplyReceived:
			for _, c := range e.Calls {
				asked[e.Message.String()+string(c.ID)] = v.ID
			}
		case events.CallsAdded:
			for _, c := range e.Calls {
				asked[e.Message.String()+string(c.ID)] = v.ID
			}
		case events.CallStarted:
			starts[e.Message.String()+string(e.Call)] = v.ID
		case events.CallSettled:
			want, began := starts[e.Message.String()+string(e.Call)]
			if !began {
				want = asked[e.Message.String()+string(e.Call)]
			}
			if v.Causation != want {
				p.t.Errorf("%s: the end of %s comes of %s, want %s", where, e.Call, v.Causation, want)
			}
		}
	}
}

// An interruption dismisses open permission requests. A tool that was left behind after
// its grace period finds that the session is not running, and records no request that no
// run could answer.
func TestInterruptionDismissesTheQuestionsThatWait(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	var p *program
	waits := must(domain.Spec[nothing, string]{
		Execute: func(ctx context.Context, _ nothing, inv domain.Invocation) (string, error) {
			requested := events.PermissionRequested{
				Permission: p.ledger.Mint().Permission(), Message: inv.Message, Call: inv.Call, Action: "bash", Resources: []string{"ls"},
			}
			if err := p.runner.Note(ctx, inv, requested); err != nil {
				return "", err
			}
			cancel(domain.ByShutdown)
			return "", ctx.Err()
		},
	})
	p = start(t, registry.Tools{"waits": waits}, runner.Config{Provider: plays([]runner.Part{ask("c1", "waits", `{}`)})})
	session := p.open("go")
	if err := p.runner.Run(ctx, session); !errors.Is(err, domain.ErrInterrupted) {
		t.Fatalf("Run = %v, want the interruption", err)
	}
	s := p.state(session)
	if len(s.Asks) != 0 || s.Interrupted == nil || s.Interrupted.Reason != domain.ByShutdown || len(exceptions(t, p.ledger)) != 0 {
		t.Fatalf("asks = %v, interruption = %v, exceptions = %v; want an interruption by shutdown alone", s.Asks, s.Interrupted, exceptions(t, p.ledger))
	}
}

// A cutShort is a provider whose reply ends without an error when it is interrupted.
type cutShort struct{ interrupt func() }

func (c cutShort) Reply(context.Context, runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		if yield(runner.TextPart("half a rep"), nil) && yield(ask("c1", "echo", `{"text":"a"}`), nil) {
			c.interrupt()
		}
	}
}

// A reply that an interruption cuts short is recorded as refused, and no call of it runs.
func TestReplyThatAnInterruptionCutsShortIsRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	var count counter
	p := start(t, registry.Tools{"echo": echo(&count)}, runner.Config{Provider: cutShort{func() { cancel(domain.ByUser) }}})
	session := p.open("go")
	if err := p.runner.Run(ctx, session); !errors.Is(err, domain.ErrInterrupted) {
		t.Fatalf("Run = %v, want the interruption", err)
	}
	if got, want := p.kinds(session), "SessionOpened PromptAdmitted TurnMaterialized ReplyRefused SessionInterrupted"; got != want || count.total() != 0 {
		t.Fatalf("events = %s after %d runs, want %s after none", got, count.total(), want)
	}
}

// A failure that leaves no call open is not recorded as an interruption, and the session
// continues from its last event.
func TestFailureOfAProviderInterruptsNothing(t *testing.T) {
	t.Parallel()
	broke := errors.New("the provider is down")
	p := start(t, registry.Tools{}, runner.Config{Provider: &failing{plays(), broke}})
	session := p.open("go")
	if err := p.runner.Run(t.Context(), session); !errors.Is(err, broke) || strings.Contains(p.kinds(session), "SessionInterrupted") {
		t.Fatalf("Run = %v, events = %s; want the provider's error and no interruption", err, p.kinds(session))
	}
}
