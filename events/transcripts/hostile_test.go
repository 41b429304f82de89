package transcripts_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/eventstest"
	"github.com/settlement-ledger/ledger/events/transcripts"
)

// Files that were made to overload a reader, with deep values, long names, rings and
// too many calls, are imported within the limits of a record.
func TestHostileFilesAreReadOrRefusedByTheLine(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	long := strings.Repeat("n", repeats(1<<16, 1<<18))
	var alike, ids strings.Builder
	for n := range 1500 {
		fmt.Fprintf(&alike, `{"type":"assistant","sessionId":"s","message":{"id":"m%d","content":[{"type":"tool_use","id":"c","name":"Bash%d"}]}}`+"\n", n, n)
	}
	for range 1500 {
		alike.WriteString(`{"type":"user","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c"}]}}` + "\n")
	}
	ids.WriteString(`{"type":"assistant","sessionId":"s","message":{"id":"m","content":[`)
	for n := range repeats(1_500, 4_000) {
		fmt.Fprintf(&ids, `{"type":"tool_use","id":"c%d","name":"T%d"},`, n, n)
	}
	ids.WriteString(`{}]}}`)
	for name, data := range map[string]string{
		"deep values":        said + "\n" + `{"type":"user","message":{"content":` + deep + `}}` + "\n" + asked,
		"deep inputs":        strings.Replace(asked, `"input":{}`, `"input":`+strings.Repeat("[", 3000)+strings.Repeat("]", 3000), 1),
		"a deep error":       said + "\n" + `{"type":"system","subtype":"api_error","error":` + strings.Repeat(`{"error":`, 9000) + `{"x":"` + strings.Repeat("x", repeats(1<<17, 1<<20)) + `"}` + strings.Repeat("}", 9001),
		"huge numbers":       said + "\n" + `{"type":"assistant","uuid":1e999,"message":{"id":-0,"usage":{"input_tokens":99999999999999999999,"output_tokens":9223372036854775807},"content":[{"type":"tool_use","id":1e400,"name":"Bash","input":1e99999}]}}`,
		"huge counts":        said + "\n" + `{"type":"system","subtype":"compact_boundary","compactMetadata":{"preTokens":1e30,"postTokens":-5}}`,
		"long names":         fmt.Sprintf(`{"type":"assistant","sessionId":%q,"uuid":%[1]q,"cwd":%[1]q,"version":%[1]q,"gitBranch":%[1]q,"isSidechain":true,"agentId":%[1]q,"message":{"id":%[1]q,"model":%[1]q,"stop_reason":%[1]q,"content":[{"type":"tool_use","id":"c","name":%[1]q},{"type":%[1]q}]}}`, long),
		"a long call ID":     said + "\n" + fmt.Sprintf(`{"type":"assistant","message":{"content":[{"type":"tool_use","id":%q,"name":"x"},{"type":"tool_result","tool_use_id":%[1]q}]}}`, long),
		"out of order":       reversed(string(fixture(t, "garden.jsonl"))),
		"progress in itself": `{"type":"progress","sessionId":"s","parentToolUseID":"c","data":{"type":"agent_progress","agentId":"a","message":{"type":"progress","data":{"type":"agent_progress","message":{"type":"user","message":"x"}}}}}` + "\n" + said,
		"progress of none":   said + "\n" + strings.Repeat(`{"type":"progress","data":{"type":"agent_progress","message":null}}`+"\n"+`{"type":"progress","data":[1]}`+"\n", 3),
		"one uuid for all":   strings.ReplaceAll(progressOf("a"), `"uuid":"i`, `"uuid":"u","was":"`) + asks + spawns,
		"parents in a ring":  `{"type":"user","uuid":"x","parentUuid":"y","isSidechain":true,"sessionId":"s","message":{"content":"1"}}` + "\n" + `{"type":"user","uuid":"y","parentUuid":"x","isSidechain":true,"sessionId":"s","message":{"content":"2"}}` + "\n" + `{"type":"user","uuid":"z","parentUuid":"z","isSidechain":true,"sessionId":"s","message":{"content":"3"}}`,
		"slashes in names":   `{"type":"user","uuid":"x","isSidechain":true,"agentId":"a/b","sessionId":"s/t","message":{"content":"1"}}` + "\n" + `{"type":"user","uuid":"y","isSidechain":true,"agentId":"b","sessionId":"s/t/a","message":{"content":"2"}}`,
		"one ID for all":     alike.String(),
		"too many calls":     ids.String(),
		"control characters": asked + "\n" + `{"type":"user","uuid":"3","sessionId":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c","is_error":true,"content":"the user said:` + strings.Repeat(`\u0001`, 1<<18) + `"}]}}`,
		"not UTF-8":          "\xff\xfe\n" + said + "\n{\"type\":\"\xff\",\"sessionId\":\"\xff\"}\n" + asked,
		"a mark and CRLF":    "\uFEFF" + strings.ReplaceAll(asks+spawns+ends, "\n", "\r\n") + `{"type":"us`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, err := transcripts.ReadClaudeCode("x", strings.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			l := newLedger()
			if _, err := read.Import(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			wantCounts(t, factsOf(t, l), read.Report)
			for e, err := range l.Entries(t.Context(), events.Position{}) {
				if err != nil {
					t.Fatal(err)
				}
				if len(e.Data)+len(e.Metadata) > 15<<20 {
					t.Errorf("%s has %d bytes", e.Kind, len(e.Data))
				}
			}
			if added := importAll(t, l, []byte(data)); added != 0 {
				t.Errorf("importing again adds %d events, want 0", added)
			}
		})
	}
}

// reversed returns the lines of data in reverse order.
func reversed(data string) string {
	rows := strings.Split(strings.TrimSpace(data), "\n")
	slices.Reverse(rows)
	return strings.Join(rows, "\n")
}

// An import of three files that is killed at any append is completed by importing the
// files again.
func TestAnImportThatIsKilledAtAnyAppendGoesOn(t *testing.T) {
	t.Parallel()
	files := [][]byte{[]byte(fileOf("a1")), []byte(asks + spawns + progressOf("a1") + ends), fixture(t, "garden.jsonl")}
	whole := newLedger()
	for _, data := range files {
		importAll(t, whole, data)
	}
	want := factsOf(t, whole)
	for cut := 0; ; cut += repeats(3, 1) {
		store := &cutStore{eventstest.NewSlice(), cut}
		l := events.NewLedger(store, newLedger().Mint(), time.Now)
		killed := false
		for _, data := range files {
			if _, err := readFile(t, data).Import(t.Context(), l); errors.Is(err, errCut) {
				killed = true
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		store.left = 1000
		for _, data := range files {
			importAll(t, l, data)
		}
		sameFacts(t, fmt.Sprintf("killed at append %d", cut), want, factsOf(t, l))
		for _, data := range files {
			if added := importAll(t, l, bytes.Clone(data)); added != 0 {
				t.Errorf("importing again after a kill at append %d adds %d events, want 0", cut, added)
			}
		}
		if !killed {
			break
		}
	}
}
