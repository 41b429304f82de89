package bench_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/cmd/ledger/bench"
)

// Every row of the table runs with the real program, at tiny sizes, and the run leaves
// nothing in its folder.
func TestTheScaleTableRuns(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "ledger")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/settlement-ledger/ledger/cmd/ledger").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	dir, csv := t.TempDir(), filepath.Join(t.TempDir(), "scale.csv")
	var out, progress strings.Builder
	code := bench.ScaleCommand(t.Context(), []string{"scale", "-ledger", program, "-dir", dir, "-sizes", "600 1200", "-csv", csv}, &out, &progress)
	if code != 0 {
		t.Fatalf("ScaleCommand = %d: %s", code, progress.String())
	}
	data, err := os.ReadFile(csv)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"table": out.String(), "CSV": string(data)} {
		if lines := strings.Count(text, "\n"); lines != 29 || strings.Contains(text, "failed") || !strings.Contains(text, "session-show") {
			t.Errorf("the %s has %d lines, want a header and two lines for each of 14 rows:\n%s", name, lines, text)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("a run leaves %v behind, %v", left, err)
	}
}

// Invalid arguments are reported, and nothing runs.
func TestTheScaleTableRefusesArguments(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"ascending":           {"-ledger", "x", "-sizes", "5 4"},
		"size \"many\"":       {"-ledger", "x", "-sizes", "many"},
		"give a size":         {"-ledger", "x", "-sizes", " "},
		"give the program":    {},
		"flag provided but":   {"-nonsense"},
		"and no argument":     {"-ledger", "x", "further"},
		"invalid value \"x\"": {"-timeout", "x"},
	} {
		var out, progress strings.Builder
		if code := bench.ScaleCommand(t.Context(), append([]string{"scale"}, args...), &out, &progress); code != 2 || !strings.Contains(progress.String(), want) {
			t.Errorf("ScaleCommand(%v) = %d, %q, want 2 and %q", args, code, progress.String(), want)
		}
	}
}
