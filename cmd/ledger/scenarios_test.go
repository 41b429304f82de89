package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scenarios lists the numbers of the conformance scenarios on construction, names and
// registration, materialization, stale rejection, bounding, permissions, crashes and
// the built-in tools.
var scenarios = []int{
	1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 34, 35, 37, 38, 40, 41, 43, 44, 46, 47, 49,
	50, 52, 53, 55, 56, 58, 59, 61, 62, 64, 65, 67, 68, 70, 71, 73, 74, 76, 77, 79, 80, 82, 83, 85, 86, 88, 89, 91, 92,
	122, 124, 125, 127, 128, 140, 142, 143, 145, 146, 148, 149, 151, 152, 154, 155, 157, 158, 160, 161, 163, 164, 166,
}

// scenarioLine matches the comments and regrets that name scenarios by number.
var scenarioLine = regexp.MustCompile(`Scenarios? (\d+(?:(?:, | and |\. Scenario )\d+)*)`)

// Each scenario is named by a test file, or by docs/regrets.md with the reason why no
// test covers it.
func TestEachScenarioHasATestOrARegret(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	named := map[int]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") && filepath.Base(path) != "regrets.md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, line := range scenarioLine.FindAllStringSubmatch(string(text), -1) {
			for _, number := range regexp.MustCompile(`\d+`).FindAllString(line[1], -1) {
				n, _ := strconv.Atoi(number) // the pattern matches digits only
				named[n] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	missing := slices.DeleteFunc(slices.Clone(scenarios), func(n int) bool { return named[n] })
	if len(missing) > 0 {
		t.Errorf("no test and no regret names the scenarios %v", missing)
	}
}
