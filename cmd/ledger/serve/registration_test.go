package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/runner"
)

// A severable is a store that refuses appends while off is set.
type severable struct {
	events.Store
	off atomic.Bool // the store is unreachable
}

// errSevered is the error of an append to a severable store that is off.
var errSevered = errors.New("the store is cut off")

// Append appends to the store, or returns errSevered.
func (s *severable) Append(ctx context.Context, stream events.Stream, after events.Revision, records ...events.Record) error {
	if s.off.Load() {
		return errSevered
	}
	return s.Store.Append(ctx, stream, after, records...)
}

// livesIn returns the processes that have no recorded end: the living ones, whose
// leases run, and the dead or unknown ones.
func livesIn(t *testing.T, ledger *events.Ledger) (living, dead []events.ProcessStarted) {
	t.Helper()
	p := runner.Processes()
	lives, err := projections.Fold(p, p.Init(), ledger.ReadAll(t.Context(), events.Position{}))
	if err != nil {
		t.Fatal(err)
	}
	j := lives.Judge(domain.ProcessID{}, time.Now(), false)
	return j.Living, append(j.Dead, j.Unknown...)
}

// A serving process renews its lease, so it stays recorded as alive. It registers again
// under a new ID after another process has recorded its end, and after the store was
// unreachable for longer than the lease. At its own end it records that end.
func TestWhoServesStaysOnRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &severable{Store: eventstest.NewSlice()}
		ledger := events.NewLedger(store, domain.NewMint(time.Now, rand.Reader), time.Now)
		var noted domain.ProcessID
		p := &processRegistration{ledger: ledger, address: "http://node:1", log: slog.New(slog.DiscardHandler), registered: func(id domain.ProcessID) { noted = id }}
		if err := p.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.renewLease(ctx)
		}()
		wantOne := func(when string) events.ProcessStarted {
			t.Helper()
			synctest.Wait()
			living, dead := livesIn(t, ledger)
			if len(living) != 1 || len(dead) != 0 || living[0].Process != noted || living[0].Address != "http://node:1" || living[0].Program != stores.ServeCommand {
				t.Fatalf("%s: %+v live and %+v are dead, want the one that is noted, %s", when, living, dead, noted)
			}
			return living[0]
		}
		for range 10 {
			time.Sleep(leaseDuration)
			wantOne("while it serves")
		}
		first := wantOne("at first")
		if err := endProcess(t.Context(), ledger, first.Process); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseDuration)
		second := wantOne("after somebody ended it")
		store.off.Store(true)
		time.Sleep(3 * leaseDuration)
		if living, dead := livesIn(t, ledger); len(living) != 0 || len(dead) != 1 {
			t.Errorf("while the store is away %+v live and %+v are dead, want it dead", living, dead)
		}
		store.off.Store(false)
		time.Sleep(2 * maxBackoff)
		third := wantOne("after the store came back")
		if first.Process == second.Process || second.Process == third.Process {
			t.Error("it is under one ID that has ended")
		}
		stop()
		<-ended
		p.recordEnd(t.Context())
		if living, dead := livesIn(t, ledger); len(living)+len(dead) != 0 {
			t.Errorf("after its end %+v live and %+v are dead, want nobody", living, dead)
		}
	})
}

// endProcess records no second end of a process, and no end of a process that never
// started.
func TestAProcessIsEndedOnce(t *testing.T) {
	t.Parallel()
	ledger := events.NewLedger(eventstest.NewSlice(), domain.NewMint(time.Now, rand.Reader), time.Now)
	p := &processRegistration{ledger: ledger, log: slog.New(slog.DiscardHandler), registered: func(domain.ProcessID) {}}
	if err := p.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, id := range []domain.ProcessID{p.process, ledger.Mint().Process()} {
			if err := endProcess(t.Context(), ledger, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	kinds := ""
	for v, err := range ledger.ReadAll(t.Context(), events.Position{}) {
		if err != nil {
			t.Fatal(err)
		}
		kinds += v.Event.Kind() + " "
	}
	if kinds != "ProcessStarted ProcessStopped " {
		t.Errorf("the log holds %s, want a start and an end", kinds)
	}
}
