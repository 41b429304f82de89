package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/registry"
)

// A call that is interrupted before its start runs no tool, and its end is on record.
func TestInterruptionBeforeTheStartRunsNothingAndIsOnRecord(t *testing.T) {
	t.Parallel()
	for _, why := range []domain.Interruption{domain.ByUser, domain.ByShutdown, domain.Superseded, domain.ByDeadline} {
		w, p := newWorld(t), answers(t, "a")
		m := w.offered(registry.Tools{"a": p.Tool})
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		got := w.settleIn(ctx, m, ask("c", "a", `{}`))
		w.want(got, domain.Interrupted, domain.InterruptedBefore(why).Text)
		if got.Interruption != why || got.Began {
			t.Errorf("interrupted by %v, began %t, want %v before it began", got.Interruption, got.Began, why)
		}
		p.ran(t, 0)
	}
}

// An interrupted call that could not run anyway, such as an unknown one, ends with that
// outcome.
func TestInterruptedCallThatCannotRunEndsAsThat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.offered(registry.Tools{"a": answers(t, "a").Tool})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.want(w.settleIn(ctx, m, ask("c", "missing", `{}`)), domain.UnknownTool, "Unknown tool: missing")
	if got := w.settleIn(ctx, m, ask("d", "a", `{"b":1}`)); got.Outcome != domain.InvalidInput {
		t.Errorf("settlement = %v, want an invalid input", got.Outcome)
	}
}

// If an interruption caused the error of a tool, the call ends as interrupted.
func TestInterruptionOutranksTheErrorThatCameOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	m := w.offered(registry.Tools{"heeds": does(t, func(ctx context.Context, _ empty, inv domain.Invocation) (string, error) {
		inv.Report(domain.Progress{Structured: json.RawMessage(`"half"`)})
		cancel(domain.ByUser)
		<-ctx.Done()
		return "", domain.Fail("it was cut: %v", ctx.Err())
	})})
	got := w.settleIn(ctx, m, ask("c", "heeds", `{}`))
	w.want(got, domain.Interrupted, domain.InterruptedWhile(domain.ByUser).Text)
	if !got.Began || got.Interruption != domain.ByUser || got.Progress == nil {
		t.Errorf("began %t, interrupted by %v, progress %v; want all of them", got.Began, got.Interruption, got.Progress)
	}
}

// A tool that succeeds in spite of an interruption has succeeded, and its output is
// stored in full.
func TestSuccessDespiteAnInterruptionStandsAndIsKeptWhole(t *testing.T) {
	t.Parallel()
	w, text := newWorld(t), strings.Repeat("t", 60000)
	ctx, cancel := context.WithCancelCause(t.Context())
	m := w.offered(registry.Tools{"a": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
		cancel(domain.ByUser)
		return text, nil
	})})
	got := w.settleIn(ctx, m, ask("c", "a", `{}`))
	if got.Outcome != domain.Succeeded || len(got.Retained) != 2 || w.outputs.kept()[domain.TextChannel] != text {
		t.Errorf("settlement = %v with %d outputs, want a success, kept whole", got.Outcome, len(got.Retained))
	}
}

// A hook that fails because of an interruption ends the call as interrupted and not as
// a defect.
func TestInterruptionOfAHookIsNoDefect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	before := w.hooked(registry.Config{Before: []registry.Before{
		func(ctx context.Context, _ domain.Invocation, _ domain.Call) (json.RawMessage, error) {
			cancel(domain.ByUser)
			return nil, ctx.Err()
		},
	}})
	got := w.settleIn(ctx, before, ask("c", "echo", `{}`))
	w.want(got, domain.Interrupted, domain.InterruptedBefore(domain.ByUser).Text)

	ctx, cancel = context.WithCancelCause(t.Context())
	after := w.hooked(registry.Config{After: []registry.After{
		func(ctx context.Context, _ domain.Invocation, _ domain.Call, _ domain.Output) (domain.Contents, error) {
			cancel(domain.ByUser)
			return nil, ctx.Err()
		},
	}})
	got = w.settleIn(ctx, after, ask("d", "echo", `{}`))
	w.want(got, domain.Interrupted, domain.InterruptedWhile(domain.ByUser).Text)
}

// If an interruption cuts off the recording of the start, the call ends as interrupted,
// and the tool does not run.
func TestInterruptionOfTheStartEndsTheCallUnrun(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]mishap{"nothing was added": nothing, "everything was added": added} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t), answers(t, "a")
			offered := w.offered(registry.Tools{"a": p.Tool})
			ctx, cancel := context.WithCancelCause(t.Context())
			w.store.suffer(func(events.Stream) mishap { cancel(domain.ByShutdown); return m })
			w.journal.end = func(context.Context) error { w.store.recover(); return nil }
			got := w.settleIn(ctx, offered, ask("c", "a", `{}`))
			if got.Outcome != domain.Interrupted || !got.Began {
				t.Errorf("settlement = %v, began %t, want an interruption that may have begun", got.Outcome, got.Began)
			}
			p.ran(t, 0)
			w.wantKinds(w.session(), "CallStarted", "CallSettled")
		})
	}
}

// An interrupted call whose start the journal refused ends as one that did not begin.
func TestInterruptedCallWhoseStartWasRefusedDidNotBegin(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*world, context.CancelCauseFunc){
		"the context ended before the append": func(w *world, cancel context.CancelCauseFunc) {
			w.journal.begin = func(context.Context) error { cancel(domain.ByUser); return nil }
		},
		"the append of another caller is open": func(w *world, cancel context.CancelCauseFunc) {
			w.journal.begin = func(ctx context.Context) error {
				w.store.suffer(func(events.Stream) mishap { return nothing })
				d := w.ledger.Draft(events.LoopDetected{}, domain.EventID{})
				if _, err := w.journal.writer.Append(ctx, d); !errors.Is(err, errPower) {
					t.Errorf("Append = %v, want its outcome open", err)
				}
				w.store.suffer(func(events.Stream) mishap { cancel(domain.ByUser); return nothing })
				return nil
			}
			w.journal.end = func(context.Context) error { w.store.recover(); return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t), answers(t, "a")
			offered := w.offered(registry.Tools{"a": p.Tool})
			ctx, cancel := context.WithCancelCause(t.Context())
			refuse(w, cancel)
			got := w.settleIn(ctx, offered, ask("c", "a", `{}`))
			w.want(got, domain.Interrupted, domain.InterruptedBefore(domain.ByUser).Text)
			if got.Began || slices.Contains(w.kinds(w.session()), "CallStarted") {
				t.Errorf("began %t with %v on record, want a call that did not begin", got.Began, w.kinds(w.session()))
			}
			p.ran(t, 0)
		})
	}
}

// A call whose start is too large for the store ends as a defect, and its tool does not
// run. Without an end, the runner would try the call again without end.
func TestCallWhoseStartIsTooLargeEndsUnrunAsADefect(t *testing.T) {
	t.Parallel()
	for name, interrupted := range map[string]bool{"as it is": false, "and interrupted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t), answers(t, "a")
			offered := w.offered(registry.Tools{"a": p.Tool})
			ctx, cancel := context.WithCancelCause(t.Context())
			w.store.suffer(func(events.Stream) mishap {
				if interrupted {
					cancel(domain.ByUser)
				}
				return mistaken
			})
			w.journal.end = func(context.Context) error { w.store.recover(); return nil }
			got := w.settleIn(ctx, offered, ask("c", "a", `{}`))
			if got.Outcome != domain.Defective || got.Began {
				t.Errorf("settlement = %v, began %t, want a defect that did not begin", got.Outcome, got.Began)
			}
			p.ran(t, 0)
			w.wantKinds(w.session(), "CallSettled")
		})
	}
}

// Settle leaves a tool behind that ignores its interruption for the grace period, and
// records the call as interrupted.
func TestToolThatIgnoresItsInterruptionIsLeftBehindAfterTheGrace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last func() (string, error)
		want events.LateResultObserved
	}{
		"returns": {func() (string, error) { return "late", nil }, events.LateResultObserved{Outcome: domain.Succeeded, Structured: json.RawMessage(`"late"`)}},
		"fails": {func() (string, error) { return "", domain.Fail("late") }, events.LateResultObserved{
			Outcome: domain.Interrupted, Text: domain.InterruptedWhile(domain.ByUser).Text,
		}},
		"panics": {func() (string, error) { panic("late") }, events.LateResultObserved{Outcome: domain.Defective, Text: "Tool execution failed: late"}},
		"ends its goroutine": {func() (string, error) { runtime.Goexit(); return "", nil }, events.LateResultObserved{
			Outcome: domain.Defective, Text: "Tool execution failed: the tool ended its goroutine",
		}},
		"returns much": {func() (string, error) { return strings.Repeat("t", 60000), nil }, events.LateResultObserved{
			Outcome: domain.Succeeded, Text: "output of 60002 bytes came late and is not kept: it is over the limit of 51200",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, release := newWorld(t), make(chan struct{})
				m := w.offered(registry.Tools{"deaf": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
					<-release
					return c.last()
				})})
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Minute, func() { cancel(domain.ByUser) })
				began := time.Now()
				got := w.settleIn(ctx, m, ask("c", "deaf", `{}`))
				w.want(got, domain.Interrupted, domain.InterruptedWhile(domain.ByUser).Text)
				if waited := time.Since(began); waited != time.Minute+registry.DefaultGrace {
					t.Errorf("Settle took %v, want a minute and the grace of %v", waited, registry.DefaultGrace)
				}
				short, stop := context.WithTimeoutCause(t.Context(), time.Hour, errFull)
				defer stop()
				wantIs(t, "Wait while the tool runs", w.layers.Wait(short), errFull)
				w.wantKinds(w.session(), "CallStarted", "CallSettled")
				close(release)
				if err := w.layers.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.wantKinds(w.session(), "CallStarted", "CallSettled", "LateResultObserved")
				late := w.read(w.session())[2]
				e := late.Event.(events.LateResultObserved)
				if e.Outcome != c.want.Outcome || e.Text != c.want.Text || string(e.Structured) != string(c.want.Structured) {
					t.Errorf("late is %+v, want %+v", e, c.want)
				}
				if e.Settlement != got.ID || late.Causation != got.ID || e.Call != "c" || e.Message != w.as.Message || e.Tool != "deaf" {
					t.Errorf("late is of %+v, comes of %v, want %v", e, late.Causation, got.ID)
				}
			})
		})
	}
}

// Settle uses the result of a tool that returns within the grace period.
func TestToolThatReturnsWithinTheGraceIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.offered(registry.Tools{"slow": does(t, func(ctx context.Context, _ empty, _ domain.Invocation) (string, error) {
			<-ctx.Done()
			time.Sleep(registry.DefaultGrace - time.Second)
			return "whole", nil
		})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.want(w.settleIn(ctx, m, ask("c", "slow", `{}`)), domain.Succeeded, "whole")
		if err := w.layers.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantKinds(w.session(), "CallStarted", "CallSettled")
	})
}

// A deadline of the context interrupts the call with the reason ByDeadline.
func TestDeadlineIsAnInterruptionByDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		m := w.offered(registry.Tools{"heeds": does(t, func(ctx context.Context, _ empty, _ domain.Invocation) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.want(w.settleIn(ctx, m, ask("c", "heeds", `{}`)), domain.Interrupted, domain.InterruptedWhile(domain.ByDeadline).Text)
	})
}

// A slow store of outputs takes a fixed time for each Keep, unless its context ends
// before.
type slow struct {
	*drawer
	takes time.Duration
}

func (s slow) Keep(ctx context.Context, ref domain.Ref, mime string, r io.Reader) (domain.Retained, error) {
	select {
	case <-time.After(s.takes):
		return s.drawer.Keep(ctx, ref, mime, r)
	case <-ctx.Done():
		return domain.Retained{}, context.Cause(ctx)
	}
}

// The grace period begins with the interruption and not with the step that it
// interrupts.
func TestGraceBeginsWithTheInterruption(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		interrupt time.Duration
		want      domain.Outcome
		took      time.Duration
	}{
		"none":   {24 * time.Hour, domain.Succeeded, 2 * time.Hour},
		"before": {0, domain.Interrupted, registry.DefaultGrace},
		"while":  {time.Hour, domain.Interrupted, time.Hour + registry.DefaultGrace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l := w.application()
				ctx, cancel := context.WithCancelCause(t.Context())
				w.register(l, registry.Tools{"a": does(t, func(context.Context, empty, domain.Invocation) (map[string]string, error) {
					if c.interrupt == 0 {
						cancel(domain.ByUser)
					}
					time.AfterFunc(c.interrupt, func() { cancel(domain.ByUser) })
					return map[string]string{"a": strings.Repeat("t", 60000)}, nil
				})})
				m := w.materialize(w.registry(registry.Config{Outputs: slow{w.outputs, 2 * time.Hour}}, l))
				began := time.Now()
				got := w.settleIn(ctx, m, ask("c", "a", `{}`))
				if took := time.Since(began); got.Outcome != c.want || took != c.took {
					t.Errorf("settlement = %v after %v, want %v after %v", got.Outcome, took, c.want, c.took)
				}
				time.Sleep(24 * time.Hour) // in the bubble: let the timer of the test end
			})
		})
	}
}

// The result of a tool that was left behind is not recorded if the call has no recorded
// end.
func TestLateResultOfACallWithoutAnEndIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, release := newWorld(t), make(chan struct{})
		m := w.offered(registry.Tools{"deaf": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
			<-release
			return "late", nil
		})})
		w.journal.end = func(context.Context) error { return errFull }
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(domain.ByUser)
		w.journal.begin = func(context.Context) error { return nil }
		live, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(domain.ByUser) })
		_, err := m.Settle(live, w.journal, w.as, ask("c", "deaf", `{}`))
		wantIs(t, "Settle with a broken journal", err, errFull)
		close(release)
		if err := w.layers.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantIs(t, "Wait in a context that ended, with nothing to wait for", w.layers.Wait(ctx), nil)
		w.wantKinds(w.session(), "CallStarted")
	})
}

// The result of a tool that was left behind is recorded as late, after the end of its
// call.
func TestLateResultIsOnRecordBehindTheEndOfItsCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, release := newWorld(t), make(chan struct{})
		m := w.offered(registry.Tools{"deaf": does(t, func(context.Context, empty, domain.Invocation) (string, error) {
			<-release
			return "late", nil
		})})
		w.journal.end = func(context.Context) error {
			close(release)
			time.Sleep(time.Second) // in the bubble: the tool has returned and all else waits
			return nil
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(domain.ByUser) })
		w.want(w.settleIn(ctx, m, ask("c", "deaf", `{}`)), domain.Interrupted, domain.InterruptedWhile(domain.ByUser).Text)
		if err := w.layers.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.wantKinds(w.session(), "CallStarted", "CallSettled", "LateResultObserved")
	})
}

// The laws of calls hold with a journal that, at random, fails before or after it has
// recorded an event, or ends the contexts of calls.
func TestHostileJournalBreaksNoLawOfCalls(t *testing.T) {
	t.Parallel()
	for seed := range rounds(64, 200) {
		w := newProcess(t, newWorld(t).store, byte(seed))
		p := answers(t, "a")
		m := w.offered(registry.Tools{"a": p.Tool})
		ctx, cancel := context.WithCancelCause(t.Context())
		dice := uint(seed)
		hostile := func(context.Context) error {
			choice := dice % 4
			dice /= 4
			switch choice {
			case 1:
				return errFull
			case 2:
				w.store.suffer(func(events.Stream) mishap { w.store.recover(); return added })
			case 3:
				cancel(domain.ByUser)
			}
			return nil
		}
		w.journal.begin, w.journal.end = hostile, hostile
		got, err := m.Settle(ctx, w.journal, w.as, ask("c", "a", `{}`))
		if (err == nil) == (got.Outcome == 0) {
			t.Errorf("Settle = %v, %v, want a settlement or an error", got.Outcome, err)
		}
		w.journal.begin, w.journal.end = nil, nil
		if runs := p.runs.Load(); runs > 1 || runs == 1 && w.kinds(w.session())[0] != "CallStarted" {
			t.Errorf("the tool ran %d times with %v on record", runs, w.kinds(w.session()))
		}
		recorded := len(w.kinds(w.session())) > 0
		if err == nil && !recorded || err != nil && !errors.Is(err, errFull) && !errors.Is(err, errPower) {
			t.Errorf("Settle = %v with %v on record", err, w.kinds(w.session()))
		}
	}
}

// deaf returns a tool that ignores its context and returns text when it is released.
func deaf(t testing.TB, release <-chan struct{}, text string) domain.Tool {
	t.Helper()
	return does(t, func(context.Context, empty, domain.Invocation) (string, error) { <-release; return text, nil })
}

// Layers.Wait returns only after every tool that was left behind has ended.
func TestWaitWaitsForEveryToolThatWasLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, first, second := newWorld(t), make(chan struct{}), make(chan struct{})
		m := w.offered(registry.Tools{"first": deaf(t, first, "1"), "second": deaf(t, second, "2")})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(domain.ByUser) })
		go w.settleIn(ctx, m, ask("1", "first", `{}`))
		w.settleIn(ctx, m, ask("2", "second", `{}`))
		synctest.Wait()
		for _, release := range []chan struct{}{first, second} {
			short, stop := context.WithTimeoutCause(t.Context(), time.Hour, errFull)
			wantIs(t, "Wait while a tool runs", w.layers.Wait(short), errFull)
			stop()
			close(release)
			synctest.Wait()
		}
		wantIs(t, "Wait when none runs", w.layers.Wait(t.Context()), nil)
	})
}

// The result of a tool that returns at the very end of its grace period is either the
// end of the call or recorded as late, and never lost.
func TestResultAtTheEndOfTheGraceIsTheEndOrLate(t *testing.T) {
	t.Parallel()
	for range rounds(30, 100) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			m := w.offered(registry.Tools{"a": does(t, func(ctx context.Context, _ empty, _ domain.Invocation) (string, error) {
				<-ctx.Done()
				time.Sleep(registry.DefaultGrace)
				return "just so", nil
			})})
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, domain.ByUser)
			defer cancel()
			got := w.settleIn(ctx, m, ask("c", "a", `{}`))
			if err := w.layers.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			late := len(w.kinds(w.session())) == 3
			if late != (got.Outcome == domain.Interrupted) || !late && got.Outcome != domain.Succeeded {
				t.Errorf("the call ended %v with %v on record", got.Outcome, w.kinds(w.session()))
			}
		})
	}
}

// The settlement of a call whose output was lost has the last reported progress.
func TestProgressIsKeptWithAnEndThatLostItsOutput(t *testing.T) {
	t.Parallel()
	says := func(content ...domain.Content) domain.Tool {
		return made(t, domain.Spec[empty, string]{
			Execute: func(_ context.Context, _ empty, inv domain.Invocation) (string, error) {
				inv.Report(domain.Progress{Structured: json.RawMessage(`"half"`)})
				return "v", nil
			},
			Present: func(empty, domain.Encoded[string]) []domain.Content { return content },
		})
	}
	for want, tool := range map[domain.Outcome]domain.Tool{
		domain.RetentionFailed: says(domain.Text(strings.Repeat("t", 60000))),
		domain.MediaTooLarge:   says(domain.Media{MIME: "a/a", Data: make([]byte, 8<<20)}),
	} {
		w := newWorld(t)
		w.outputs.refuse = errFull
		got := w.settle(w.offered(registry.Tools{"a": tool}), "c", "a", `{}`)
		if got.Outcome != want || got.Progress == nil || string(got.Progress.Structured) != `"half"` {
			t.Errorf("the call ended %v with the progress %v, want %v with the last one", got.Outcome, got.Progress, want)
		}
	}
}
