package tables

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/parquet-go/parquet-go"

	"github.com/settlement-ledger/ledger/cmd/ledger/fault"
	"github.com/settlement-ledger/ledger/cmd/ledger/query"
	"github.com/settlement-ledger/ledger/cmd/ledger/render"
	"github.com/settlement-ledger/ledger/cmd/ledger/resumable"
	"github.com/settlement-ledger/ledger/cmd/ledger/stores"
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

// newStore returns a store in memory with a history.
func newStore(t testing.TB, history []events.Envelope) *stores.Store {
	t.Helper()
	log, err := embedded.Open(t.Context(), "store", embedded.Config{FS: vfs.NewMem()})
	noError(t, err)
	t.Cleanup(func() { noError(t, log.Close()) })
	noError(t, projectionstest.Append(t.Context(), log, history))
	return &stores.Store{Name: "store", Log: log, Ledger: events.NewLedger(log, domain.NewMint(time.Now, rand.Reader), time.Now)}
}

// longTexts returns a history of calls whose inputs, texts and details are shorter and longer
// than those of the index, and hostile to a file.
func longTexts(seed uint64) []events.Envelope {
	l := projectionstest.NewLog(seed)
	session := l.Mint.Session()
	stream := events.SessionStream(session)
	l.Add(stream, events.SessionOpened{Session: session, Agent: "build"})
	for n, text := range []string{
		"", "x", strings.Repeat("é", 125), strings.Repeat("é", 126), strings.Repeat("é", 128), "a" + strings.Repeat("é", 128), strings.Repeat("z", 256), strings.Repeat("z", 257), strings.Repeat("line\r\n", 50_000),
		"=cmd|' /C calc'!A0", "\"quoted\",\n", "\x1b[2J\u202e", "'", "@x", "＝1",
	} {
		turn, message := l.Mint.Turn(), l.Mint.Message()
		l.Add(stream, events.TurnMaterialized{Turn: turn, Message: message, Agent: "build"})
		input, err := json.Marshal(map[string]string{"text": text})
		noErrorHere(err)
		if n%4 == 3 { // the model wrote no JSON: the log has a string
			input, err = json.Marshal(text + " {")
			noErrorHere(err)
		}
		call := domain.Call{ID: domain.CallID(fmt.Sprint("call_", n)), Name: "read", Input: input}
		l.Add(stream, events.ReplyReceived{Turn: turn, Message: message, Calls: []domain.Call{call}})
		l.Add(stream, events.CallStarted{Turn: turn, Message: message, Call: call.ID, Tool: "read"})
		settled := events.CallSettled{Turn: turn, Message: message, Call: call.ID, Tool: "read", Outcome: domain.Succeeded, Began: true, RanMS: int64(n), Content: domain.Contents{domain.Text(text)}}
		if n%2 == 1 {
			settled.Outcome, settled.Content, settled.Text, settled.Detail = domain.Failed, nil, text, text+"!"
		}
		l.Add(stream, settled)
	}
	return l.Envelopes()
}

// noErrorHere panics at an error of the construction of a history.
func noErrorHere(err error) {
	if err != nil {
		panic(err)
	}
}

// newConfig returns the configuration of an export to a path.
func newConfig(to string) (Config, *bytes.Buffer) {
	var out bytes.Buffer
	p := &render.Printer{Out: bufio.NewWriter(&out), Err: io.Discard, Env: func(string) (string, bool) { return "", false }, Now: time.Now, Format: render.AsJSON}
	return Config{Printer: p, To: to}, &out
}

// run exports a table of a store.
func run(t testing.TB, ctx context.Context, c Config, s *stores.Store, name string, f Filter) error {
	t.Helper()
	r, err := index.InMemory(t.Context(), s.Ledger, nil)
	noError(t, err)
	err = Export(ctx, c, s, r, name, f)
	noError(t, errors.Join(r.Close(), c.Out.Flush()))
	return err
}

// exported exports a table and returns the bytes of the file.
func exported(t testing.TB, s *stores.Store, name, format string, f Filter) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+"."+format)
	c, _ := newConfig(path)
	noError(t, run(t, t.Context(), c, s, name, f))
	data, err := os.ReadFile(path)
	noError(t, err)
	return data
}

// read returns the rows of a Parquet file.
func read[T any](t testing.TB, data []byte) []T {
	t.Helper()
	rows, err := parquet.Read[T](bytes.NewReader(data), int64(len(data)))
	noError(t, err)
	return rows
}

// folded returns the calls of a history by the fold of package calls.
func folded(history []events.Envelope) []calls.Call {
	p := calls.Projection()
	state := p.Init()
	for _, v := range history {
		state = p.Apply(state, v)
	}
	return state.Calls()
}

// foldedCalls returns the rows of calls by a plain fold of a history.
func foldedCalls(history []events.Envelope) []callRow {
	type texts struct{ input, text, detail string }
	whole := map[calls.Key]*texts{}
	at := func(v events.Envelope, m domain.MessageID, id domain.CallID) *texts {
		session, _ := v.Stream.Session()
		key := calls.Key{Session: session, Message: m, Call: id}
		if whole[key] == nil {
			whole[key] = &texts{}
		}
		return whole[key]
	}
	asked := func(v events.Envelope, m domain.MessageID, all []domain.Call) {
		for _, c := range all {
			if w := at(v, m, c.ID); w.input == "" {
				w.input = string(c.Input)
			}
		}
	}
	settled := map[*texts]bool{}
	for _, v := range history {
		switch e := v.Event.(type) {
		case events.ReplyReceived:
			asked(v, e.Message, e.Calls)
		case events.CallsAdded:
			asked(v, e.Message, e.Calls)
		case events.CallSettled:
			if w := at(v, e.Message, e.Call); !settled[w] {
				settled[w], w.text, w.detail = true, calls.Shown(e), e.Detail
			}
		}
	}
	var rows []callRow
	for _, c := range folded(history) {
		w := whole[c.Key()]
		full := newFullCall(c)
		full.Input, full.text, full.detail = json.RawMessage(w.input), w.text, w.detail
		rows = append(rows, newCallRow(full, func(s string) string { return s }, true))
	}
	return rows
}

// The positions of a history are not those of the store, which numbers records from 1.
func inStore(history []events.Envelope) []events.Envelope {
	all := slices.Clone(history)
	for i := range all {
		all[i].Position = events.NewPosition(uint64(i+1), uint64(i+1))
	}
	return all
}

// The rows of an export of calls are those of a plain fold of the log, with the whole texts, in
// each format.
func TestCallsAreThoseOfAPlainFold(t *testing.T) {
	t.Parallel()
	histories := [][]events.Envelope{longTexts(1)}
	for seed := range uint64(4) {
		histories = append(histories, projectionstest.History(seed, 600))
	}
	for n, history := range histories {
		s := newStore(t, history)
		want := foldedCalls(inStore(history))
		if len(want) < 10 {
			t.Fatalf("history %d has %d calls", n, len(want))
		}
		got := read[callRow](t, exported(t, s, "calls", "parquet", Filter{}))
		compare(t, fmt.Sprintf("history %d in Parquet", n), got, want)
		sameInLines(t, s, "calls", want)
	}
}

// compare fails the test at the first row that differs.
func compare[T any](t testing.TB, name string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d rows, want %d", name, len(got), len(want))
		return
	}
	for i := range want {
		a, b := reflect.ValueOf(got[i]), reflect.ValueOf(want[i])
		for _, c := range columnsOf(a.Type()) {
			x, y := value(a.Field(c.field)), value(b.Field(c.field))
			if at, ok := x.(time.Time); ok {
				x = at.UTC()
			}
			if !reflect.DeepEqual(x, y) {
				t.Errorf("%s: row %d has %s = %.300v, want %.300v", name, i, c.name, x, y)
				return
			}
		}
	}
}

// sameInLines compares the rows of the CSV and JSON lines of a table with those of a fold.
func sameInLines[T any](t testing.TB, s *stores.Store, name string, want []T) {
	t.Helper()
	columns := columnsOf(reflect.TypeFor[T]())
	records, err := csv.NewReader(bytes.NewReader(exported(t, s, name, "csv", Filter{}))).ReadAll()
	noError(t, err)
	lines := bytes.Split(bytes.TrimSuffix(exported(t, s, name, "jsonl", Filter{}), []byte("\n")), []byte("\n"))
	if len(records) != len(want)+1 || len(lines) != len(want) {
		t.Fatalf("%d records and %d lines, want %d rows", len(records), len(lines), len(want))
	}
	for i, row := range want {
		object := map[string]json.RawMessage{}
		noError(t, json.Unmarshal(lines[i], &object))
		for n, c := range columns {
			if records[0][n] != c.name {
				t.Fatalf("column %d is %q, want %q", n, records[0][n], c.name)
			}
			v := value(reflect.ValueOf(row).Field(c.field))
			text := ""
			switch v := v.(type) {
			case nil:
			case string:
				text = strings.ReplaceAll(v, "\r\n", "\n") // as the reader of package csv reads cells
			case time.Time:
				text = render.Timestamp(v).String()
			case []string:
				list, err := json.Marshal(v)
				noError(t, err)
				text = string(list)
			default:
				text = fmt.Sprint(v)
			}
			if got := strings.TrimPrefix(records[i+1][n], "'"); got != text {
				t.Errorf("CSV row %d has %s = %.200q, want %.200q", i, c.name, got, text)
			}
			if !sameJSON(t, object[c.name], v, c.json) {
				t.Errorf("JSON row %d has %s = %.200s, want %.200v", i, c.name, object[c.name], v)
			}
		}
		if len(object) != len(columns) {
			t.Errorf("JSON row %d has %d keys, want %d", i, len(object), len(columns))
		}
	}
}

// sameJSON reports whether a JSON value is that of a cell.
func sameJSON(t testing.TB, got json.RawMessage, want any, document bool) bool {
	t.Helper()
	text, ok := want.(string)
	if ok && document && json.Valid([]byte(text)) {
		var a, b any
		noError(t, errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(text), &b)))
		return reflect.DeepEqual(a, b)
	}
	if at, ok := want.(time.Time); ok {
		want = render.Timestamp(at).String()
	}
	var a, b any
	encoded, err := json.Marshal(want)
	noError(t, errors.Join(err, json.Unmarshal(got, &a), json.Unmarshal(encoded, &b)))
	return reflect.DeepEqual(a, b)
}

// The rows of turns and registrations are those of a plain fold.
func TestTurnsAndRegistrationsAreThoseOfAPlainFold(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		history := inStore(projectionstest.History(seed, 600))
		s := newStore(t, history)
		type key struct{ session, turn string }
		var turns []key
		tools, replies := map[key][]string{}, map[string]int64{}
		registrations, reasons := map[string]int{}, map[string]string{}
		for _, v := range history {
			session, _ := v.Stream.Session()
			switch e := v.Event.(type) {
			case events.TurnMaterialized:
				k := key{session.String(), e.Turn.String()}
				if _, ok := tools[k]; !ok {
					turns, tools[k] = append(turns, k), []string{}
				}
				for _, o := range e.Tools {
					tools[k] = append(tools[k], string(o.Name))
				}
			case events.ReplyReceived:
				replies[e.Message.String()] += e.Tokens.Output
			case events.ToolsRegistered:
				for _, tool := range e.Tools {
					registrations[domain.RegistrationOf(v.ID).String()+" "+string(tool.Name)+" "+tool.Fingerprint.String()]++
				}
			case events.RegistrationClosed:
				reasons[e.Registration.String()] = e.Reason
			}
		}
		got := read[turnRow](t, exported(t, s, "turns", "parquet", Filter{}))
		if len(got) != len(turns) || len(turns) < 5 {
			t.Errorf("%d turns, want %d", len(got), len(turns))
		}
		for i, row := range got {
			if k := (key{row.Session, row.Turn}); k != turns[i] || !slices.Equal(row.Tools, tools[k]) {
				t.Errorf("turn %d is %+v with %v, want %v with %v", i, k, row.Tools, turns[i], tools[turns[i]])
			}
			if row.OutputTokens != nil && *row.OutputTokens != replies[*row.Message] {
				t.Errorf("turn %d has %d output tokens, want %d", i, *row.OutputTokens, replies[*row.Message])
			}
		}
		sameInLines(t, s, "turns", got)
		rows := read[registrationRow](t, exported(t, s, "registrations", "parquet", Filter{}))
		for _, row := range rows {
			fingerprint := ""
			if row.Fingerprint != nil {
				fingerprint = *row.Fingerprint
			}
			registrations[row.Registration+" "+row.Tool+" "+fingerprint]--
			if reason := reasons[row.Registration]; reason != "" && (row.Reason == nil || *row.Reason != reason) {
				t.Errorf("registration %s has the reason %v, want %s", row.Registration, row.Reason, reason)
			}
		}
		for name, n := range registrations {
			if n != 0 {
				t.Errorf("%d rows too few of %s", n, name)
			}
		}
		sameInLines(t, s, "registrations", rows)
	}
}

// A filter selects the rows of the whole table that it describes.
func TestAFilterSelectsRows(t *testing.T) {
	t.Parallel()
	s := newStore(t, projectionstest.History(7, 900))
	all := read[callRow](t, exported(t, s, "calls", "parquet", Filter{}))
	one := all[len(all)/2]
	for name, c := range map[string]struct {
		filter Filter
		wants  func(callRow) bool
	}{
		"session":     {Filter{Session: one.Session}, func(r callRow) bool { return r.Session == one.Session }},
		"tool":        {Filter{Tool: one.Tool}, func(r callRow) bool { return r.Tool == one.Tool }},
		"both":        {Filter{Session: one.Session, Tool: one.Tool}, func(r callRow) bool { return r.Session == one.Session && r.Tool == one.Tool }},
		"agent":       {Filter{Agent: *all[0].Agent}, func(r callRow) bool { return r.Agent != nil && *r.Agent == *all[0].Agent }},
		"outcomes":    {Filter{Outcomes: []string{"failed", "open"}}, func(r callRow) bool { return r.Outcome == "failed" || r.Outcome == "open" }},
		"outcome":     {Filter{Outcomes: []string{"succeeded"}, Tool: one.Tool}, func(r callRow) bool { return r.Outcome == "succeeded" && r.Tool == one.Tool }},
		"open":        {Filter{Open: true}, func(r callRow) bool { return r.State != "settled" }},
		"where":       {Filter{More: query.Filter{Where: `tool = "` + one.Tool + `" and state = settled`}}, func(r callRow) bool { return r.Tool == one.Tool && r.State == "settled" }},
		"where open":  {Filter{Open: true, More: query.Filter{Where: `tool = "` + one.Tool + `"`}}, func(r callRow) bool { return r.Tool == one.Tool && r.State != "settled" }},
		"open failed": {Filter{Open: true, Outcomes: []string{"failed"}}, func(callRow) bool { return false }},
	} {
		want := slices.DeleteFunc(slices.Clone(all), func(r callRow) bool { return !c.wants(r) })
		if len(want) == len(all) && name != "agent" {
			t.Fatalf("%s selects all calls", name)
		}
		compare(t, name, read[callRow](t, exported(t, s, "calls", "parquet", c.filter)), want)
	}
	for name, f := range map[string]Filter{"session": {Session: "ses_none"}, "tool": {Tool: "none"}, "agent": {Agent: "none"}, "outcome": {Outcomes: []string{"none"}}} {
		c, _ := newConfig(filepath.Join(t.TempDir(), "x.csv"))
		if err := run(t, t.Context(), c, s, "calls", f); err == nil || fault.Of(err).Exit == fault.ExitFailed {
			t.Errorf("an unknown %s = %v, want a usage or not-found fault", name, err)
		}
	}
}

// An export that is interrupted at any row continues, although the log has grown, and its file
// has the bytes of one written at once. Another filter or another log is refused.
func TestAnExportGoesOnFromEveryRow(t *testing.T) {
	t.Parallel()
	history := projectionstest.History(11, 500)
	half := len(history) / 2
	for _, format := range Formats {
		before, after := newStore(t, history[:half]), newStore(t, history)
		limited := func(path string) Config {
			c, _ := newConfig(path)
			c.maxRows, c.maxBytes = 7, 2000
			return c
		}
		whole := filepath.Join(t.TempDir(), "whole."+format)
		rows := 0
		c := limited(whole)
		c.Hide = func(s string) string { rows++; return s }
		noError(t, run(t, t.Context(), c, before, "calls", Filter{}))
		want, err := os.ReadFile(whole)
		noError(t, err)
		step := max(1, rows/4)
		if os.Getenv("LEDGER_TEST_LONG") != "" {
			step = 1
		}
		for cut := 1; cut < rows; cut += step {
			path := filepath.Join(t.TempDir(), "part."+format)
			ctx, cancel := context.WithCancel(t.Context())
			hidden := 0
			c := limited(path)
			c.Hide = func(s string) string {
				if hidden++; hidden == cut {
					cancel()
				}
				return s
			}
			if err := run(t, ctx, c, before, "calls", Filter{}); !errors.Is(err, context.Canceled) {
				t.Fatalf("cut at text %d = %v", cut, err)
			}
			if _, err := os.Stat(path); err == nil {
				t.Fatal("an interrupted export has a file under its name")
			}
			c.Hide = func(s string) string { return s }
			if err := run(t, t.Context(), c, after, "calls", Filter{Open: true}); !errors.Is(err, resumable.ErrOtherContent) {
				t.Errorf("another filter = %v, want ErrOtherContent", err)
			}
			noError(t, run(t, t.Context(), c, after, "calls", Filter{}))
			got, err := os.ReadFile(path)
			noError(t, err)
			if !bytes.Equal(got, want) {
				t.Errorf("%s cut at text %d of %d: the file differs", format, cut, rows)
			}
		}
	}
}

// Texts that are too large for one batch are read in several, and rows keep their order.
func TestLargeTextsAreReadInHalves(t *testing.T) {
	t.Parallel()
	l := projectionstest.NewLog(3)
	session := l.Mint.Session()
	message := l.Mint.Message()
	var asked []domain.Call
	for n := range 5 {
		asked = append(asked, domain.Call{ID: domain.CallID(fmt.Sprint(n)), Name: "read", Input: []byte(`"` + strings.Repeat(fmt.Sprint(n), batchBytes/3) + `"`)})
	}
	for _, c := range asked {
		l.Add(events.SessionStream(session), events.ReplyReceived{Message: message, Calls: []domain.Call{c}})
	}
	s := newStore(t, l.Envelopes())
	all := folded(l.Envelopes())
	if _, err := withTexts(t.Context(), s, all); !errors.Is(err, errLargeBatch) {
		t.Errorf("a batch of %d bytes = %v, want errLargeBatch", 5*batchBytes/3, err)
	}
	n := 0
	noError(t, eachFull(t.Context(), s, all, func(c fullCall) error {
		if string(c.ID) != fmt.Sprint(n) || !bytes.Equal(c.Input, asked[n].Input) {
			t.Errorf("call %d is %s with %d bytes", n, c.ID, len(c.Input))
		}
		n++
		return nil
	}))
	if n != 5 {
		t.Errorf("%d calls, want 5", n)
	}
}

// A cell that a spreadsheet takes for a formula begins with an apostrophe, and removing one
// gives the text.
func TestACellIsNoFormula(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": `""`, "a": `"a"`, `a"b`: `"a""b"`, "=1": `"'=1"`, "+1": `"'+1"`, "-1": `"'-1"`, "@x": `"'@x"`, "\tx": "\"'\tx\"", "\rx": "\"'\rx\"", "\nx": "\"'\nx\"", "'x": `"''x"`, "＝x": `"'＝x"`, "x=1": `"x=1"`, `"=1`: `"""=1"`,
	} {
		if got := string(appendCell(nil, text)); got != want {
			t.Errorf("the cell of %q is %s, want %s", text, got, want)
		}
	}
}

// Without texts the columns stay and are null, and the metadata of a Parquet file says what it
// has.
func TestAParquetFileSaysWhatItHas(t *testing.T) {
	t.Parallel()
	s := newStore(t, longTexts(2))
	path := filepath.Join(t.TempDir(), "x.parquet")
	c, out := newConfig(path)
	c.NoText, c.maxRows = true, 4
	noError(t, run(t, t.Context(), c, s, "calls", Filter{Tool: "read"}))
	data, err := os.ReadFile(path)
	noError(t, err)
	for _, row := range read[callRow](t, data) {
		if row.Text != nil || row.Input != nil || row.Detail != nil {
			t.Errorf("call %s has a text", row.Call)
		}
	}
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	noError(t, err)
	var row Exported
	noError(t, json.Unmarshal(out.Bytes(), &row))
	for key, want := range map[string]string{"ledger.table": "calls", "ledger.table_version": "1", "ledger.query": `{"tool":"read"}`, "ledger.no_text": "true", "ledger.hidden": "false", "ledger.through": row.Through.String()} {
		if got, ok := f.Lookup(key); !ok || got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
	if row.Rows != f.NumRows() || row.Bytes != int64(len(data)) {
		t.Errorf("the result is %+v, and the file has %d rows and %d bytes", row, f.NumRows(), len(data))
	}
	groups := f.Metadata().RowGroups
	if len(groups) != 4 {
		t.Errorf("%d row groups, want 4 of 15 rows", len(groups))
	}
	for n, group := range groups {
		for i, c := range columnsOf(reflect.TypeFor[callRow]()) {
			if path := group.Columns[i].MetaData.PathInSchema; !slices.Equal(path, []string{c.name}) {
				t.Errorf("column %d of row group %d is %v, want %s", i, n, path, c.name)
			}
		}
	}
	if first, _ := f.Lookup("ledger.store"); !strings.HasPrefix(first, "evt_") {
		t.Errorf("ledger.store = %q, want the first event", first)
	}
}

// A table without rows is a file with its columns, and an empty store has one.
func TestATableMayBeEmpty(t *testing.T) {
	t.Parallel()
	s := newStore(t, nil)
	for _, name := range Tables {
		if rows := read[callRow](t, exported(t, s, name, "parquet", Filter{})); len(rows) != 0 {
			t.Errorf("%s has %d rows", name, len(rows))
		}
		if head := exported(t, s, name, "csv", Filter{}); bytes.Count(head, []byte("\r\n")) != 1 {
			t.Errorf("%s.csv is %q", name, head)
		}
	}
}

// The format is that of the flag or of the end of the path; without both it is asked for.
func TestTheFormatIsNamed(t *testing.T) {
	t.Parallel()
	s := newStore(t, longTexts(3))
	for _, c := range []struct{ to, format, want string }{
		{"x.txt", "", "usage"}, {"-", "", "usage"}, {"x", "xml", "usage"}, {"x.parquet.gz", "", "usage"}, {"x.csv.zst", "", ""}, {"x.txt", "csv", ""}, {"-", "jsonl", ""},
	} {
		if c.to != "-" {
			c.to = filepath.Join(t.TempDir(), c.to)
		}
		cfg, out := newConfig(c.to)
		cfg.Format = c.format
		err := run(t, t.Context(), cfg, s, "turns", Filter{})
		if code := ""; err != nil {
			code = fault.Of(err).Code
			if code != c.want {
				t.Errorf("%+v = %v", c, err)
			}
		} else if c.want != "" || out.Len() == 0 {
			t.Errorf("%+v = no error and %d bytes, want %s", c, out.Len(), c.want)
		}
	}
}

// docs/formats.md lists the columns of each table, in order, with their types.
func TestTheColumnsAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "formats.md"))
	noError(t, err)
	for name, row := range map[string]reflect.Type{"calls": reflect.TypeFor[callRow](), "turns": reflect.TypeFor[turnRow](), "registrations": reflect.TypeFor[registrationRow]()} {
		_, section, ok := strings.Cut(string(text), "\n### "+name+"\n")
		if !ok {
			t.Errorf("docs/formats.md has no section %s", name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n#")
		var got, want []string
		for line := range strings.Lines(section) {
			if cells := strings.Split(line, "|"); len(cells) == 5 && strings.HasPrefix(cells[1], " `") {
				got = append(got, strings.Trim(cells[1], " `")+" "+strings.TrimSpace(cells[2]))
			}
		}
		for _, c := range columnsOf(row) {
			want = append(want, c.name+" "+typeText(row.Field(c.field).Type))
		}
		if !slices.Equal(got, want) {
			t.Errorf("docs/formats.md has the columns of %s as\n%v\nand they are\n%v", name, got, want)
		}
	}
}

// typeText returns the name of a type of a column in the documentation.
func typeText(t reflect.Type) string {
	null := ""
	if t.Kind() == reflect.Pointer {
		t, null = t.Elem(), ", null"
	}
	return map[reflect.Type]string{
		reflect.TypeFor[string](): "text", reflect.TypeFor[int64](): "integer", reflect.TypeFor[bool](): "boolean", reflect.TypeFor[time.Time](): "timestamp", reflect.TypeFor[[]string](): "list of texts",
	}[t] + null
}
