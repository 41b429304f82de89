package tables

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/cmd/ledger/resumable"
	"github.com/settlement-ledger/ledger/cmd/ledger/storefile"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/index"
)

// benchCalls is the number of calls of the store of BenchmarkExport, four events each.
const benchCalls = 50_000

// newBenchStore returns a store on disk with sessions of 100 calls, whose inputs and results are
// longer than the index holds.
func newBenchStore(b *testing.B, dir string) *stores.Store {
	b.Helper()
	log, err := embedded.Open(b.Context(), dir, embedded.Config{})
	noError(b, err)
	b.Cleanup(func() { noError(b, log.Close()) })
	l := events.NewLedger(log, domain.NewMint(time.Now, rand.Reader), time.Now)
	input, result := `{"text":"`+strings.Repeat("input ", 60)+`"}`, strings.Repeat("result\n", 150)
	for range benchCalls / 100 {
		stream := events.SessionStream(l.Mint().Session())
		drafts := []events.Draft{l.Draft(events.SessionOpened{Agent: "build"}, domain.EventID{})}
		for n := range 100 {
			turn, message, call := l.Mint().Turn(), l.Mint().Message(), domain.CallID(fmt.Sprint("call_", n))
			for _, e := range []events.Event{
				events.TurnMaterialized{Turn: turn, Message: message, Agent: "build"},
				events.ReplyReceived{Turn: turn, Message: message, Calls: []domain.Call{{ID: call, Name: "read", Input: []byte(input)}}},
				events.CallStarted{Turn: turn, Message: message, Call: call, Tool: "read"},
				events.CallSettled{Turn: turn, Message: message, Call: call, Tool: "read", Outcome: domain.Succeeded, Began: true, RanMS: int64(n), Content: domain.Contents{domain.Text(result)}},
			} {
				drafts = append(drafts, l.Draft(e, domain.EventID{}))
			}
		}
		_, err := l.Append(b.Context(), stream, 0, drafts...)
		noError(b, err)
	}
	return &stores.Store{Name: dir, Log: log, Ledger: l}
}

// BenchmarkExport compares the exports of a store with a bare scan of its log, which reads each
// record and decodes none, and with one that decodes them.
func BenchmarkExport(b *testing.B) {
	dir := b.TempDir()
	s := newBenchStore(b, filepath.Join(dir, "store"))
	x := index.New(filepath.Join(dir, "index"))
	noError(b, x.CatchUp(b.Context(), s.Ledger, nil))
	r, err := x.Snapshot(b.Context())
	noError(b, err)
	b.Cleanup(func() { noError(b, r.Close()) })
	measure := func(name string, do func() error) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				noError(b, do())
			}
			b.ReportMetric(float64(benchCalls)*float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
	measure("scan", func() error {
		for _, err := range s.Log.Lend(b.Context(), events.Query{}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	measure("decode", func() error {
		for _, err := range s.Ledger.ScanAhead(b.Context(), events.Query{}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	n := 0
	for _, format := range Formats {
		for _, noText := range []bool{false, true} {
			measure(fmt.Sprintf("calls.%s/no-text=%t", format, noText), func() error {
				n++
				c, _ := newConfig(filepath.Join(dir, fmt.Sprint(n, ".", format)))
				c.NoText = noText
				return Export(b.Context(), c, s, r, "calls", Filter{})
			})
		}
	}
	for _, name := range []string{"store.jsonl", "store.jsonl.zst"} {
		measure(name, func() error {
			n++
			c, _ := newConfig("")
			return storefile.Export(b.Context(), c.Printer, s, filepath.Join(dir, fmt.Sprint(n, ".", name)), resumable.Options{})
		})
	}
}
