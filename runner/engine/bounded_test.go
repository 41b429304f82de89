package engine_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/openwork"
	"github.com/settlement-ledger/ledger/runner"
	"github.com/settlement-ledger/ledger/runner/engine"
)

// A countingStore counts the records that its readers read.
type countingStore struct {
	*embedded.Store
	read atomic.Int64
}

func count[T any](c *countingStore, seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range seq {
			c.read.Add(1)
			if !yield(v, err) {
				return
			}
		}
	}
}

func (c *countingStore) Read(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return count(c, c.Store.Read(ctx, s, after))
}

func (c *countingStore) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Entry, error] {
	return count(c, c.Store.ReadAll(ctx, after))
}

func (c *countingStore) Scan(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return count(c, c.Store.Scan(ctx, q))
}

func (c *countingStore) Lend(ctx context.Context, q events.Query) iter.Seq2[events.Entry, error] {
	return count(c, c.Store.Lend(ctx, q))
}

func (c *countingStore) Headers(ctx context.Context, q events.Query) iter.Seq2[events.Header, error] {
	return count(c, c.Store.Headers(ctx, q))
}

// openCounting returns a counting store in memory, and its ledger.
func openCounting(t testing.TB) (*countingStore, *events.Ledger) {
	t.Helper()
	s, err := embedded.Open(t.Context(), "store", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &countingStore{Store: s}
	return c, ledgerOver(c)
}

// settledCalls appends a session of calls that ended, and one more call that is open if
// open is set.
func settledCalls(t testing.TB, l *events.Ledger, calls int, open bool) {
	t.Helper()
	session := l.Mint().Session()
	drafts := []events.Draft{l.Draft(events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}}, domain.EventID{})}
	for i := range calls + 1 {
		turn, message, call := l.Mint().Turn(), l.Mint().Message(), domain.Call{ID: domain.CallID(fmt.Sprint("c", i)), Name: "greet", Input: []byte(`{}`)}
		for _, e := range []events.Event{
			events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Tools: []domain.Offered{}},
			events.ReplyReceived{Turn: turn, Message: message, Calls: []domain.Call{call}},
			events.CallStarted{Turn: turn, Message: message, Call: call.ID, Tool: call.Name},
			events.CallSettled{Turn: turn, Message: message, Call: call.ID, Tool: call.Name, Outcome: domain.Succeeded, Began: true},
		} {
			if i == calls && (!open || e.Kind() == (events.CallSettled{}).Kind()) {
				break
			}
			drafts = append(drafts, l.Draft(e, domain.EventID{}))
		}
	}
	var revision events.Revision
	for len(drafts) > 0 {
		n := min(len(drafts), 1000)
		if _, err := l.Append(t.Context(), events.SessionStream(session), revision, drafts[:n]...); err != nil {
			t.Fatal(err)
		}
		revision, drafts = revision+events.Revision(n), drafts[n:]
	}
}

// die records a process that starts and never stops, with a layer of many registrations.
func die(t testing.TB, l *events.Ledger, registrations int) {
	t.Helper()
	process, layer := l.Mint().Process(), l.Mint().Layer()
	if _, err := l.Append(t.Context(), events.ProcessStream(process), 0, l.Draft(events.ProcessStarted{Process: process, Program: "dead"}, domain.EventID{})); err != nil {
		t.Fatal(err)
	}
	drafts := []events.Draft{l.Draft(events.LayerOpened{Layer: layer, Placement: domain.Application, Process: process}, domain.EventID{})}
	for range registrations {
		drafts = append(drafts, l.Draft(events.ToolsRegistered{Scope: l.Mint().Scope(), Tools: []events.RegisteredTool{}}, domain.EventID{}))
	}
	if _, err := l.Append(t.Context(), events.LayerStream(layer), 0, drafts...); err != nil {
		t.Fatal(err)
	}
}

// A recovery after a kill reads the events after the last checkpoint and the streams of the
// open sessions. A hundred times more history adds no read.
func TestRecoveryReadsNoHistory(t *testing.T) {
	t.Parallel()
	recovered := func(history int) int64 {
		store, l := openCounting(t)
		die(t, l, 10)
		settledCalls(t, l, history, false)
		config := engine.ProcessConfig{Ledger: l, Checkpoints: store.Store}
		if err := start(t, config).Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		die(t, l, 2000)
		for range 3 {
			settledCalls(t, l, 5, true)
		}
		store.read.Store(0)
		p := start(t, config)
		read := store.read.Load()
		if done := p.Recovered(); len(done.Sessions) != 3 || len(done.Layers) != 1 || len(done.Processes) != 1 {
			t.Errorf("with %d calls of history: recovered %+v, want 3 sessions, a layer and a process", history, done)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return read
	}
	few, many := recovered(50), recovered(5000)
	if few != many {
		t.Errorf("a recovery reads %d records after 50 calls, and %d after 5,000", few, many)
	}
	if few > 400 {
		t.Errorf("a recovery reads %d records, want 400 at most", few)
	}
}

// A process that runs saves checkpoints, so that the successor of a killed one reads the
// events of the last seconds.
func TestAProcessSavesCheckpointsWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, l := openCounting(t)
		p := start(t, engine.ProcessConfig{Ledger: l, Checkpoints: store.Store})
		// Too few events for a checkpoint that only readers save.
		settledCalls(t, l, 50, true)
		for range 10 {
			die(t, l, 0)
			if _, err := l.Append(t.Context(), events.SessionStream(l.Mint().Session()), 0, l.Draft(events.ApprovalSaved{Action: "bash", Resource: "*"}, domain.EventID{})); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		store.read.Store(0)
		open, err := projections.Current(t.Context(), openwork.Projection(), l, store.Store)
		if err != nil || len(open.Sessions()) != 1 {
			t.Errorf("open sessions: %v, %v; want one", open.Sessions(), err)
		}
		if _, err := projections.Current(t.Context(), runner.Processes(), l, store.Store); err != nil {
			t.Error(err)
		}
		if _, err := projections.Current(t.Context(), engine.Approvals(), l, store.Store); err != nil {
			t.Error(err)
		}
		if read := store.read.Load(); read > 10 {
			t.Errorf("a successor reads %d records, want 10 at most", read)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkRecovery recovers three open sessions of a killed process, after a checkpoint that
// is followed by little, in logs of 10,000 and of 100,000 settled calls.
func BenchmarkRecovery(b *testing.B) {
	for _, history := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(history, " settled calls"), func(b *testing.B) {
			store, l := openCounting(b)
			settledCalls(b, l, history, false)
			config := engine.ProcessConfig{Ledger: l, Checkpoints: store.Store, Program: "bench"}
			for warm := true; b.Loop(); warm = false {
				b.StopTimer()
				if warm {
					p, err := engine.Start(b.Context(), config)
					if err != nil {
						b.Fatal(err)
					}
					if err := p.Close(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				die(b, l, 100)
				for range 3 {
					settledCalls(b, l, 100, true)
				}
				store.read.Store(0)
				b.StartTimer()
				p, err := engine.Start(b.Context(), config)
				b.StopTimer()
				if err != nil || len(p.Recovered().Sessions) != 3 {
					b.Fatalf("recovered %+v, %v", p.Recovered(), err)
				}
				b.ReportMetric(float64(store.read.Load()), "records")
				if err := p.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
