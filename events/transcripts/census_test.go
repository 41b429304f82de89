package transcripts_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/events/transcripts"
)

// realFolder returns the folder of real session files, which are not part of the
// project. It skips the test if there is no such folder.
func realFolder(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("LEDGER_TRANSCRIPTS")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "shared", "transcripts")
	}
	if _, err := os.Stat(filepath.Join(folder, "census.json")); err != nil {
		t.Skipf("no real session files: %v; name their folder in LEDGER_TRANSCRIPTS", err)
	}
	return folder
}

// A census has the expected counts of one real file.
type census struct {
	Records       int `json:"records"`
	Calls         int `json:"calls"`
	Results       int `json:"results"`
	Open          int `json:"open"`
	OrphanResults int `json:"orphan_results"`
	Errors        int `json:"errors"`
}

// Real session files have the counts of their census, no refused line, and grow to
// the same content.
func TestCountsOfRealFilesAreTheCensus(t *testing.T) {
	t.Parallel()
	folder := realFolder(t)
	data, err := os.ReadFile(filepath.Join(folder, "census.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]census
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for file, want := range all {
		if !strings.HasPrefix(file, "claude-code/") {
			continue
		}
		tried++
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(file)))
			if err != nil {
				t.Fatal(err)
			}
			read, err := transcripts.ReadClaudeCode(file, bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			r := read.Report
			got := census{r.Records, r.Calls, r.Results, r.Open, r.OrphanResults, r.Errors}
			if got != want || len(r.RefusedLines) > 0 {
				t.Errorf("ReadClaudeCode(%s) = %+v, refused %v, want %+v", file, got, r.RefusedLines, want)
			}
			l := newLedger()
			importAll(t, l, data)
			wantCounts(t, factsOf(t, l), r)
			grow(t, data, 1+r.Records/4)
		})
	}
	if tried == 0 {
		t.Error("the census has no files of Claude Code")
	}
}

// wantCounts checks that the numbers of calls, settlements and other results on
// record agree with the report.
func wantCounts(t tester, f facts, r transcripts.Report) {
	t.Helper()
	asked, ended, orphans, late := 0, 0, 0, f.Late
	for key := range f.Settled {
		if f.Asked[key] {
			ended++
		} else {
			orphans++
		}
	}
	asked = len(f.Asked)
	want := []int{r.Calls, r.Calls - r.Open, r.Results - (r.Calls - r.Open)}
	if diff := cmp.Diff(want, []int{asked, ended, orphans + late}); diff != "" {
		t.Errorf("asked, settled and other results on record (-report +record):\n%s", diff)
	}
}
