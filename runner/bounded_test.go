package runner_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A working provider asks for one call in each reply, and for a summary when its window is
// full. It calls step before each reply, and ends after a number of calls. It does not read
// the messages.
type working struct {
	calls, made int
	window      int64
	step        func(call int)
}

func (w *working) ContextLimit(string) (window, output int64) { return w.window, w.window / 4 }

func (w *working) NextModel(*conversation.State, string) (provider, model string) {
	return "working", "m-1"
}

func (w *working) Reply(_ context.Context, turn runner.Turn) iter.Seq2[runner.Part, error] {
	return func(yield func(runner.Part, error) bool) {
		if turn.Summary {
			yield(runner.TextPart("summary"), nil)
			return
		}
		w.step(w.made)
		if w.made == w.calls {
			yield(runner.TextPart("done"), nil)
			return
		}
		w.made++
		yield(ask(fmt.Sprint("c", w.made), "echo", fmt.Sprintf(`{"text":"%d"}`, w.made)), nil)
	}
}

// A readingStore counts the entries that its readers read.
type readingStore struct {
	events.Store
	read atomic.Int64
}

func (r *readingStore) Read(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Entry, error] {
	return func(yield func(events.Entry, error) bool) {
		for e, err := range r.Store.Read(ctx, s, after) {
			r.read.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

// longSession returns a program over the store in a folder, with a provider, after it ran a
// session.
func longSession(t testing.TB, fs vfs.FS, dir string, model *working) (*program, *readingStore, domain.SessionID) {
	t.Helper()
	s, err := embedded.Open(t.Context(), dir, embedded.Config{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	store := &readingStore{Store: s}
	same := must(domain.Spec[text, string]{Execute: func(_ context.Context, in text, _ domain.Invocation) (string, error) { return in.Text, nil }})
	p, err := boot(t, store, noOutputs{}, registry.Tools{"echo": same}, runner.Config{Provider: model})
	if err != nil {
		t.Fatal(err)
	}
	session := p.open("go")
	p.run(session)
	return p, store, session
}

// A step late in a session allocates no more objects than an early one, with a window and
// without one. If requests leave out nothing, a prompt after it reads only new events;
// otherwise few messages stay in memory.
func TestTheStepsOfALongSessionCostTheSame(t *testing.T) {
	for name, window := range map[string]int64{"compacted": 20_000, "whole": 0} {
		t.Run(name, func(t *testing.T) {
			calls := 2000
			if os.Getenv("LEDGER_TEST_LONG") != "" {
				calls = 20_000
			}
			allocated := map[int]uint64{}
			model := &working{calls: calls, window: window, step: func(call int) {
				if call%500 == 0 {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					allocated[call] = m.Mallocs
				}
			}}
			p, store, session := longSession(t, vfs.NewMem(), "store", model)
			early, late := allocated[1000]-allocated[500], allocated[calls]-allocated[calls-500]
			if late > early*13/10 {
				t.Errorf("500 steps allocate %d objects early and %d late, want at most 1.3 times as many", early, late)
			}
			store.read.Store(0)
			model.calls += 3
			model.step = func(int) {
				p.runner.Look(session, func(s *conversation.State) {
					if window > 0 && len(s.Messages) > 1000 {
						t.Errorf("the runner holds %d messages", len(s.Messages))
					}
				})
			}
			p.admit(session, "again")
			p.run(session)
			if read := store.read.Load(); window == 0 && read > 100 {
				t.Errorf("a prompt and three calls read %d events, want 100 at most", read)
			}
		})
	}
}

// BenchmarkLongSession runs a session of 100,000 calls whose requests are compacted, and
// reports the time, the allocated bytes and the live heap at its end, as ratios to those
// after 1,000 calls. With TMPDIR on a file system in memory it does not wait for the disk.
func BenchmarkLongSession(b *testing.B) {
	const calls, part = 100_000, 1000
	type sample struct {
		at          time.Time
		total, live uint64
	}
	for b.Loop() {
		taken := map[int]sample{}
		model := &working{calls: calls, window: 20_000, step: func(call int) {
			if call == part || call == 2*part || call == calls-part || call == calls {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				taken[call] = sample{at: time.Now(), total: m.TotalAlloc, live: m.HeapAlloc}
			}
		}}
		longSession(b, nil, b.TempDir(), model)
		early, late := taken[2*part].at.Sub(taken[part].at), taken[calls].at.Sub(taken[calls-part].at)
		b.ReportMetric(float64(early.Microseconds())/part, "us/step-early")
		b.ReportMetric(float64(late.Microseconds())/part, "us/step-late")
		b.ReportMetric(float64(late)/float64(early), "time-ratio")
		b.ReportMetric(float64(taken[calls].total-taken[calls-part].total)/float64(taken[2*part].total-taken[part].total), "bytes-ratio")
		b.ReportMetric(float64(taken[2*part].live)/(1<<20), "MiB-early")
		b.ReportMetric(float64(taken[calls].live)/(1<<20), "MiB-late")
	}
}
