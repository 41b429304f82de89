package sessionexport

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/redaction"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// BenchmarkWrite writes a session of 500 calls in each format, beside a bare read of its
// events.
func BenchmarkWrite(b *testing.B) {
	l := projectionstest.NewLog(1)
	id := l.Mint.Session()
	s := events.SessionStream(id)
	l.Add(s, events.SessionOpened{Session: id, Agent: "build", Location: "/home/ada/w", Origin: events.Origin{Kind: events.RunHere}})
	for i := range 500 {
		m, turn, call := l.Mint.Message(), l.Mint.Turn(), domain.CallID(fmt.Sprint("call_", i))
		l.Add(s, events.TurnMaterialized{Turn: turn, Message: m, Agent: "build"})
		l.Add(s, events.ReplyReceived{Turn: turn, Message: m, Text: "Next.", Calls: []domain.Call{{ID: call, Name: "bash", Input: json.RawMessage(`{"command":"make test"}`)}}})
		l.Add(s, events.CallSettled{Turn: turn, Message: m, Call: call, Tool: "bash", Outcome: domain.Succeeded, Began: true, Content: domain.Contents{domain.Text(strings.Repeat("ok  \texample.org/w\t0.01s\n", 120))}})
	}
	from, sessions := source(b, l.Envelopes())
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			for _, err := range from.Ledger.Read(b.Context(), s, 0) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	for _, f := range Formats {
		for name, redactor := range map[string]func() *redaction.Redactor{"raw": func() *redaction.Redactor { return nil }, "redacted": redaction.New} {
			b.Run(f+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if err := Write(b.Context(), io.Discard, from, sessions[0], Options{Format: Format(f), Redactor: redactor()}, nil); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
