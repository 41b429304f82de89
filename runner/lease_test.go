package runner_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A severed store cannot be reached while it is cut off.
type severed struct {
	events.Store
	off atomic.Bool
}

var errUnreachable = errors.New("the store is not to be reached")

func (s *severed) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	if s.off.Load() {
		return errUnreachable
	}
	return s.Store.Append(ctx, stream, after, records...)
}

// A tenant is a process with a lease in a store that other processes use as well.
type tenant struct {
	ledger  *events.Ledger
	process domain.ProcessID
	writer  *events.Writer
	lease   *runner.Lease
}

const length = runner.DefaultLease

func settle(t *testing.T, store events.Store) *tenant {
	t.Helper()
	mint := domain.NewMint(time.Now, rand.Reader)
	n := &tenant{ledger: events.NewLedger(store, mint, time.Now), process: mint.Process()}
	n.writer = n.ledger.Writer(events.ProcessStream(n.process), 0)
	started := events.ProcessStarted{Process: n.process, Host: "test", PID: 1, Program: "test", Version: "1", Until: n.ledger.Now().Add(length)}
	if _, err := n.writer.Append(t.Context(), n.ledger.Draft(started, domain.EventID{})); err != nil {
		t.Fatal(err)
	}
	n.lease = runner.KeepLease(t.Context(), n.ledger, n.writer, n.process, length)
	return n
}

func judged(t *testing.T, l *events.Ledger, skew time.Duration, alone bool) runner.Liveness {
	t.Helper()
	p := runner.Processes()
	s, err := projections.Fold(p, p.Init(), l.ReadAll(t.Context(), events.Position{}))
	if err != nil {
		t.Fatal(err)
	}
	return s.Judge(domain.ProcessID{}, time.Now().Add(skew), alone)
}

// A process that renews its lease is never judged dead.
func TestAProcessThatRenewsItsLeaseIsNeverJudgedDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settle(t, eventstest.NewSlice())
		defer n.lease.Close()
		for range 70 { // ten leases
			time.Sleep(length / 7)
			for _, skew := range []time.Duration{-runner.LeaseMargin, 0, runner.LeaseMargin} {
				if j := judged(t, n.ledger, skew, false); len(j.Dead) != 0 || len(j.Living) != 1 {
					t.Fatalf("with a clock %s ahead, %d are dead and %d alive, want the one alive", skew, len(j.Dead), len(j.Living))
				}
			}
		}
		if err := n.lease.Alive().Err(); err != nil {
			t.Errorf("the lease ended: %v", context.Cause(n.lease.Alive()))
		}
	})
}

// A process is judged dead LeaseMargin after its lease ran out, and not before.
func TestAProcessIsDeadWhenItsLeaseRanOutAndNotBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := settle(t, eventstest.NewSlice())
		n.lease.Close() // as a death does
		time.Sleep(length + runner.LeaseMargin)
		if j := judged(t, n.ledger, 0, true); len(j.Dead) != 0 {
			t.Error("the process is judged dead before its lease and the margin ran out, by who has the store alone")
		}
		time.Sleep(time.Microsecond)
		if j := judged(t, n.ledger, 0, false); len(j.Dead) != 1 || len(j.Living)+len(j.Unknown) != 0 {
			t.Errorf("judged %+v, want the one dead", j)
		}
	})
}

// A process without a lease is dead only for a caller that holds the store exclusively.
func TestAProcessWithoutALeaseIsDeadOnlyForWhoHasTheStoreAlone(t *testing.T) {
	t.Parallel()
	p := start(t, registry.Tools{}, runner.Config{})
	if j := judged(t, p.ledger, 1000*time.Hour, false); len(j.Dead) != 0 || len(j.Unknown) != 1 {
		t.Errorf("in a shared store it is judged %+v, want unknown", j)
	}
	if j := judged(t, p.ledger, 0, true); len(j.Dead) != 1 {
		t.Errorf("in a store held alone it is judged %+v, want dead", j)
	}
}

// A lease survives a store that cannot be reached for less than the rest of the lease.
func TestALeaseOutlivesAStoreThatComesBackInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &severed{Store: eventstest.NewSlice()}
		n := settle(t, store)
		defer n.lease.Close()
		store.off.Store(true)
		time.Sleep(length * 5 / 6)
		store.off.Store(false)
		time.Sleep(2 * length)
		if n.lease.Alive().Err() != nil {
			t.Errorf("the lease is lost: %v", context.Cause(n.lease.Alive()))
		}
		if j := judged(t, n.ledger, 0, false); len(j.Living) != 1 {
			t.Errorf("judged %+v, want alive", j)
		}
	})
}

// The context of a process that cannot renew its lease ends before other processes may
// judge it dead.
func TestAProcessThatCannotRenewStopsBeforeOthersMayJudgeItDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &severed{Store: eventstest.NewSlice()}
		n := settle(t, store)
		defer n.lease.Close()
		store.off.Store(true)
		<-n.lease.Alive().Done()
		if err := context.Cause(n.lease.Alive()); !errors.Is(err, runner.ErrLeaseLost) {
			t.Errorf("the lease ended with %v, want ErrLeaseLost", err)
		}
		if j := judged(t, n.ledger, runner.LeaseMargin, false); len(j.Dead) != 0 {
			t.Error("somebody whose clock is ahead by the margin judges it dead before it stopped")
		}
	})
}

// A process that another one has recovered loses its lease at its next renewal.
func TestAProcessThatWasRecoveredLosesItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := eventstest.NewSlice()
		n := settle(t, store)
		defer n.lease.Close()
		r := runner.New(runner.Config{Ledger: n.ledger})
		w, err := foldOrphans(t.Context(), n.ledger, domain.ProcessID{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.RecoverAll(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		<-n.lease.Alive().Done()
		if err := context.Cause(n.lease.Alive()); !errors.Is(err, runner.ErrLeaseLost) || !errors.Is(err, events.ErrConflict) {
			t.Errorf("the lease ended with %v, want ErrLeaseLost for a conflict", err)
		}
	})
}

// held returns a tool that runs until the test releases it.
func held(begun chan<- struct{}, release <-chan struct{}) domain.Tool {
	return must(domain.Spec[struct{}, string]{Description: "Waits.", Execute: func(ctx context.Context, _ struct{}, _ domain.Invocation) (string, error) {
		begun <- struct{}{}
		<-release
		return "late", nil
	}})
}

// A process whose lease ran out, and that does not know it yet, adds no event to a
// session that another process has recovered.
func TestAZombieAddsNothing(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	store := eventstest.NewSlice()
	zombie, err := boot(t, store, noOutputs{}, registry.Tools{"held": held(begun, release)}, runner.Config{Provider: plays([]runner.Part{ask("1", "held", `{}`)})})
	if err != nil {
		t.Fatal(err)
	}
	session := zombie.open("go")
	ran := make(chan error)
	go func() { ran <- zombie.runner.Run(t.Context(), session) }()
	<-begun
	other, err := boot(t, store, noOutputs{}, registry.Tools{}, runner.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if done := other.recoverOrphans(); len(done.Sessions) != 1 {
		t.Fatalf("recovered %+v, want the session", done)
	}
	before := other.kinds(session)
	close(release)
	if err := <-ran; !errors.Is(err, events.ErrConflict) {
		t.Errorf("Run = %v, want a conflict", err)
	}
	if after := other.kinds(session); after != before {
		t.Errorf("the session holds %s, and held %s", after, before)
	}
	if ends := other.ends(session); len(ends) != 1 || ends[0].Outcome != domain.Lost {
		t.Errorf("the call ended %+v, want lost, once", ends)
	}
	if broken := exceptions(t, other.ledger); len(broken) != 0 {
		t.Errorf("laws are broken: %+v", broken)
	}
}

// A recovery does not change the sessions of a process that may be alive.
func TestRecoveryLeavesTheSessionsOfTheLiving(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	store := eventstest.NewSlice()
	living, err := boot(t, store, noOutputs{}, registry.Tools{"held": held(begun, release)}, runner.Config{Provider: plays([]runner.Part{ask("1", "held", `{}`)})})
	if err != nil {
		t.Fatal(err)
	}
	session := living.open("go")
	ran := make(chan error)
	go func() { ran <- living.runner.Run(t.Context(), session) }()
	<-begun
	other, err := boot(t, store, noOutputs{}, registry.Tools{}, runner.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := foldOrphans(t.Context(), other.ledger, other.layers.Process())
	if err != nil {
		t.Fatal(err)
	}
	w.Processes, w.Others = nil, w.Processes
	done, err := other.runner.RecoverAll(t.Context(), w)
	if err != nil || len(done.Sessions)+len(done.Layers)+len(done.Processes) != 0 {
		t.Errorf("recovered %+v, %v, want nothing", done, err)
	}
	close(release)
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
	if kinds := living.kinds(session); strings.Count(kinds, "CallSettled") != 1 {
		t.Errorf("the session holds %s, want one end", kinds)
	}
}

// Of two runners that run one session, the second stops before it ends the open calls of
// the first, and if both append, one receives a conflict. In both cases each call has one
// end.
func TestOfTwoRunnersOnOneSessionOneStops(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		leased        bool // the second knows that the first may be alive
		first, second error
	}{
		{"the first is known to live", true, nil, runner.ErrElsewhere},
		{"the first is taken for dead", false, events.ErrConflict, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			begun, release := make(chan struct{}), make(chan struct{})
			store := eventstest.NewSlice()
			tools := registry.Tools{"held": held(begun, release)}
			first, err := boot(t, store, noOutputs{}, tools, runner.Config{Provider: plays([]runner.Part{ask("1", "held", `{}`)})})
			if err != nil {
				t.Fatal(err)
			}
			config := runner.Config{Provider: plays()}
			if test.leased {
				config.Elsewhere = func(_ context.Context, layers []domain.LayerID) (domain.ProcessID, error) {
					if slices.Contains(layers, first.place.ID()) {
						return first.layers.Process(), nil
					}
					return domain.ProcessID{}, nil
				}
			}
			second, err := boot(t, store, noOutputs{}, tools, config)
			if err != nil {
				t.Fatal(err)
			}
			session := first.open("go")
			ran := make(chan error)
			go func() { ran <- first.runner.Run(t.Context(), session) }()
			<-begun
			if err := second.runner.Run(t.Context(), session); !errors.Is(err, test.second) {
				t.Errorf("the second runner: %v, want %v", err, test.second)
			}
			close(release)
			if err := <-ran; !errors.Is(err, test.first) {
				t.Errorf("the first runner: %v, want %v", err, test.first)
			}
			if n := strings.Count(first.kinds(session), "CallSettled"); n != 1 {
				t.Errorf("the call has %d ends: %s", n, first.kinds(session))
			}
			if broken := exceptions(t, second.ledger); len(broken) != 0 {
				t.Errorf("laws are broken: %+v", broken)
			}
		})
	}
}

// A renewal with an earlier end, as after a clock was set back, does not shorten a lease.
func TestARenewalNeverShortensALease(t *testing.T) {
	t.Parallel()
	store := eventstest.NewSlice()
	ledger := events.NewLedger(store, domain.NewMint(time.Now, rand.Reader), time.Now)
	process, now := ledger.Mint().Process(), time.Now().UTC().Truncate(time.Microsecond)
	w := ledger.Writer(events.ProcessStream(process), 0)
	for _, e := range []events.Event{
		events.ProcessStarted{Process: process, Host: "test", Until: now.Add(30 * time.Second)},
		events.LeaseRenewed{Process: process, Until: now.Add(time.Minute)},
		events.LeaseRenewed{Process: process, Until: now.Add(40 * time.Second)},
	} {
		if _, err := w.Append(t.Context(), ledger.Draft(e, domain.EventID{})); err != nil {
			t.Fatal(err)
		}
	}
	p := runner.Processes()
	lives, err := projections.Fold(p, p.Init(), ledger.ReadAll(t.Context(), events.Position{}))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := lives.Processes[0].Until, now.Add(time.Minute); !got.Equal(want) {
		t.Errorf("the lease runs out at %s, want %s", got, want)
	}
}
