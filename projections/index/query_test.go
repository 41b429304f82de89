package index

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
	"github.com/settlement-ledger/ledger/projections/projectionstest"
)

// A statement that writes, or that reaches another database, is refused or has no effect,
// and changes no file.
func TestQueryOnlyReads(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(21, 200))
	x := newIndex(t, l)
	path, err := x.current()
	noError(t, err)
	sum := func() string {
		data, err := os.ReadFile(path)
		noError(t, err)
		return fmt.Sprintf("%x", sha256.Sum256(data))
	}
	before, other := sum(), filepath.Join(t.TempDir(), "other.db")
	for _, statement := range []string{
		"DELETE FROM calls", "INSERT INTO offers VALUES (1000, 'x', 1)", "UPDATE calls SET tool = 'x'", "DROP TABLE calls", "CREATE TABLE t (a)",
		"PRAGMA query_only = 0; DELETE FROM calls", "SELECT 1; DELETE FROM calls", "ATTACH '" + other + "' AS o", "VACUUM INTO '" + other + "'", "VACUUM",
		"INSERT INTO text_search (text_search) VALUES ('optimize')", "CREATE TEMP TABLE t AS SELECT * FROM calls", "SELECT load_extension('x')",
		"SELECT", "nonsense", "SELECT * FROM nowhere", "SELECT count(*) FROM text_search WHERE text_search MATCH '\"'", "SELECT zeroblob(1000000000)",
	} {
		rows, err := x.Query(t.Context(), statement)
		if err == nil {
			for _, later := range rows.All() {
				err = errors.Join(err, later)
			}
			err = errors.Join(err, rows.Close())
		}
		if !errors.Is(err, ErrStatement) {
			t.Errorf("Query(%s) = %v, want ErrStatement", statement, err)
		}
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("a statement wrote another file")
	}
	if after := sum(); after != before {
		t.Error("a statement changed the database")
	}
}

// The end of the context ends a statement that would run for ever.
func TestACancelledStatementEnds(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, projectionstest.History(22, 50))
	x := newIndex(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows, err := x.Query(ctx, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n")
	noError(t, err)
	defer rows.Close()
	seen := 0
	for _, err = range rows.All() {
		if seen++; seen == 100 {
			cancel()
		}
	}
	if err == nil {
		t.Error("the statement ended without an error")
	}
}

// An absent index is an ErrNoIndex.
func TestThereIsNoIndexBeforeTheFirstFill(t *testing.T) {
	t.Parallel()
	if _, err := New(t.TempDir()).Query(t.Context(), "SELECT 1"); !errors.Is(err, ErrNoIndex) {
		t.Errorf("Query = %v, want ErrNoIndex", err)
	}
}

// Full-text search finds the prompts, the replies, the inputs and the shown texts by
// their words. The index has the beginning of a long text, in whole characters, and the
// size of the whole.
func TestSearchFindsTexts(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(1)
	session, message, reply := log.Mint.Session(), log.Mint.Message(), log.Mint.Message()
	turn := log.Mint.Turn()
	stream := events.SessionStream(session)
	log.Add(stream, events.SessionOpened{Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere}})
	long := strings.Repeat("é", textBytes) + " lynx"
	log.Add(stream, events.PromptAdmitted{Message: message, Text: "find the aardvark"})
	log.Add(stream, events.PromptAdmitted{Message: log.Mint.Message(), Text: long})
	log.Add(stream, events.TurnMaterialized{Turn: turn, Message: reply, Agent: "build"})
	log.Add(stream, events.ReplyReceived{Turn: turn, Message: reply, Text: "a badger, rather", Calls: []domain.Call{{ID: "c", Name: "read", Input: []byte(`{"path":"/cheetah"}`)}}})
	log.Add(stream, events.CallSettled{Turn: turn, Message: reply, Call: "c", Tool: "read", Outcome: domain.Succeeded, Began: true, Content: domain.Contents{domain.Text("a dingo")}})
	l, _ := newLedger(t, log.Envelopes())
	x := newIndex(t, l)
	for word, want := range map[string]string{
		"aardvark": "prompt|" + message.String() + "|", "badger": "reply|" + reply.String() + "|",
		"cheetah": "input|" + reply.String() + "|c", "dingo": "shown|" + reply.String() + "|c",
	} {
		got := table(t, x, "SELECT kind, message, call FROM texts JOIN text_search ON texts.id = text_search.rowid WHERE text_search MATCH '"+word+"'")
		same(t, word, got, []string{want})
	}
	same(t, "lynx", table(t, x, "SELECT rowid FROM text_search WHERE text_search MATCH 'lynx'"), nil)
	same(t, "the long text", table(t, x, "SELECT bytes, length(CAST(text AS BLOB)) FROM texts WHERE bytes > 8192"), []string{fmt.Sprintf("%d|%d", len(long), textBytes)})
}

// The index has the working copy of a session, the text of the rules of a turn, and who
// decided on a request.
func TestTheIndexHasTheWorkingCopyTheRulesAndTheDecider(t *testing.T) {
	t.Parallel()
	log := projectionstest.NewLog(1)
	session, message, turn, permission := log.Mint.Session(), log.Mint.Message(), log.Mint.Turn(), log.Mint.Permission()
	stream, approval := events.SessionStream(session), log.Mint.Event()
	log.Add(stream, events.SessionOpened{
		Session: session, Agent: "build", Origin: events.Origin{Kind: events.RunHere},
		VersionControl: events.VersionControl{System: "git", Commit: "0a0a", Branch: "main", State: events.CleanCopy},
	})
	log.Add(stream, events.TextRecorded{Digest: "ab", Text: "[]"})
	log.Add(stream, events.TurnMaterialized{Turn: turn, Message: message, Agent: "build", Rules: "cd", RulesText: "ab"})
	log.Add(stream, events.PermissionRequested{Permission: permission, Message: message, Call: "c", Action: "edit", Resources: []string{"a"}})
	log.Add(stream, events.PermissionDecided{
		Permission: permission, Effect: domain.Allow, By: events.ByApproval, Approvals: []events.UsedApproval{{Event: approval, Resource: "a*"}},
	})
	log.Add(stream, events.CallSettled{
		Turn: turn, Message: message, Call: "c", Tool: "edit", Outcome: domain.Succeeded, Began: true,
		Allowed: []domain.Rule{{Action: "edit", Resource: "b*", Effect: domain.Allow, Source: "rules:7"}},
	})
	other := log.Mint.Session()
	log.Add(events.SessionStream(other), events.SessionOpened{Session: other, Agent: "build", Origin: events.Origin{Kind: events.RunHere}})
	l, _ := newLedger(t, log.Envelopes())
	x := newIndex(t, l)
	same(t, "sessions", table(t, x, "SELECT vcs, vcs_commit, vcs_branch, vcs_state FROM sessions ORDER BY number"), []string{"git|0a0a|main|clean", "|||"})
	same(t, "turns", table(t, x, "SELECT rules, rules_text, recorded_texts.revision FROM turns JOIN recorded_texts USING (session) WHERE digest = rules_text"), []string{"cd|ab|2"})
	same(t, "permissions", table(t, x, "SELECT decided_by, json_extract(approvals, '$[0].event'), json_extract(approvals, '$[0].resource') FROM permissions"),
		[]string{"approval|" + approval.String() + "|a*"})
	same(t, "allowed rules", table(t, x, "SELECT calls.call, action, resource, source FROM allowed_rules JOIN calls ON calls.id = allowed_rules.call"), []string{"c|edit|b*|rules:7"})
}

var update = flag.Bool("update", false, "write docs/schema.md")

// docs/schema.md describes every table and column of the schema, with the comments of
// schema.sql, and the database has exactly these columns.
func TestSchemaDocumentIsThatOfTheSchema(t *testing.T) {
	t.Parallel()
	l, _ := newLedger(t, nil)
	x := newIndex(t, l)
	var b strings.Builder
	for _, described := range Tables() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", described.Name, described.Comment)
		var columns []string
		if described.Name != wordsTable {
			b.WriteString("| column | type | meaning |\n|---|---|---|\n")
		}
		for _, c := range described.Columns {
			kind := strings.ToLower(c.Type)
			if c.Null && c.Type != "" {
				kind += ", null"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, kind, c.Comment)
			columns = append(columns, c.Name)
		}
		if described.Comment == "" {
			t.Errorf("table %s has no comment", described.Name)
		}
		if !described.Virtual {
			same(t, described.Name, table(t, x, "SELECT name FROM pragma_table_info('"+described.Name+"')"), columns)
		}
	}
	same(t, "tables", table(t, x, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'text_search_%' AND name NOT LIKE 'sqlite_%'"), []string{fmt.Sprint(len(Tables()))})
	path := filepath.Join("..", "..", "docs", "schema.md")
	have, err := os.ReadFile(path)
	noError(t, err)
	const border = "<!-- The rest is generated from projections/index/schema.sql: go test ./projections/index -run SchemaDocument -update -->\n"
	head, _, ok := strings.Cut(string(have), border)
	if !ok {
		t.Fatalf("%s has no line %q", path, border)
	}
	want := head + border + b.String()
	if *update {
		noError(t, os.WriteFile(path, []byte(want), 0o600))
	} else if string(have) != want {
		t.Errorf("%s is not that of schema.sql: run this test with -update", path)
	}
}
