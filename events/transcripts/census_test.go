package transcripts_test

import (
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

// A census has the expected counts of one real file. A newer entry also has the counts
// that are pointers here; of these, prompts and interrupted may be null.
type census struct {
	Records          int  `json:"records"`
	Calls            int  `json:"calls"`
	Results          int  `json:"results"`
	Open             int  `json:"open"`
	OrphanResults    int  `json:"orphan_results"`
	Errors           int  `json:"errors"`
	ErrorsText       *int `json:"errors_text"`
	Sessions         *int `json:"sessions"`
	Prompts          *int `json:"prompts"`
	Interrupted      *int `json:"interrupted"`
	SubagentCalls    *int `json:"subagent_calls"`
	ResultsWithoutID *int `json:"results_without_id"`
}

// censusOf returns the counts of a report that the entry want has.
func censusOf(r transcripts.Report, want census) census {
	got := census{Records: r.Records, Calls: r.Calls, Results: r.Results, Open: r.Open, OrphanResults: r.OrphanResults, Errors: r.Errors}
	if want.Sessions != nil {
		got.Sessions, got.Prompts, got.Interrupted = &r.Sessions, r.Prompts, r.Interrupted
		got.ErrorsText, got.SubagentCalls = &r.ErrorsText, &r.SubagentCalls
	}
	if want.ResultsWithoutID != nil {
		got.ResultsWithoutID = &r.ResultsWithoutID
	}
	return got
}

// Real session files have the counts of their census and grow to the same content. A
// file of Claude Code has no refused line.
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
	tried := map[string]int{}
	for file, want := range all {
		format, _, _ := strings.Cut(file, "/")
		tried[format]++
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(folder, filepath.FromSlash(file))
			read, err := transcripts.ReadPath(t.Context(), format, path)
			if err != nil {
				t.Fatal(err)
			}
			r := read.Report
			if diff := cmp.Diff(want, censusOf(r, want)); diff != "" {
				t.Errorf("counts of %s (-census +import):\n%s", file, diff)
			}
			if format == "claude-code" && len(r.RefusedLines) > 0 {
				t.Errorf("refused lines: %v", r.RefusedLines)
			}
			l := newLedger()
			if _, err := read.Import(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			f := factsOf(t, l)
			if ended := r.Calls - r.Open; len(f.Asked) != r.Calls || len(f.Settled)+f.Late != ended+r.OrphanResults+max(0, r.Results-ended-r.OrphanResults) && r.ResultsWithoutID == 0 {
				t.Errorf("%d calls, %d settled, %d late on record, want the counts of %+v", len(f.Asked), len(f.Settled), f.Late, r)
			}
			again, err := transcripts.ReadPath(t.Context(), format, path)
			if err != nil {
				t.Fatal(err)
			}
			if added, err := again.Import(t.Context(), l); added != 0 || err != nil {
				t.Errorf("importing again adds %d events, %v, want 0", added, err)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			// A long file takes seconds.
			if filepath.Ext(file) == ".jsonl" && len(data) < repeats(250_000, 4<<20) {
				growAs(t, format, data, 1+r.Records/4)
			}
		})
	}
	if len(tried) < 4 {
		t.Errorf("the census has files of the formats %v, want all four", tried)
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
