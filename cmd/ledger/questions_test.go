package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/shell"
)

// questionsPath is the document of questions, relative to this package.
var questionsPath = filepath.Join("..", "..", "docs", "questions.md")

// question matches a command of the document with its output.
var question = regexp.MustCompile("(?ms)^```console\n\\$ ledger (.*?)\n(.*?)^```\n")

// varyingAnswers lists the parts of an answer that differ between two runs of the demo, each
// with its placeholder, besides those of varying.
var varyingAnswers = []struct {
	is *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d`), "DATE"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d(\.\d+)?`), "AGO"},
	{regexp.MustCompile(`[0-9a-f]{12,64}`), "DIGEST"},
	{regexp.MustCompile(`position +\d+`), "position N"},
	{regexp.MustCompile(`\d+ K?i?B\b`), "SIZE"},
	{regexp.MustCompile(` \((AGO|now|\d+ \w+ ago)\)`), ""},
	{regexp.MustCompile(`\d+(\.\d+)?m?s\b`), "TIME"},
	{regexp.MustCompile(`AGO \w+`), "AGO"},
}

// steadyAnswer replaces the varying parts of an answer by placeholders. Lines are sorted,
// because parallel calls of the demo end in any order.
func steadyAnswer(text string) string {
	for _, v := range varyingAnswers {
		text = v.is.ReplaceAllString(text, v.to)
	}
	lines := strings.Split(steady(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// docs/questions.md has thirty questions, and each command prints the shown answer on the
// store of the demo, apart from the varying parts. With -update the test writes the answers.
func TestTheQuestionsHaveTheirAnswers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(questionsPath)
	noError(t, err)
	store := filepath.Join(t.TempDir(), "demo")
	if shown := ledger(t, store, "demo"); shown.exit != 0 {
		t.Fatalf("ledger demo = %d\n%s%s", shown.exit, shown.out, shown.err)
	}
	all := question.FindAllStringSubmatch(string(text), -1)
	if len(all) != 30 {
		t.Errorf("the document has %d questions", len(all))
	}
	document := string(text)
	for _, q := range all {
		args, err := shell.Fields(q[1], nil)
		noError(t, err)
		got := ledger(t, store, args...)
		if got.exit != 0 || len(got.out) == 0 {
			t.Errorf("ledger %s: exit %d, %s%s", q[1], got.exit, got.out, got.err)
		}
		if *update {
			document = strings.Replace(document, q[0], "```console\n$ ledger "+q[1]+"\n"+string(got.out)+"```\n", 1)
			continue
		}
		if have, want := steadyAnswer(string(got.out)), steadyAnswer(q[2]); have != want {
			t.Errorf("ledger %s answers\n%s\nand the document has\n%s\n(go test ./cmd/ledger -run Questions -update)", q[1], have, want)
		}
	}
	if *update {
		noError(t, os.WriteFile(questionsPath, []byte(document), 0o644))
	}
}
