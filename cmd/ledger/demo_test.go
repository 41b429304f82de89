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
	{regexp.MustCompile(`\b(now|TIME ago|\d\d:\d\d:\d\d)\b`), "AGO"},
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

var readmePath = filepath.Join("..", "..", "README.md")

// readmeDemo returns what the README tells of the demo, which a test holds to
// what it shows on a folder, and what stands around it.
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

// sharedLine tells why a store that others have open too takes longer to find a
// process dead. On a folder there is none.
var sharedLine = regexp.MustCompile(`(?m)^Others may have the store open too.*\n`)

// eventCount is more where a process renews its lease.
var eventCount = regexp.MustCompile(`(?m)^\d+ events, `)

// alikeCommand holds the demo that a script ran last, on a store that others may
// have open, to what it shows on a folder: alike.
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

// TestTheREADMEShowsTheDemoAsItIs runs the demo and compares.
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
