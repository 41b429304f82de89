package replaying

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/runner/replay"
)

func TestAJUnitFileHasEachDifferenceAndIsXML(t *testing.T) {
	t.Parallel()
	hostile := "<script>&\x1b[31m\x00\xff]]>"
	r := &replay.Report{
		Steps: []replay.Step{{Turn: 1}, {Turn: 1, Call: "call_1", Tool: hostile}},
		Differences: []replay.Difference{
			{Kind: replay.OutputDiffers, Turn: 1, Call: "call_1", Event: "end", Recorded: hostile, Replayed: "other"},
			{Kind: replay.PromptDiffers, Event: "prompt 1", Recorded: "a", Replayed: "b"},
		},
		Incomparable: []replay.Incomparable{{Where: hostile, Reason: hostile}},
	}
	var b strings.Builder
	if err := WriteJUnit(&b, r); err != nil {
		t.Fatal(err)
	}
	var suite junitSuite
	if err := xml.Unmarshal([]byte(b.String()), &suite); err != nil {
		t.Fatalf("the file is not XML: %v\n%s", err, b.String())
	}
	if suite.Tests != 3 || suite.Failures != 2 || len(suite.Cases) != 3 {
		t.Fatalf("the file has %d tests, %d failures and %d cases, want 3, 2 and 3", suite.Tests, suite.Failures, len(suite.Cases))
	}
	if got := suite.Cases[0].Failures; len(got) != 1 || got[0].Type != string(replay.PromptDiffers) {
		t.Errorf("the case of the session has the failures %+v, want that of the prompt", got)
	}
	if got := suite.Cases[2].Failures; len(got) != 1 || !strings.Contains(got[0].Text, "<script>&") || !strings.Contains(got[0].Text, "other") {
		t.Errorf("the case of the call has the failures %+v, want one with both sides", got)
	}
}

func TestACopyStaysWithinItsFolder(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, path), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	write("a/b.txt", "text")
	link := func(to, path string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(from, path)); err != nil {
			t.Fatal(err)
		}
	}
	link("a/b.txt", "within")
	link("/etc/hostname", "absolute")
	link("../outside", "above")
	if err := unix.Mkfifo(filepath.Join(from, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	to, left, err := copyWorkspace(from)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(filepath.Dir(to))
	if data, err := os.ReadFile(filepath.Join(to, "within")); string(data) != "text" {
		t.Errorf("the link within the folder reads %q, %v, want the text of its file", data, err)
	}
	slices.Sort(left)
	if want := []string{"above", "absolute", "pipe"}; !slices.Equal(left, want) {
		t.Errorf("the copy left out %q, want %q", left, want)
	}
	if err := os.WriteFile(filepath.Join(to, "a/b.txt"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(filepath.Join(from, "a/b.txt")); string(data) != "text" {
		t.Error("a change of the copy changed the folder")
	}
	if _, _, err := copyWorkspace(filepath.Join(from, "missing")); err == nil {
		t.Error("a missing folder was copied")
	}
}

func TestDriftNamesEachTool(t *testing.T) {
	t.Parallel()
	tool := func(name domain.Name, fingerprint byte) domain.Offered {
		return domain.Offered{Name: name, Fingerprint: domain.Fingerprint{fingerprint}}
	}
	past := []domain.Offered{tool("same", 1), tool("gone", 1), tool("changed", 1), tool("unknown", 0)}
	today := []domain.Offered{tool("same", 1), tool("changed", 2), tool("unknown", 3), tool("new", 1)}
	got := strings.Join(Drift(past, today), "\n")
	for _, want := range []string{"tool gone of the past is gone", "changed has changed from 01", "unknown in the past is not on record", "new is new"} {
		if !strings.Contains(got, want) {
			t.Errorf("Drift = %q, want a line with %q", got, want)
		}
	}
	if strings.Contains(got, "same") {
		t.Errorf("Drift = %q names a tool that is the same", got)
	}
}
