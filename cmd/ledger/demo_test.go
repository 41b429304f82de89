package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	demoBegins = "```console\n$ go run ./cmd/ledger demo\n"
	demoEnds   = "```\n"
)

// varying is what differs from one showing of the demo to the next.
var varying = []struct {
	is *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`/\S*ledger-demo-\S*.*`), "SCRATCH"},
	{regexp.MustCompile(`_…[0-9A-Z]{6}|_[0-9A-Z]{26}`), "_ID"},
	{regexp.MustCompile(`\b\d+(\.\d+)?m?s\b`), "TIME"},
	{regexp.MustCompile(`\b(now|TIME ago)\b`), "AGO"},
	{regexp.MustCompile(` +`), " "},
}

// steady returns what is the same in every showing. The lines of calls that
// run side by side are put in order.
func steady(text string) string {
	for _, v := range varying {
		text = v.is.ReplaceAllString(text, v.to)
	}
	lines := strings.Split(text, "\n")
	isCall := func(line string) bool {
		return strings.HasPrefix(line, " ") && strings.ContainsAny(line, "✓✗?≠!⊘")
	}
	for i := 0; i < len(lines); i++ {
		end := i
		for end < len(lines) && isCall(lines[end]) {
			end++
		}
		slices.Sort(lines[i:end])
		i = end
	}
	return strings.Join(lines, "\n")
}

// TestTheREADMEShowsTheDemoAsItIs runs the demo and compares.
func TestTheREADMEShowsTheDemoAsItIs(t *testing.T) {
	t.Parallel()
	shown := ledger(t, "", "demo")
	if shown.exit != 0 {
		t.Fatalf("ledger demo = %d\n%s%s", shown.exit, shown.out, shown.err)
	}
	path := filepath.Join("..", "..", "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), demoBegins)
	told, after, ends := strings.Cut(rest, demoEnds)
	if !begins || !ends {
		t.Fatalf("README.md has no block that begins with %q", demoBegins)
	}
	if *update {
		if err := os.WriteFile(path, []byte(before+demoBegins+string(shown.out)+demoEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, want := steady(told), steady(string(shown.out)); got != want {
		t.Errorf("README.md tells:\n%s\nand the demo shows:\n%s\n(go test ./cmd/ledger -run README -update)", got, want)
	}
}
