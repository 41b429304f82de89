package index

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
)

// benchSize is the number of events of a benchmark, unless LEDGER_BENCH_EVENTS sets
// another.
const benchSize = 200_000

// benchLedger returns a ledger in memory with sessions of a usual shape: twelve turns,
// with two calls each, whose results have some lines of text.
func benchLedger(b *testing.B) *events.Ledger {
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
	l := events.NewLedger(store, domain.NewMint(time.Now, zeros{}), time.Now)
	mint, layer := l.Mint(), l.Mint().Layer()
	var drafts []events.Draft
	add := func(e events.Event) events.Draft {
		drafts = append(drafts, l.Draft(e, domain.EventID{}))
		return drafts[len(drafts)-1]
	}
	flush := func(s events.Stream) int {
		if _, err := l.Append(b.Context(), s, 0, drafts...); err != nil {
			b.Fatal(err)
		}
		n := len(drafts)
		drafts = drafts[:0]
		return n
	}
	process := mint.Process()
	add(events.LayerOpened{Layer: layer, Placement: domain.Application, Process: process})
	var tools []events.RegisteredTool
	for _, name := range []domain.Name{"bash", "edit", "glob", "grep", "read", "write"} {
		tools = append(tools, events.RegisteredTool{Name: name, Fingerprint: domain.Fingerprint{1}})
	}
	registered := add(events.ToolsRegistered{Scope: mint.Scope(), Tools: tools})
	var offer []domain.Offered
	for _, tool := range tools {
		offer = append(offer, domain.Offered{Name: tool.Name, Registration: domain.RegistrationOf(registered.ID), Layer: layer, Fingerprint: tool.Fingerprint})
	}
	for done := flush(events.LayerStream(layer)); done < size; {
		session := mint.Session()
		add(events.SessionOpened{Session: session, Agent: "build", Location: "/home/u/project", Model: "m", Origin: events.Origin{Kind: events.RunHere}})
		add(events.PromptAdmitted{Message: mint.Message(), Text: "Repair the test that fails, and explain the cause."})
		for range 12 {
			turn, message := mint.Turn(), mint.Message()
			add(events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Model: "m", Tools: offer})
			var asked []domain.Call
			for i := range 2 {
				asked = append(asked, domain.Call{ID: domain.CallID(fmt.Sprintf("call_%d", i)), Name: "read", Input: []byte(fmt.Sprintf(`{"path":"/home/u/project/file%d.go","limit":200}`, done+i))})
			}
			add(events.ReplyReceived{Turn: turn, Message: message, Text: "I read both files first.", Calls: asked, Tokens: events.Tokens{Input: 1200, Output: 80}})
			for i, c := range asked {
				add(events.CallStarted{Turn: turn, Message: message, Call: c.ID, Tool: c.Name, Offered: offer[4], Effective: offer[4], Process: process})
				outcome := domain.Succeeded
				if (done+i)%9 == 0 {
					outcome = domain.Failed
				}
				text := strings.Repeat(fmt.Sprintf("line %d of the file: func Example() error\n", done), 6)
				add(events.CallSettled{Turn: turn, Message: message, Call: c.ID, Tool: c.Name, Outcome: outcome, Began: true, Text: text, Content: domain.Contents{domain.Text(text)}, Offered: offer[4], Effective: offer[4], Agrees: true, RanMS: 12})
			}
		}
		done += flush(events.SessionStream(session))
	}
	return l
}

// BenchmarkFill measures a first fill with and without full text, beside a decode of the
// whole log in the same round. The processor time is that of the whole process.
func BenchmarkFill(b *testing.B) {
	l := benchLedger(b)
	for name, texts := range map[string]bool{"text": true, "notext": false} {
		b.Run(name, func(b *testing.B) {
			var filled, decoded, busy time.Duration
			var size, n int64
			for b.Loop() {
				x := New(b.TempDir())
				before, began := processorTime(b), time.Now()
				if err := x.rebuild(b.Context(), l, nil, texts); err != nil {
					b.Fatal(err)
				}
				filled, busy = filled+time.Since(began), busy+processorTime(b)-before
				s, err := x.Status(b.Context(), l)
				if err != nil {
					b.Fatal(err)
				}
				size, n = s.Bytes, s.Events
				began = time.Now()
				for _, err := range l.ScanAhead(b.Context(), events.Query{}) {
					if err != nil {
						b.Fatal(err)
					}
				}
				decoded += time.Since(began)
			}
			events := float64(n) * float64(b.N)
			b.ReportMetric(float64(filled)/float64(decoded), "×decode")
			b.ReportMetric(events/filled.Seconds(), "events/s")
			b.ReportMetric(events/busy.Seconds(), "events/cpu-s")
			b.ReportMetric(float64(size)/float64(n), "B/event")
		})
	}
}

// processorTime returns the processor time that the process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
