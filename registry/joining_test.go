package registry_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/registry"
)

// blocks returns a tool that waits for release.
func blocks(t testing.TB, release <-chan struct{}) probe {
	runs := new(atomic.Int64)
	return probe{runs: runs, Tool: does(t, func(context.Context, map[string]int, domain.Invocation) (string, error) {
		runs.Add(1)
		<-release
		return "released", nil
	})}
}

// Concurrent Settle calls for one call run the tool once and return the same
// settlement.
func TestCallsOfOneCallJoinTheOneThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, release := newWorld(t), make(chan struct{})
		p := blocks(t, release)
		m := w.offered(registry.Tools{"a": p.Tool})
		var all [100]domain.Settlement
		var joined sync.WaitGroup
		for i := range all {
			joined.Go(func() {
				var err error
				if all[i], err = m.Settle(t.Context(), w.journal, w.as, ask("c", "a", `{"n": 1}`)); err != nil {
					t.Errorf("Settle = %v, want nil", err)
				}
			})
		}
		synctest.Wait()
		_, err := m.Settle(t.Context(), w.journal, w.as, ask("c", "a", `{"n": 2}`))
		wantIs(t, "Settle of the call with another input", err, registry.ErrCallConflict)
		_, err = m.Settle(t.Context(), w.journal, w.as, ask("c", "b", `{"n": 1}`))
		wantIs(t, "Settle of the call with another tool", err, registry.ErrCallConflict)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(domain.ByUser)
		_, err = m.Settle(ctx, w.journal, w.as, ask("c", "a", `{"n": 1}`))
		wantIs(t, "Settle of who does not wait", err, domain.ErrInterrupted)
		close(release)
		joined.Wait()
		p.ran(t, 1)
		for i := range all {
			if diff := cmp.Diff(all[0], all[i], private); diff != "" || all[i].Outcome != domain.Succeeded {
				t.Fatalf("two who asked got other settlements:\n%s", diff)
			}
		}
		w.wantKinds(w.session(), "CallStarted", "CallSettled")
	})
}

// A joined Settle returns the error of the Settle that runs the call.
func TestWhoJoinsGetsTheErrorOfTheOneThatRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, release := newWorld(t), make(chan struct{})
		m := w.offered(registry.Tools{"a": blocks(t, release).Tool})
		w.journal.end = func(context.Context) error { return errFull }
		var joined sync.WaitGroup
		for range 3 {
			joined.Go(func() {
				_, err := m.Settle(t.Context(), w.journal, w.as, ask("c", "a", `{}`))
				wantIs(t, "Settle with a broken journal", err, errFull)
			})
		}
		synctest.Wait()
		close(release)
		joined.Wait()
	})
}

// Settle of a call with a recorded settlement returns that settlement and runs no tool.
func TestSettledCallIsAnsweredFromRecordAndRunsNothing(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	l := w.application()
	s := w.register(l, registry.Tools{"a": p.Tool})
	r := w.registry(registry.Config{}, l)
	m := w.materialize(r)
	w.journal.expect(w.as.Message, registry.Recorded{Call: ask("c", "a", `{ }`)})
	first := w.settle(m, "c", "a", `{ }`)
	w.close(s)
	again := w.settle(r.Recall(m.Offer()), "c", "a", `{}`)
	if diff := cmp.Diff(first, again, private); diff != "" {
		t.Errorf("the settlement on record is another (-first +again):\n%s", diff)
	}
	p.ran(t, 1)
	_, err := m.Settle(t.Context(), w.journal, w.as, ask("c", "a", `{"b":1}`))
	wantIs(t, "Settle of a settled call with another input", err, registry.ErrCallConflict)
	_, err = m.Settle(t.Context(), w.journal, w.as, ask("c", "b", `{}`))
	wantIs(t, "Settle of a settled call with another tool", err, registry.ErrCallConflict)
	w.wantKinds(w.session(), "CallStarted", "CallSettled")
}

// Calls with the same ID in different sessions or messages are different calls.
func TestCallIsIdentifiedBySessionMessageAndIDTogether(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	m := w.offered(registry.Tools{"a": p.Tool})
	w.settle(m, "tool_0", "a", `{}`)
	w.as.Message = w.mint.Message()
	w.settle(m, "tool_0", "a", `{}`)
	p.ran(t, 2)
}

// Settle returns ErrBegan for a call that another process started and did not end, and
// runs no tool.
func TestCallThatBeganElsewhereIsNotRunAgain(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	m := w.offered(registry.Tools{"a": p.Tool})
	w.journal.expect(w.as.Message, registry.Recorded{Call: ask("c", "a", `{}`), Began: true})
	_, err := m.Settle(t.Context(), w.journal, w.as, ask("c", "a", `{}`))
	wantIs(t, "Settle of a call that began", err, registry.ErrBegan)
	_, err = m.Settle(t.Context(), w.journal, w.as, ask("c", "a", `{"b":1}`))
	wantIs(t, "Settle of it with another input", err, registry.ErrCallConflict)
	p.ran(t, 0)
	w.wantKinds(w.session(), []string{}...)
}

// An unknowing journal returns an error for each query of a recorded call.
type unknowing struct{ registry.Journal }

func (unknowing) Recorded(context.Context, domain.MessageID, domain.CallID) (registry.Recorded, error) {
	return registry.Recorded{}, errFull
}

// If the journal cannot report the record of a call, Settle returns its error and runs
// no tool.
func TestWithoutTheRecordNothingRuns(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	m := w.offered(registry.Tools{"a": p.Tool})
	_, err := m.Settle(t.Context(), unknowing{w.journal}, w.as, ask("c", "a", `{}`))
	wantIs(t, "Settle without the record", err, errFull)
	p.ran(t, 0)
}

// Calls that run in parallel while tools are registered and closed each have one end.
func TestManyCallsAtOnceWhileToolsComeAndGo(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t), answers(t, "a")
	l := w.application()
	r := w.registry(registry.Config{}, l)
	var all sync.WaitGroup
	var stale, ran atomic.Int64
	for i := range 8 {
		all.Go(func() {
			for j := range 10 {
				s := l.Scope()
				if err := s.Register(t.Context(), registry.Tools{"a": p.Tool}); err != nil {
					t.Error(err)
				}
				m, err := r.Materialize(t.Context(), registry.TurnSpec{ID: w.mint.Turn()})
				if err != nil {
					t.Error(err)
					return
				}
				got, err := m.Settle(t.Context(), w.journal, w.as, ask(fmt.Sprint(i, " ", j), "a", `{}`))
				switch {
				case err == nil && got.Outcome == domain.Succeeded:
					ran.Add(1)
				case err == nil && (got.Outcome == domain.Stale || got.Outcome == domain.UnknownTool):
					stale.Add(1)
				default:
					t.Errorf("Settle = %v, %v, want a success or a stale call", got.Outcome, err)
				}
				if err := errors.Join(s.Close(t.Context()), w.layers.Wait(t.Context())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	p.ran(t, ran.Load())
	if got := ran.Load() + stale.Load(); got != 80 {
		t.Errorf("%d calls ended, want 80", got)
	}
	w.sameAsLog(r, l.ID())
}
