package transcripts_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/settlement-ledger/ledger/events/transcripts"
)

// A file that ends within a record is read up to that record. A second import adds no
// event.
func ExampleReadClaudeCode() {
	file := `{"type":"user","uuid":"1","sessionId":"s","timestamp":"2026-03-01T10:00:00Z","message":{"content":"list the beds"}}
{"type":"assistant","uuid":"2","sessionId":"s","timestamp":"2026-03-01T10:00:02Z","message":{"id":"m","content":[{"type":"tool_use","id":"c","name":"Bash","input":{"command":"ls"}}]}}
{"type":"user","uuid":"3","sessionId":"s","timestamp":"2026-03-01T10:00:03Z","message":{"content":[{"type":"tool_result","tool_use_id":"c","content":"beans"}]}}
{"type":"assis`
	transcript, err := transcripts.ReadClaudeCode("garden.jsonl", strings.NewReader(file))
	if err != nil {
		fmt.Println(err)
		return
	}
	ledger := newLedger()
	first, err := transcript.Import(context.Background(), ledger)
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := transcript.Import(context.Background(), ledger)
	fmt.Println(first, again, err)
	r := transcript.Report
	fmt.Println(r.Calls, r.Results, r.Open, r.RefusedLines)
	// Output:
	// 8 0 <nil>
	// 1 1 0 [{4 torn: the file ends within this record: unexpected end of JSON input}]
}
