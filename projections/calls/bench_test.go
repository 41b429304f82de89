package calls_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections"
	"github.com/settlement-ledger/ledger/projections/calls"
)

// benchSize is the number of events that the benchmarks fold, unless
// LEDGER_BENCH_EVENTS sets another.
const benchSize = 200_000

// A bench is a ledger of a long history in memory, with the payloads of its events
// and their total size.
type bench struct {
	store    *embedded.Store
	ledger   *events.Ledger
	payloads []payload
	bytes    int
}

// A payload is the data of one record.
type payload struct {
	kind string
	data []byte
}

// newBench appends sessions of a usual shape: six tools offered to each turn, two
// calls in each reply, of which one in nine fails, with some lines of text each.
func newBench(b *testing.B) *bench {
	b.Helper()
	size := benchSize
	if n, err := strconv.Atoi(os.Getenv("LEDGER_BENCH_EVENTS")); err == nil {
		size = n
	}
	store, err := embedded.Open(b.Context(), "bench", embedded.Config{FS: vfs.NewMem()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	w := &writer{b: b, bench: &bench{store: store, ledger: events.NewLedger(store, domain.NewMint(time.Now, domainEntropy{}), time.Now)}}
	w.tools()
	for session := 0; len(w.payloads) < size; session++ {
		w.session(session)
	}
	return w.bench
}

// domainEntropy is constant randomness. The IDs of the benchmarks differ by their
// time.
type domainEntropy struct{}

func (domainEntropy) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(i * 37)
	}
	return len(p), nil
}

// A writer appends a history to the ledger of a bench, one stream after another.
type writer struct {
	*bench
	b       *testing.B
	offered []domain.Offered
	process domain.ProcessID
	stream  events.Stream
	length  events.Revision
	drafts  []events.Draft
}

// add drafts an event of the current stream.
func (w *writer) add(e events.Event) events.Draft {
	d := w.ledger.Draft(e, domain.EventID{})
	w.drafts = append(w.drafts, d)
	return d
}

// flush appends the drafted events and adds their payloads to the bench.
func (w *writer) flush() {
	for _, d := range w.drafts {
		r, err := events.Encode(d)
		if err != nil {
			w.b.Fatal(err)
		}
		w.payloads = append(w.payloads, payload{r.Kind, r.Data})
		w.bytes += len(r.Data)
	}
	if _, err := w.ledger.Append(context.Background(), w.stream, w.length, w.drafts...); err != nil {
		w.b.Fatal(err)
	}
	w.length += events.Revision(len(w.drafts))
	w.drafts = w.drafts[:0]
}

// tools appends an application layer with six tools.
func (w *writer) tools() {
	mint := w.ledger.Mint()
	layer := mint.Layer()
	w.process, w.stream = mint.Process(), events.LayerStream(layer)
	w.add(events.LayerOpened{Layer: layer, Placement: domain.Application, Process: w.process})
	var registered []events.RegisteredTool
	for i, name := range []domain.Name{"bash", "edit", "glob", "grep", "read", "write"} {
		fingerprint := domain.Fingerprint{byte(i + 1)}
		registered = append(registered, events.RegisteredTool{Name: name, Fingerprint: fingerprint})
		w.offered = append(w.offered, domain.Offered{Name: name, Layer: layer, Fingerprint: fingerprint})
	}
	registration := domain.RegistrationOf(w.add(events.ToolsRegistered{Scope: mint.Scope(), Tools: registered}).ID)
	for i := range w.offered {
		w.offered[i].Registration = registration
	}
	w.flush()
}

// session appends session number n, with twelve turns.
func (w *writer) session(n int) {
	mint := w.ledger.Mint()
	id := mint.Session()
	w.stream, w.length = events.SessionStream(id), 0
	w.add(events.SessionOpened{
		Session: id, Agent: "build", Location: "/home/u/project", Model: "a-model", Origin: events.Origin{Kind: events.RunHere},
	})
	w.add(events.PromptAdmitted{Message: mint.Message(), Text: "Mend the test that fails, and say what was wrong."})
	for turn := range 12 {
		w.turn(n, turn)
	}
	w.flush()
}

// turn drafts one turn of a session with its reply and two settled calls.
func (w *writer) turn(n, at int) {
	mint := w.ledger.Mint()
	turn, message := mint.Turn(), mint.Message()
	w.add(events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Model: "a-model", Tools: w.offered})
	var asked []domain.Call
	for i := range 2 {
		id := domain.CallID(fmt.Sprintf("toolu_%010d%04d%02d", n, at, i))
		input := fmt.Sprintf(`{"path":"internal/part%d/file_%d.go","offset":%d}`, n%7, at, i)
		asked = append(asked, domain.Call{ID: id, Name: string(w.offered[(at+i)%len(w.offered)].Name), Input: json.RawMessage(input)})
	}
	w.add(events.ReplyReceived{
		Turn: turn, Message: message, Text: "I look at the file first.\nThen I mend it.", Calls: asked, Model: "a-model-1",
		Tokens: events.Tokens{Input: int64(900 + at), Output: 120}, Finish: "tool_use",
	})
	for i, call := range asked {
		offered := w.offered[(at+i)%len(w.offered)]
		w.add(events.CallStarted{
			Turn: turn, Message: message, Call: call.ID, Tool: call.Name, Offered: offered, Effective: offered, Process: w.process,
		})
		end := domain.Settlement{Outcome: domain.Succeeded, Began: true, Offered: offered, Effective: offered}
		end.Content = domain.Contents{domain.Text(fmt.Sprintf("package part%d\n\nfunc TestPart%d(t *testing.T) {\n\tt.Parallel()\n}\n", n%7, at))}
		if (n+at+i)%9 == 0 {
			end.Outcome, end.Content, end.Text = domain.Failed, nil, "no such file"
		}
		w.add(events.Settled(turn, message, call, end))
	}
}

// floor returns the time that encoding/json takes to decode the payloads on one
// goroutine, with which the benchmarks compare a fold.
func (w *bench) floor(b *testing.B) time.Duration {
	began := time.Now()
	for _, p := range w.payloads {
		var err error
		switch p.kind {
		case "SessionOpened":
			err = json.Unmarshal(p.data, &events.SessionOpened{})
		case "PromptAdmitted":
			err = json.Unmarshal(p.data, &events.PromptAdmitted{})
		case "TurnMaterialized":
			err = json.Unmarshal(p.data, &events.TurnMaterialized{})
		case "ReplyReceived":
			err = json.Unmarshal(p.data, &events.ReplyReceived{})
		case "CallStarted":
			err = json.Unmarshal(p.data, &events.CallStarted{})
		case "CallSettled":
			err = json.Unmarshal(p.data, &events.CallSettled{})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

// rebuild returns the time in which a view folds the history on a number of
// processors.
func (w *bench) rebuild(b *testing.B, processors int) time.Duration {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	runtime.GC()
	view := projections.NewView(calls.Projection(), w.ledger, nil)
	began := time.Now()
	if err := view.Rebuild(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	view.Read(func(s *calls.State) {
		if broken := s.Exceptions(); len(broken) > 0 {
			b.Fatal("the history breaks a law: ", broken[0])
		}
	})
	return took
}

// BenchmarkRebuild reports the speed of a rebuild, on one processor and on all, as
// multiples of the speed at which encoding/json decodes the payloads on one. The
// figures are medians of interleaved rounds.
func BenchmarkRebuild(b *testing.B) {
	w := newBench(b)
	var one, all, floor []float64
	for b.Loop() {
		was := runtime.GOMAXPROCS(1)
		base := w.floor(b).Seconds()
		runtime.GOMAXPROCS(was)
		floor = append(floor, base)
		one = append(one, base/w.rebuild(b, 1).Seconds())
		all = append(all, base/w.rebuild(b, runtime.NumCPU()).Seconds())
	}
	n := float64(len(w.payloads))
	b.ReportMetric(median(one), "one-core/floor")
	b.ReportMetric(median(all), "all-cores/floor")
	b.ReportMetric(median(floor)/n*1e9, "floor-ns/event")
	b.ReportMetric(float64(w.bytes)/n, "bytes/event")
}

// median sorts all and returns the middle value.
func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkCheckpoint reports the size of a checkpoint of the history in bytes for
// each call, and the time to encode it as a fraction of the time to fold the history.
func BenchmarkCheckpoint(b *testing.B) {
	w := newBench(b)
	p := calls.Projection()
	began := time.Now()
	state, err := projections.Fold(p, p.Init(), w.ledger.Scan(b.Context(), events.Query{}))
	if err != nil {
		b.Fatal(err)
	}
	folding, size := time.Since(began), 0
	began = time.Now()
	for b.Loop() {
		data, err := projections.Pack(state)
		if err != nil {
			b.Fatal(err)
		}
		size = len(data)
	}
	packing := time.Since(began).Seconds() / float64(b.N)
	b.ReportMetric(float64(size)/float64(len(state.Calls())), "bytes/call")
	b.ReportMetric(packing/folding.Seconds(), "pack/fold")
}
