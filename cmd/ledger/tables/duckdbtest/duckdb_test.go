package duckdbtest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	_ "github.com/duckdb/duckdb-go/v2"

	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
	"github.com/settlement-ledger/ledger/cmd/ledger/tables"
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/events/embedded"
	"github.com/settlement-ledger/ledger/projections/calls"
	"github.com/settlement-ledger/ledger/projections/index"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// noError ends the test at an error.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// replies is the number of replies of the history, each with callsPerReply calls: more calls
// than a row group of Parquet has rows.
const (
	replies       = 7_000
	callsPerReply = 10
)

// tools are the tools of the history.
var tools = []string{"read", "write", "bash", "rare"}

// history returns calls of different tools, outcomes and durations, some of them open.
func history() []events.Envelope {
	l := projectionstest.NewLog(1)
	layer := l.Mint.Layer()
	l.Add(events.LayerStream(layer), events.LayerOpened{Layer: layer, Placement: domain.Location, Location: "/work"})
	l.Add(events.LayerStream(layer), events.ToolsRegistered{Scope: l.Mint.Scope(), Tools: []events.RegisteredTool{projectionstest.Tool("read", "reads"), projectionstest.Tool("bash", "runs")}})
	stream := events.SessionStream(l.Mint.Session())
	l.Add(stream, events.SessionOpened{Agent: "build"})
	for range replies {
		turn, message := l.Mint.Turn(), l.Mint.Message()
		l.Add(stream, events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Tools: []domain.Offered{{Name: "read"}, {Name: "bash"}}})
		reply := events.ReplyReceived{Turn: turn, Message: message}
		for n := range callsPerReply {
			tool := tools[l.Rand.IntN(3)]
			if l.Rand.IntN(5000) == 0 {
				tool = "rare"
			}
			reply.Calls = append(reply.Calls, domain.Call{ID: domain.CallID(fmt.Sprint("call_", n)), Name: tool, Input: fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, n, strings.Repeat("ü", l.Rand.IntN(200)))})
		}
		l.Add(stream, reply)
		for _, c := range reply.Calls {
			if l.Rand.IntN(50) == 0 {
				continue // it stays open
			}
			settled := events.CallSettled{Turn: turn, Message: message, Call: c.ID, Tool: c.Name, Outcome: domain.Succeeded, Began: true, RanMS: 1 + int64(l.Rand.ExpFloat64()*1000), Content: domain.Contents{domain.Text("=" + strings.Repeat("x\n", l.Rand.IntN(300)))}}
			if l.Rand.IntN(10) == 0 {
				settled.Outcome, settled.Began, settled.RanMS, settled.Content, settled.Text = domain.Stale, false, 0, nil, "Stale tool call: "+c.Name
			}
			l.Add(stream, settled)
		}
	}
	return l.Envelopes()
}

// newStore returns a store in memory with a history, appended in runs of one stream.
func newStore(t *testing.T, history []events.Envelope) *stores.Store {
	t.Helper()
	log, err := embedded.Open(t.Context(), "store", embedded.Config{FS: vfs.NewMem()})
	noError(t, err)
	t.Cleanup(func() { noError(t, log.Close()) })
	var run []events.Record
	for i, v := range history {
		r, err := events.Encode(events.Draft{ID: v.ID, Time: v.Time, Correlation: v.Correlation, Causation: v.Causation, Event: v.Event})
		noError(t, err)
		if run = append(run, r); i+1 == len(history) || history[i+1].Stream != v.Stream || len(run) == 1000 {
			noError(t, log.Append(t.Context(), v.Stream, v.Revision-events.Revision(len(run)), run...))
			run = nil
		}
	}
	return &stores.Store{Name: "store", Log: log, Ledger: events.NewLedger(log, domain.NewMint(time.Now, rand.Reader), time.Now)}
}

// A summary has what the test computes of the calls of one tool.
type summary struct {
	calls, ran, sum, p50, p95, p99, text, input int64
	settled                                     string
}

// summaries computes the summaries by a fold of the history. A percentile is the one by
// nearest rank.
func summaries(history []events.Envelope) map[string]summary {
	p := calls.Projection()
	state := p.Init()
	text, input := map[string]int64{}, map[string]int64{}
	for _, v := range history {
		state = p.Apply(state, v)
		switch e := v.Event.(type) {
		case events.CallSettled:
			text[e.Tool] += int64(len(calls.Shown(e)))
		case events.ReplyReceived:
			for _, c := range e.Calls {
				input[c.Name] += int64(len(c.Input))
			}
		}
	}
	all, durations := map[string]summary{}, map[string][]int64{}
	for _, c := range state.Calls() {
		s := all[c.Tool]
		s.calls++
		if c.State == calls.Settled {
			s.settled = max(s.settled, c.Settled.UTC().Format("2006-01-02 15:04:05.000000"))
		}
		if c.State == calls.Settled && c.Settlement.Began {
			s.ran++
			s.sum += c.Settlement.RanMS
			durations[c.Tool] = append(durations[c.Tool], c.Settlement.RanMS)
		}
		all[c.Tool] = s
	}
	for tool, s := range all {
		sorted := slices.Sorted(slices.Values(durations[tool]))
		rank := func(percent int) int64 { return sorted[(len(sorted)*percent+99)/100-1] }
		s.p50, s.p95, s.p99, s.text, s.input = rank(50), rank(95), rank(99), text[tool], input[tool]
		all[tool] = s
	}
	return all
}

// DuckDB reads the exported tables: counts, sums, percentiles and texts are those of a fold of
// the log, in each format.
func TestDuckDBReadsTheExport(t *testing.T) {
	history := history()
	s := newStore(t, history)
	r, err := index.InMemory(t.Context(), s.Ledger, nil)
	noError(t, err)
	defer r.Close()
	dir := t.TempDir()
	export := func(table, format string) string {
		path := filepath.Join(dir, table+"."+format)
		p := &render.Printer{Out: bufio.NewWriter(io.Discard), Err: io.Discard, Env: func(string) (string, bool) { return "", false }, Now: time.Now}
		noError(t, tables.Export(t.Context(), tables.Config{Printer: p, To: path}, s, r, table, tables.Filter{}))
		return path
	}
	db, err := sql.Open("duckdb", "")
	noError(t, err)
	defer db.Close()
	_, err = db.Exec("SET TimeZone = 'UTC'")
	noError(t, err)
	want := summaries(history)
	if len(want) != len(tools) {
		t.Fatalf("the history has %d tools, want %d", len(want), len(tools))
	}
	for _, from := range []string{
		"read_parquet('" + export("calls", "parquet") + "')",
		"read_csv('" + export("calls", "csv") + "', header = true, sample_size = -1, max_line_size = 10000000)",
		"read_json('" + export("calls", "jsonl.zst") + "', format = 'newline_delimited', sample_size = -1)",
	} {
		name, _, _ := strings.Cut(from, "(")
		text, input := "sum(strlen(text))", "sum(strlen(input))"
		if name == "read_csv" {
			text = "sum(strlen(text) - (text[1] = '''')::INT)" // each text that begins with = has an apostrophe more
		}
		if name == "read_json" {
			input = "sum(strlen(input::JSON::VARCHAR))"
		}
		rows, err := db.Query(`SELECT tool, count(*), count(ran_ms), sum(ran_ms)::BIGINT, quantile_disc(ran_ms, 0.5), quantile_disc(ran_ms, 0.95), quantile_disc(ran_ms, 0.99),
			` + text + `::BIGINT, ` + input + `::BIGINT, strftime(max(settled::TIMESTAMP), '%Y-%m-%d %H:%M:%S.%f') FROM ` + from + ` GROUP BY tool`)
		noError(t, err)
		got := map[string]summary{}
		for rows.Next() {
			var tool string
			var s summary
			noError(t, rows.Scan(&tool, &s.calls, &s.ran, &s.sum, &s.p50, &s.p95, &s.p99, &s.text, &s.input, &s.settled))
			got[tool] = s
		}
		noError(t, errors.Join(rows.Err(), rows.Close()))
		if name == "read_json" { // DuckDB writes a value anew, so its size is not that of the input
			for tool := range got {
				g := got[tool]
				g.input = want[tool].input
				got[tool] = g
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", name, got, want)
		}
	}
	one := func(query string) (text string) {
		t.Helper()
		noError(t, db.QueryRow(query).Scan(&text))
		return text
	}
	for query, want := range map[string]string{
		"SELECT count(*) FROM read_parquet('" + export("turns", "parquet") + "') WHERE tools = ['read', 'bash']":                                                  fmt.Sprint(replies),
		"SELECT string_agg(tool, ',' ORDER BY tool) FROM read_parquet('" + export("registrations", "parquet") + "')":                                              "bash,read",
		"SELECT count(DISTINCT row_group_id) FROM parquet_metadata('" + filepath.Join(dir, "calls.parquet") + "')":                                                "2",
		"SELECT decode(value) FROM parquet_kv_metadata('" + filepath.Join(dir, "calls.parquet") + "') WHERE decode(key) = 'ledger.table'":                         "calls",
		"SELECT column_type FROM (DESCRIBE SELECT * FROM read_parquet('" + filepath.Join(dir, "calls.parquet") + "')) WHERE column_name = 'asked'":                "TIMESTAMP WITH TIME ZONE",
		"SELECT count(*) FROM (SELECT * FROM read_parquet('" + filepath.Join(dir, "calls.parquet") + "') WHERE asked_position > 4 AND session LIKE 'ses_%')":      fmt.Sprint(replies * callsPerReply),
		"SELECT count(*) FROM read_parquet('" + filepath.Join(dir, "calls.parquet") + "') WHERE call = 'call_3' AND tool IN ('read', 'write', 'bash', 'rare')":    fmt.Sprint(replies),
		"SELECT count(*) FROM read_parquet('" + filepath.Join(dir, "calls.parquet") + "') WHERE text IS NOT NULL AND NOT contains(text, 'x') AND state = 'asked'": "0",
	} {
		if got := one(query); got != want {
			t.Errorf("%s = %s, want %s", query, got, want)
		}
	}
	var list bytes.Buffer
	rows, err := db.Query("SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM read_parquet('" + filepath.Join(dir, "turns.parquet") + "'))")
	noError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name, kind string
		noError(t, rows.Scan(&name, &kind))
		fmt.Fprintln(&list, name, kind)
	}
	noError(t, rows.Err())
	if !strings.Contains(list.String(), "tools VARCHAR[]\n") || !strings.Contains(list.String(), "position BIGINT\n") {
		t.Errorf("the columns of turns are\n%s", list.String())
	}
}
