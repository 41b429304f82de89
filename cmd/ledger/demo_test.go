package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// demoBegins and demoEnds delimit the transcript of the demo in README.md.
const (
	demoBegins = "```console\n$ go run ./cmd/ledger demo\n"
	demoEnds   = "```\n"
)

// varying lists the parts of the demo's text that differ between two runs, each with
// the placeholder that steady puts in its place.
var varying = []struct {
	is *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`/\S*ledger-demo-\S*.*`), "SCRATCH"},
	{regexp.MustCompile(`_…[0-9A-Z]{6}|_[0-9A-Z]{26}`), "_ID"},
	{regexp.MustCompile(`\b\d+(\.\d+)?m?s\b`), "TIME"},
	{regexp.MustCompile(`\b(now|TIME ago|\d\d:\d\d:\d\d)\b`), "AGO"},
	{regexp.MustCompile(` +`), " "},
}

// steady replaces the varying parts of a transcript by placeholders, and sorts adjacent
// lines of calls, since parallel calls end in any order.
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

// readmePath is the README of the module, relative to this package.
var readmePath = filepath.Join("..", "..", "README.md")

// readmeDemo returns the demo's transcript in README.md, and the text before and after
// it.
func readmeDemo() (before, told, after string, err error) {
	text, err := os.ReadFile(readmePath)
	if err != nil {
		return "", "", "", err
	}
	before, rest, begins := strings.Cut(string(text), demoBegins)
	told, after, ends := strings.Cut(rest, demoEnds)
	if !begins || !ends {
		return "", "", "", fmt.Errorf("README.md has no block that begins with %q", demoBegins)
	}
	return before, told, after, nil
}

// sharedLine matches the line in which the demo explains why a dead process is detected
// later in a store that other processes may have open. The demo prints it only for such
// a store.
var sharedLine = regexp.MustCompile(`(?m)^Others may have the store open too.*\n`)

// eventCount matches the number of events in a summary, which is higher in a store
// whose processes renew leases.
var eventCount = regexp.MustCompile(`(?m)^\d+ events, `)

// alikeCommand compares the demo in the script's last standard output, run on a server,
// with the transcript of README.md, which was run on a folder. The two may differ only
// in sharedLine and eventCount.
//
// Usage: alike
func alikeCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: alike")
	}
	_, told, _, err := readmeDemo()
	ts.Check(err)
	shown := ts.ReadFile("stdout")
	if n := len(sharedLine.FindAllString(shown, -1)); n != 1 {
		ts.Fatalf("the demo tells %d times that others may have the store open, want once", n)
	}
	alone := func(text string) string { return eventCount.ReplaceAllString(steady(text), "EVENTS, ") }
	if got, want := alone(sharedLine.ReplaceAllString(shown, "")), alone(told); got != want {
		ts.Fatalf("over a server the demo shows:\n%s\nand on a folder:\n%s", got, want)
	}
}

// The transcript in README.md is what ledger demo prints, apart from the varying parts.
// With -update the test writes it.
func TestTheREADMEShowsTheDemoAsItIs(t *testing.T) {
	t.Parallel()
	shown := ledger(t, "", "demo")
	if shown.exit != 0 {
		t.Fatalf("ledger demo = %d\n%s%s", shown.exit, shown.out, shown.err)
	}
	before, told, after, err := readmeDemo()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(readmePath, []byte(before+demoBegins+string(shown.out)+demoEnds+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, want := steady(told), steady(string(shown.out)); got != want {
		t.Errorf("README.md tells:\n%s\nand the demo shows:\n%s\n(go test ./cmd/ledger -run README -update)", got, want)
	}
}
