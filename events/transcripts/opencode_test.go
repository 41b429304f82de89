package transcripts_test

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events/transcripts"
)

// The messages of a session of opencode, and of its sub-agent: calls that end in
// several ways, two of them with an ID that a redactor wrote.
var (
	gardenInfo     = `{"id":"ses_g","directory":"/garden","version":"1.18","time":{"created":1772359200000}}`
	childInfo      = `{"id":"ses_c","parentID":"ses_g","directory":"/garden","time":{"created":1772359202000}}`
	gardenMessages = [][]string{
		{`{"id":"msg_1","sessionID":"ses_g","role":"user","time":{"created":1772359200000}}`,
			`{"type":"text","text":"water"}`, `{"type":"text","text":"a reminder","synthetic":true}`},
		{`{"id":"msg_2","sessionID":"ses_g","role":"assistant","modelID":"rose-1","time":{"created":1772359201000},"tokens":{"input":99},"path":{"cwd":"/garden"}}`,
			`{"type":"step-start"}`, `{"type":"text","text":"I water."}`,
			`{"type":"tool","tool":"bash","callID":"X","state":{"status":"completed","input":{"n":1},"output":"wet","metadata":{"exit":1},"time":{"start":1772359201100,"end":1772359201200}}}`,
			`{"type":"tool","tool":"bash","callID":"X","state":{"status":"error","input":{"n":2},"error":"The user rejected permission to use this specific tool call."}}`,
			`{"type":"tool","tool":"read","callID":"c3","state":{"status":"error","input":{},"error":"File not found"}}`,
			`{"type":"tool","tool":"task","callID":"c4","state":{"status":"running","input":{},"metadata":{"sessionId":"ses_c"}}}`,
			`{"type":"step-finish","reason":"tool-calls","tokens":{"input":10,"output":3,"reasoning":2,"cache":{"read":5,"write":0}}}`},
		{`{"id":"msg_3","sessionID":"ses_g","role":"assistant","time":{"created":1772359203000},"error":{"name":"MessageAbortedError","data":{"message":"Aborted"}}}`},
	}
	childMessages = [][]string{{`{"id":"msg_9","sessionID":"ses_c","role":"user","time":{"created":1772359202000}}`, `{"type":"text","text":"dig"}`}}
)

// exportOf returns a document of opencode export.
func exportOf(info string, messages [][]string) []byte {
	var all []string
	for _, m := range messages {
		all = append(all, fmt.Sprintf(`{"info":%s,"parts":[%s]}`, m[0], strings.Join(m[1:], ",")))
	}
	return []byte(fmt.Sprintf("{\n \"info\": %s,\n \"messages\": [%s]}\n", info, strings.Join(all, ",\n")))
}

// An export has its calls, also those with equal IDs, and the outcomes of the format.
func TestOpencodeExport(t *testing.T) {
	t.Parallel()
	data := exportOf(gardenInfo, gardenMessages)
	r := readAs(t, "opencode", data).Report
	got := fmt.Sprint(r.Records, r.Sessions, *r.Prompts, r.Calls, r.Results, r.Open, r.Errors, *r.Interrupted, r.SubagentCalls)
	if want := fmt.Sprint(3, 1, 1, 4, 3, 1, 2, 1, 1); got != want {
		t.Errorf("counts = %s, want %s", got, want)
	}
	l := newLedger()
	importAs(t, l, "opencode", exportOf(childInfo, childMessages))
	importAs(t, l, "opencode", data)
	f := factsOf(t, l)
	outcomes := map[domain.CallID]string{}
	for _, e := range f.Settled {
		outcomes[e.Call] = fmt.Sprint(e.Outcome, e.Detail)
	}
	want := map[domain.CallID]string{
		"X": fmt.Sprint(domain.Succeeded, "exit status 1"), "X#2": fmt.Sprint(domain.DeclinedByUser), "c3": fmt.Sprint(domain.Failed),
	}
	if fmt.Sprint(outcomes) != fmt.Sprint(want) {
		t.Errorf("outcomes = %v, want %v", outcomes, want)
	}
	parents := 0
	for _, s := range f.Sessions {
		if !s.Parent.IsZero() {
			parents++
		}
	}
	if parents != 1 || len(f.Sessions) != 2 {
		t.Errorf("%d of %d sessions have a parent, want 1 of 2", parents, len(f.Sessions))
	}
	for n := 10; n < len(data); n += repeats(101, 11) {
		importAs(t, newLedger(), "opencode", data[:n])
	}
}

// The database, the storage folder and the export of the same sessions have the same
// facts, and importing one after the other adds nothing. The import writes nothing
// beside the database, also while a program has it open.
func TestOpencodeContainersAgree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	database := filepath.Join(dir, "opencode.db")
	db, err := sql.Open("sqlite", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	run := func(query string, args ...any) {
		t.Helper()
		if _, err := db.Exec(query, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("PRAGMA journal_mode = WAL")
	run("CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, version TEXT, time_created INTEGER)")
	run("CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT)")
	run("CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT)")
	storage := filepath.Join(dir, "storage")
	put := func(name, text string) {
		t.Helper()
		name = filepath.Join(storage, name)
		err := os.MkdirAll(filepath.Dir(name), 0o700)
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for i, s := range []struct {
		id, parent, info string
		messages         [][]string
	}{{"ses_g", "", gardenInfo, gardenMessages}, {"ses_c", "ses_g", childInfo, childMessages}} {
		version := "1.18"
		if i == 1 {
			version = ""
		}
		run("INSERT INTO session VALUES (?, ?, '/garden', ?, ?)", s.id, s.parent, version, 1772359200000+int64(2000*i))
		put("session/p/"+s.id+".json", s.info)
		for _, m := range s.messages {
			var info struct{ ID string }
			if err := json.Unmarshal([]byte(m[0]), &info); err != nil {
				t.Fatal(err)
			}
			run("INSERT INTO message VALUES (?, ?, ?, ?)", info.ID, s.id, n, m[0])
			put("message/"+s.id+"/"+info.ID+".json", m[0])
			for _, part := range m[1:] {
				n++
				run("INSERT INTO part VALUES (?, ?, ?, ?)", fmt.Sprintf("prt_%03d", n), info.ID, s.id, part)
				put(fmt.Sprintf("part/%s/prt_%03d.json", info.ID, n), part)
			}
		}
	}
	before, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	for i, path := range []string{database, transcripts.OpencodeStorage(dir)} {
		read, err := transcripts.ReadPath(t.Context(), "opencode", path)
		if err != nil {
			t.Fatal(err)
		}
		if r := read.Report; r.Records != 4 || r.Calls != 4 || r.Sessions != 2 || *r.Prompts != 1 || len(r.RefusedLines) > 0 {
			t.Errorf("report of %s = %+v", path, r)
		}
		if added, err := read.Import(t.Context(), l); err != nil || i > 0 && added != 0 {
			t.Errorf("import of %s adds %d events, %v", path, added, err)
		}
	}
	if added := importAs(t, l, "opencode", exportOf(gardenInfo, gardenMessages)); added != 0 {
		t.Errorf("import of the export adds %d events, want 0", added)
	}
	after, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("the folder has %v, %v, want %v", after, err, before)
	}
}

// Lines with parts continue open calls and grow to the same content; those of a run
// have no prompts.
func TestOpencodeLines(t *testing.T) {
	t.Parallel()
	line := func(n int, part string) string {
		return fmt.Sprintf(`{"type":"tool_use","timestamp":%d,"sessionID":"ses_l","part":%s}`, 1772359200000+n, part)
	}
	data := []byte(strings.Join([]string{
		line(1, `{"id":"p1","messageID":"m","type":"text","text":"I dig"}`),
		line(2, `{"id":"p2","messageID":"m","type":"tool","callID":"7","tool":"bash","state":{"status":"running","input":{"n":1}}}`),
		line(3, `{"id":"p2","messageID":"m","type":"tool","callID":"7","tool":"bash","state":{"status":"completed","input":{"n":1},"output":"done"}}`),
		line(4, `{"id":"p3","messageID":"k","type":"tool","callID":"7","tool":"bash","state":{"status":"running","input":{"n":2}}}`),
		`{"type":"error","timestamp":1772359200009,"sessionID":"ses_l","error":{"name":"APIError","data":{"message":"slow","statusCode":429}}}`,
	}, "\n"))
	r := readAs(t, "opencode", data).Report
	if r.Records != 5 || r.Calls != 2 || r.Results != 1 || r.Open != 1 || r.Prompts != nil || r.Interrupted != nil {
		t.Errorf("report = %+v, want 2 calls, 1 result, and no prompts", r)
	}
	growAs(t, "opencode", data, 1)
}

// A compressed file is read like the file, and of a torn one the part before the tear.
func TestCompressedFiles(t *testing.T) {
	t.Parallel()
	data := gardenCodex()
	want := readAs(t, "codex", data).Report
	var zipped, packed bytes.Buffer
	gz := gzip.NewWriter(&zipped)
	zs, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []interface {
		Write([]byte) (int, error)
		Close() error
	}{gz, zs} {
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, compressed := range map[string][]byte{"gzip": zipped.Bytes(), "zstd": packed.Bytes()} {
		got := readAs(t, "codex", compressed).Report
		if got.Records != want.Records || got.Calls != want.Calls || len(got.RefusedLines) != 0 {
			t.Errorf("%s: report = %+v, want %+v", name, got, want)
		}
		torn, err := transcripts.Read("codex", "x", bytes.NewReader(compressed[:len(compressed)-5]))
		if err != nil {
			// All of a small zstd file is in its only block.
			if !errors.Is(err, transcripts.ErrForeign) {
				t.Errorf("%s: Read of the torn file = %v", name, err)
			}
			continue
		}
		if n := len(torn.Report.RefusedLines); n == 0 || !strings.HasPrefix(torn.Report.RefusedLines[n-1].Reason, "torn") {
			t.Errorf("%s: refused lines = %v, want the tear", name, torn.Report.RefusedLines)
		}
	}
}

// A file of another format is an ErrForeign that names the command of its format.
func TestOtherFormatsAreNamed(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{
		"claude-code": []byte(`{"type":"user","sessionId":"s","parentUuid":null,"message":{"content":"x"}}`),
		"codex":       gardenCodex(), "opencode": exportOf(gardenInfo, gardenMessages), "atif": []byte(gardenATIF),
	}
	for _, format := range transcripts.Formats() {
		for of, data := range files {
			_, err := transcripts.Read(format, "x", bytes.NewReader(data))
			if of != format && (!errors.Is(err, transcripts.ErrForeign) || !strings.Contains(err.Error(), "ledger import "+of)) {
				t.Errorf("Read of %s as %s = %v, want ErrForeign that names the command", of, format, err)
			}
		}
	}
}

// FuzzOpencode: no file makes the reader panic, and importing it again adds nothing.
func FuzzOpencode(f *testing.F) {
	f.Add(exportOf(gardenInfo, gardenMessages))
	f.Add([]byte(`{"type":"tool","callID":"1","tool":"a","_role":"assistant","state":{"status":"running"}}`))
	fuzzFormat(f, "opencode")
}
