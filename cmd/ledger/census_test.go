package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// transcriptsDir returns the folder of recorded session files, which LEDGER_TRANSCRIPTS
// names. It skips the test if the folder has no census.json.
func transcriptsDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("LEDGER_TRANSCRIPTS")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "transcripts")
	}
	if _, err := os.Stat(filepath.Join(dir, "census.json")); err != nil {
		t.Skipf("no transcripts: %v (LEDGER_TRANSCRIPTS names their folder)", err)
	}
	return dir
}

// A commandResult is the result of a ledger process: its standard output, its standard error and
// its exit status.
type commandResult struct {
	out, err []byte
	exit     int
}

// ledger runs the ledger command as a process with --store and arguments, and waits for
// it to exit. A non-zero exit status does not fail the test.
func ledger(t *testing.T, store string, args ...string) commandResult {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), commandPath(), append([]string{"--store", store}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("ledger %s: %v", strings.Join(args, " "), err)
	}
	return commandResult{out.Bytes(), errs.Bytes(), cmd.ProcessState.ExitCode()}
}

// decodeJSON decodes JSON into a T and fails the test if it cannot.
func decodeJSON[T any](t *testing.T, data []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("decode %.200q: %v", data, err)
	}
	return v
}

// A counts holds the numbers of one session file, as census.json and ledger import
// report them.
type counts struct {
	Records int `json:"records"`
	Calls   int `json:"calls"`
	Results int `json:"results"`
	Open    int `json:"open"`           // calls without a result
	Orphans int `json:"orphan_results"` // results without a call
	Errors  int `json:"errors"`
}

// An imported is one row of ledger import -o json.
type imported struct {
	File    string
	Session string
	Added   int // events appended by the import
	counts
}

// Importing recorded sessions yields the records, calls, results and errors that an
// independent census of the same files counted. Importing them again adds no event.
func TestImportCountsWhatTheCensusCounts(t *testing.T) {
	t.Parallel()
	dir, store := transcriptsDir(t), filepath.Join(t.TempDir(), "store")
	data, err := os.ReadFile(filepath.Join(dir, "census.json"))
	if err != nil {
		t.Fatal(err)
	}
	census := decodeJSON[map[string]counts](t, data)
	maps.DeleteFunc(census, func(file string, _ counts) bool { return !strings.HasPrefix(file, "claude-code/") })
	args := []string{"import", "claude-code", "-o", "json"}
	for _, file := range slices.Sorted(maps.Keys(census)) {
		args = append(args, filepath.Join(dir, file))
	}
	first := ledger(t, store, args...)
	if first.exit != 0 {
		t.Fatalf("import: exit %d: %s", first.exit, first.err)
	}
	got := map[string]counts{}
	reports := decodeJSON[[]imported](t, first.out)
	for _, r := range reports {
		got["claude-code/"+filepath.Base(r.File)] = r.counts
	}
	if diff := cmp.Diff(census, got); diff != "" {
		t.Errorf("import and census differ (-census +import):\n%s", diff)
	}
	checkRows(t, store, reports)
	checkExceptions(t, store, reports)
	for _, r := range decodeJSON[[]imported](t, ledger(t, store, args...).out) {
		if r.Added != 0 {
			t.Errorf("importing %s again added %d events, want 0", r.File, r.Added)
		}
	}
}

// checkRows checks that call ls lists each call of the reports once, with as many open
// calls in each session as the report has.
func checkRows(t *testing.T, store string, reports []imported) {
	t.Helper()
	type row struct{ Session, Outcome, Message, Call string }
	rows := decodeJSON[[]row](t, ledger(t, store, "call", "ls", "-o", "json").out)
	all, open, distinct := map[string]int{}, map[string]int{}, map[row]bool{}
	for _, r := range rows {
		all[r.Session]++
		if r.Outcome == "open" {
			open[r.Session]++
		}
		distinct[row{r.Session, "", r.Message, r.Call}] = true
	}
	if len(distinct) != len(rows) {
		t.Errorf("call ls has %d rows for %d calls", len(rows), len(distinct))
	}
	for _, r := range reports {
		if all[r.Session] != r.Calls || open[r.Session] != r.Open {
			t.Errorf("call ls has %d calls of %s, %d open; want %d, %d", all[r.Session], r.File, open[r.Session], r.Calls, r.Open)
		}
	}
}

// checkExceptions checks that verify finds no exception and counts the calls, open
// calls and orphan results of the reports.
func checkExceptions(t *testing.T, store string, reports []imported) {
	t.Helper()
	verified := ledger(t, store, "verify", "-o", "json")
	v := decodeJSON[struct {
		Calls, Settled, Open int
		OpenImported         int `json:"open_imported"`
		Orphans              int `json:"orphans_imported"`
		Exceptions           []struct{ Law, Session string }
	}](t, verified.out)
	calls, open, orphans := 0, 0, 0
	for _, r := range reports {
		calls, open, orphans = calls+r.Calls, open+r.Open, orphans+r.Orphans
	}
	if verified.exit != 0 || len(v.Exceptions) != 0 {
		t.Errorf("verify: exit %d with the exceptions %v", verified.exit, v.Exceptions)
	}
	if v.Orphans != orphans {
		t.Errorf("verify counts %d results without calls, want %d", v.Orphans, orphans)
	}
	if v.Calls != calls || v.Open != open || v.OpenImported != open || v.Settled != calls-open {
		t.Errorf("verify counts %d calls, %d settled, %d open; want %d, %d, %d", v.Calls, v.Settled, v.Open, calls, calls-open, open)
	}
}
