package builtins

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlement-ledger/ledger/domain"
)

// readEverything are rules that allow every read.
var readEverything = domain.Rules{{Action: "*", Resource: "*", Effect: domain.Ask}, {Action: "read", Resource: "*", Effect: domain.Allow}}

// missing reads a path that does not exist and returns the suggestions.
func (b *bench) missing(t testing.TB, path string) []string {
	t.Helper()
	_, err := b.run(t, "read", input{"path": path})
	first, rest, more := strings.Cut(fmt.Sprint(err), "\nDid you mean:\n")
	if first != "File not found: "+path {
		t.Fatalf("read %s = %v", path, err)
	}
	if !more {
		return nil
	}
	return strings.Split(rest, "\n")
}

// Scenario 145.
func TestMissingFileSuggestsNearNames(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rules = readEverything
	for _, name := range []string{"src/main.go", "src/main_test.go", "src/mail.go", "src/other.go", "src/Makefile", "config.json", "README.md", "src/a\u202eb", "src/line\nend"} {
		b.put(t, name, "x")
	}
	for asked, want := range map[string][]string{
		"src/mian.go":          {"src/main.go", "src/mail.go"}, // two edits, three edits
		"src/main":             {"src/main.go", "src/main_test.go"},
		"src/makefile":         {"src/Makefile"},
		"config.yaml":          {"config.json"},
		"readme":               {"README.md"},
		"scr/main.go":          {"src/main.go"},
		"scr/none/of/it":       {"src"},
		"src/MAIN.GO":          {"src/main.go", "src/mail.go", "src/main_test.go"},
		"src/aXb":              nil, // its near name cannot be printed
		"src/line end":         nil,
		"src/unlike":           nil,
		"q":                    nil,
		b.dir + "/READMI.md":   {"README.md"},
		b.dir + "/no/READMI.m": nil,
	} {
		if got := b.missing(t, asked); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("read %s suggests %q, want %q", asked, got, want)
		}
	}
	if len(b.asked) != 0 {
		t.Errorf("asked %v", b.order())
	}
}

func TestSuggestionsRevealNoNameThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	deny := func(resource string) domain.Rules {
		return append(readEverything[:2:2], domain.Rule{Action: "read", Resource: resource, Effect: domain.Deny})
	}
	ask := append(readEverything[:2:2], domain.Rule{Action: "read", Resource: "*.env", Effect: domain.Ask})
	for _, c := range []struct {
		what  string
		rules domain.Rules
		want  string
	}{
		{"everything may be read", readEverything, "dir/near.env"},
		{"a rule denies the file", deny("dir/near.env"), ""},
		{"a rule denies the directory", deny("dir"), ""},
		{"a person decides", nil, ""},
		{"a rule asks about the file", ask, ""},
	} {
		b := newBench(t)
		b.rules = c.rules
		b.put(t, "dir/near.env", "secret")
		if got := strings.Join(b.missing(t, "dir/naer.env"), "|"); got != c.want {
			t.Errorf("%s: suggests %q, want %q", c.what, got, c.want)
		}
	}

	b := newBench(t)
	b.rules = deny("private/*")
	b.put(t, "private/a", "secret")
	b.put(t, b.outside+"/a", "secret")
	for name, target := range map[string]string{"link1": "private/a", "link2": b.outside + "/a", "link3": "missing"} {
		if err := os.Symlink(target, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.missing(t, "link"); got != nil {
		t.Errorf("suggests %q, which are links to files that may not be read", got)
	}
}

func TestSuggestionsOutsideNeedTheirPermission(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rules = readEverything
	b.put(t, b.outside+"/near/a.txt", "x")
	if got := b.missing(t, b.outside+"/naer/a.txt"); len(got) != 1 || got[0] != b.outside+"/near/a.txt" || b.order()[0] != "external_directory "+b.outside+"/*" {
		t.Errorf("with the permission for the directory: suggests %q, having asked %v", got, b.order())
	}
	b.put(t, filepath.Dir(b.outside)+"/third/secret", "x")
	if err := os.Symlink(filepath.Dir(b.outside)+"/third/secret", b.outside+"/secret"); err != nil {
		t.Fatal(err)
	}
	if got := b.missing(t, b.outside+"/secrex"); got != nil {
		t.Errorf("suggests %q, a link out of the directory", got)
	}
	b.rules = append(b.rules[:2:2], domain.Rule{Action: actionExternal, Resource: b.outside + "/near/*", Effect: domain.Deny})
	if got := b.missing(t, b.outside+"/naer/a.txt"); got != nil {
		t.Errorf("suggests %q, whose directory a rule denies", got)
	}
}

func TestSuggestionsOfALargeDirectoryAreFew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rules = readEverything
	for i := range 300 {
		if err := os.WriteFile(filepath.Join(b.dir, fmt.Sprintf("%s-%04d", strings.Repeat("n", 200), i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.missing(t, strings.Repeat("n", 200)+"-00000"); len(got) != maxSuggestions {
		t.Errorf("suggests %d paths, want %d", len(got), maxSuggestions)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := call(ctx, t, b.tools["read"], input{"path": strings.Repeat("n", 200)}, domain.Invocation{}); err == nil {
		t.Error("a cancelled read succeeds")
	}
}

func TestEditDistanceIsTheLeastNumberOfEdits(t *testing.T) {
	t.Parallel()
	word := rapid.SliceOfN(rapid.SampledFrom([]rune("abé")), 0, 9)
	rapid.Check(t, func(t *rapid.T) {
		a, b, limit := word.Draw(t, "a"), word.Draw(t, "b"), rapid.IntRange(0, 4).Draw(t, "limit")
		want := slowDistance(a, b)
		if want > limit {
			want = -1
		}
		if got := editDistance(a, b, limit); got != want {
			t.Fatalf("editDistance(%q, %q, %d) = %d, want %d", string(a), string(b), limit, got, want)
		}
	})
}

// slowDistance returns the edit distance by trying every edit.
func slowDistance(a, b []rune) int {
	switch {
	case len(a) == 0 || len(b) == 0:
		return len(a) + len(b)
	case a[0] == b[0]:
		return slowDistance(a[1:], b[1:])
	}
	return 1 + min(slowDistance(a[1:], b), slowDistance(a, b[1:]), slowDistance(a[1:], b[1:]))
}
