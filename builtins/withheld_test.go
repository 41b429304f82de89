package builtins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

// ruledBench returns a bench whose permission is decided by rules. answer decides the
// requests that the rules leave to a person.
func ruledBench(t *testing.T, rules string, answer func(permission.Ask) error, change ...func(*Config)) *bench {
	t.Helper()
	b := newBench(t, change...)
	for name, content := range map[string]string{".env": "key=1\n", "a.txt": "key=2\n", "sub/.env": "key=3\n", "sub/b.env": "key=4\n", "sub/deep/c.txt": "key=5\n", "none.env": "nothing\n"} {
		b.put(t, name, content)
	}
	if err := os.Symlink("sub/.env", filepath.Join(b.dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	parsed, err := permission.ParseRules("test", strings.NewReader(rules))
	if err != nil {
		t.Fatal(err)
	}
	b.rules = parsed
	b.decide = func(a permission.Ask) error {
		if v := permission.EvaluateRules(domain.RuleSets{parsed}, a); v.Effect != domain.Ask {
			if v.Effect == domain.Deny {
				return &domain.Denied{Action: a.Action, Resource: a.Resources[0], Rule: v.Rule}
			}
			return nil
		}
		return answer(a)
	}
	return b
}

func headless(a permission.Ask) error {
	return &domain.Denied{Action: a.Action, Resource: a.Resources[0], Reason: "no one to ask"}
}

func TestSearchShowsNothingThatReadWouldNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules      string
		in         input // of grep
		want       string
		denied, ip int
	}{
		{"allow * *\ndeny read *.env", input{"pattern": "key"}, "a.txt sub/deep/c.txt", 4, 0},
		{"allow * *\nask read *.env", input{"pattern": "key"}, "a.txt sub/deep/c.txt", 0, 4},
		{"allow grep *\nask read *.env\nallow read *.txt", input{"pattern": "key", "include": "*.env"}, "", 0, 4},
		{"allow * *\ndeny read *.env", input{"pattern": "absent"}, "", 4, 0}, // counted without a look at their content
		{"allow * *\ndeny read sub/*", input{"pattern": "key"}, ".env a.txt", 3, 0},
		{"allow * *\ndeny read *.env", input{"pattern": "key", "path": "sub"}, "sub/deep/c.txt", 2, 0},
		{"allow * *\ndeny read *.env", input{"pattern": "key", "path": "sub/.env"}, "", 1, 0},
		{"allow * *\nask read *.env", input{"pattern": "key", "path": "link.txt"}, "", 0, 1},
		{"allow * *\ndeny grep sub/*", input{"pattern": "key"}, ".env a.txt", 3, 0},
		{"allow grep *\nallow read *.txt", input{"pattern": "key"}, "a.txt sub/deep/c.txt", 0, 4},
		{"allow grep *", input{"pattern": "key"}, ".env a.txt sub/.env sub/b.env sub/deep/c.txt", 0, 0}, // no rule is about read
		{"allow * *\nask read *", input{"pattern": "key"}, "", 0, 6},
	} {
		b := ruledBench(t, c.rules, headless, withoutProgram)
		out, _ := must[grepResult](t, b, "grep", c.in)
		var got []string
		for _, m := range out.Matches {
			got = append(got, strings.TrimPrefix(m.Path, b.dir+"/"))
		}
		if strings.Join(got, " ") != c.want || out.Withheld != (withheldFiles{c.denied, c.ip}) || out.Total != len(got) {
			t.Errorf("by %q grep(%v) shows %v and leaves out %+v, want %s, %d denied and %d closed", c.rules, c.in, got, out.Withheld, c.want, c.denied, c.ip)
		}
		if len(out.Unread) != 0 {
			t.Errorf("by %q grep(%v) could not read %v", c.rules, c.in, out.Unread)
		}
	}
	b := ruledBench(t, "allow * *\ndeny read sub/*\nask read *.env", headless, withoutProgram)
	if got, want := b.found(t, "glob", input{"pattern": "**/*.{env,txt}"}), "a.txt"; !strings.HasPrefix(got, want+"\n\n(1 files were left out: a rule denies reading them)\n\n(") || strings.Contains(got, ".env") {
		t.Errorf("glob = %q", got)
	}
	b = ruledBench(t, "allow * *\ndeny glob sub/*", headless, withoutProgram)
	if got := b.found(t, "glob", input{"pattern": "*.txt"}); !strings.HasPrefix(got, "a.txt\n\n(1 files") {
		t.Errorf("glob = %q", got)
	}
}

func TestSearchAsksOnceForTheFilesThatAreSetApart(t *testing.T) {
	t.Parallel()
	b := ruledBench(t, "allow * *\nask read *.env", func(permission.Ask) error { return nil }, withoutProgram)
	out, _ := must[grepResult](t, b, "grep", input{"pattern": "key"})
	files := []string{".env", "none.env", "sub/.env", "sub/b.env"}
	if got := b.asked[len(b.asked)-1]; out.Total != 5 || len(b.asked) != 2 || got.Action != "read" || !slices.Equal(got.Resources, files) || !slices.Equal(got.Save, files) {
		t.Errorf("grep finds %d after asking %v", out.Total, b.asked)
	}
	declined := &domain.Declined{Feedback: "not these"}
	b = ruledBench(t, "allow * *\nask read *.env", func(permission.Ask) error { return declined }, withoutProgram)
	for tool, pattern := range map[string]string{"grep": "key", "glob": ".env"} {
		if _, err := b.run(t, tool, input{"pattern": pattern}); err != error(declined) {
			t.Errorf("%s = %v, want the refusal as it was given", tool, err)
		}
	}
	broken := errors.New("disk full")
	b = ruledBench(t, "allow * *\nask read *.env", func(permission.Ask) error { return broken }, withoutProgram)
	if _, err := b.run(t, "grep", input{"pattern": "key"}); err != broken {
		t.Errorf("grep = %v, want %v", err, broken)
	}
}

func TestTooManyFilesToAskAboutAreLeftOut(t *testing.T) {
	t.Parallel()
	b := ruledBench(t, "allow * *\nask read many/*", func(permission.Ask) error { return nil }, withoutProgram)
	for i := range maxFilesAsked + 1 {
		b.put(t, fmt.Sprintf("many/%03d", i), "key")
	}
	out, _ := must[grepResult](t, b, "grep", input{"pattern": "key", "path": "many"})
	if out.Total != 0 || out.Withheld.NotPermitted != maxFilesAsked+1 || len(b.asked) != 1 {
		t.Errorf("grep finds %d, leaves out %+v and asks %d times", out.Total, out.Withheld, len(b.asked))
	}
}

// The program proposes files that rules withhold, too.
func TestSearchProgramDoesNotGetRoundTheRules(t *testing.T) {
	t.Parallel()
	b := ruledBench(t, "allow * *\ndeny read *.env", headless)
	program := filepath.Join(b.outside, "rg")
	b.put(t, program, "#!/bin/sh\nprintf './.env\\0./a.txt\\0./link.txt\\0sub/.env\\0sub/b.env\\0sub/deep/c.txt\\0none.env\\0'")
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	b.config.SearchProgram = program
	tools, err := Tools(b.config)
	if err != nil {
		t.Fatal(err)
	}
	b.tools = tools
	if out, text := must[grepResult](t, b, "grep", input{"pattern": "key"}); out.Total != 2 || out.Withheld.Denied != 4 || strings.Contains(text, ".env") {
		t.Errorf("grep = %s, leaves out %+v", text, out.Withheld)
	}
}

// A directory shows the names that a search of it would show.
func TestDirectoryListsNothingThatReadWouldNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rules, path, want, left string }{
		{"allow * *\ndeny read *.env", ".", "sub/\na.txt\nlink.txt", "\n\n(2 files were left out: a rule denies reading them)"},
		{"allow * *\nask read *.env", "sub", "deep/", "\n\n(2 files were left out: reading them needs"},
		{"allow * *\ndeny read sub/*", ".", "sub/\n.env\na.txt\nlink.txt\nnone.env", ""},
		{"allow * *\ndeny read sub/*", "sub", "(no entries)", "\n\n(3 files were left out: a rule denies reading them)"},
	} {
		b := ruledBench(t, c.rules, headless)
		if got := b.found(t, "read", input{"path": c.path}); !strings.HasPrefix(got, c.want+c.left) || c.left == "" && got != c.want {
			t.Errorf("by %q read %s shows %q, want %q", c.rules, c.path, got, c.want+c.left)
		}
	}
	b := ruledBench(t, "allow * *\nask read *.env", func(permission.Ask) error { return nil })
	if out, _ := must[readResult](t, b, "read", input{"path": "sub"}); len(out.Entries) != 3 || out.Withheld != (withheldFiles{}) {
		t.Errorf("with the permission read shows %+v", out)
	}
	declined := &domain.Declined{Feedback: "not these"}
	b = ruledBench(t, "allow * *\nask read *.env", func(permission.Ask) error { return declined })
	if _, err := b.run(t, "read", input{"path": "sub"}); err != error(declined) {
		t.Errorf("read = %v, want the refusal as it was given", err)
	}
}

func TestDescriptionsSayThatFilesAreLeftOut(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"read": readDescription, "glob": globDescription, "grep": grepDescription} {
		if !strings.Contains(text, "permission rules withhold") {
			t.Errorf("the description of %s does not say that rules leave files out", name)
		}
	}
}
