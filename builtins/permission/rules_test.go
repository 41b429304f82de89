package permission_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlement-ledger/ledger/builtins/permission"
	"github.com/settlement-ledger/ledger/domain"
)

func parseName(t testing.TB, text string) domain.Rules {
	t.Helper()
	rules, err := permission.ParseRules("rules", strings.NewReader(text))
	if err != nil {
		t.Fatalf("ParseRules(%q) = %v", text, err)
	}
	return rules
}

func TestRulesKeepTheirOrderAndSource(t *testing.T) {
	t.Parallel()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	got := parseName(t, "\ufeff# mine\n\nallow read *\r\n  ask\tedit   src/a b\nallow external_directory ~/x/*\nallow read $HOME\nallow read ~other\nallow read a#b")
	want := domain.Rules{
		{Action: "read", Resource: "*", Effect: domain.Allow, Source: "rules:3"},
		{Action: "edit", Resource: "src/a b", Effect: domain.Ask, Source: "rules:4"},
		{Action: "external_directory", Resource: home + "/x/*", Effect: domain.Allow, Source: "rules:5"},
		{Action: "read", Resource: home, Effect: domain.Allow, Source: "rules:6"},
		{Action: "read", Resource: "~other", Effect: domain.Allow, Source: "rules:7"},
		{Action: "read", Resource: "a#b", Effect: domain.Allow, Source: "rules:8"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseRules (-want +got):\n%s", diff)
	}
}

func TestEveryBadLineIsNamed(t *testing.T) {
	t.Parallel()
	rules, err := permission.ParseRules("my.rules", strings.NewReader("alow read *\nallow read *\ndeny\ndeny bash\n\xff\xfe x y\n"))
	if rules != nil || !errors.Is(err, permission.ErrBadRule) {
		t.Fatalf("ParseRules = %v, %v, want no rules and ErrBadRule", rules, err)
	}
	for _, want := range []string{`my.rules:1: not a rule: effect "alow" is not allow, ask or deny`, "my.rules:3: not a rule: there is no action",
		"my.rules:4: not a rule: there is no resource", "my.rules:5: not a rule: it is not UTF-8", "write EFFECT ACTION RESOURCE"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("ParseRules = %v, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "my.rules:2") {
		t.Errorf("ParseRules = %v, which names a good line", err)
	}
	_, err = permission.ParseRules("long", strings.NewReader("allow read *\nallow read "+strings.Repeat("x", 1<<17)))
	if !errors.Is(err, permission.ErrBadRule) || !strings.Contains(err.Error(), "long:2") {
		t.Errorf("ParseRules of a long line = %v, want ErrBadRule at long:2", err)
	}
}

// Scenario 89.
func TestLastMatchingRuleWins(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]domain.Effect{
		"allow read a\ndeny read *":      domain.Deny,
		"deny read *\nallow read a":      domain.Allow,
		"":                               domain.Ask,
		"deny read b":                    domain.Ask,
		"allow re* a":                    domain.Allow,
		"deny * *\nask read *":           domain.Ask,
		"allow mcp_* *\nallow reading a": domain.Ask,
	} {
		if rule, _ := parseName(t, text).Evaluate("read", "a"); rule.Effect != want {
			t.Errorf("%q: effect %v, want %v", text, rule.Effect, want)
		}
	}
}

// Scenario 91.
func TestPatternsMatchAsDocumented(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, pattern string
		want          bool
	}{
		{"ls", "ls *", true}, {"ls -la", "ls *", true}, {"ls ", "ls *", true}, {"lstmeval", "ls *", false}, {"lstmeval", "ls*", true},
		{"", "*", true}, {"", " *", true}, {"a/b/c", "a/*", true}, {"a", "a/*", false}, {"src", "src/**", false}, {"a\nb", "a*b", true},
		{"a\nb", "a?b", true}, {"dir/x.env", "*.env", true}, {"git push", "git * push", false}, {`a\b`, "a/b", true}, {"[x]", "[x]", true},
		{"A", "a", false}, {"😀", "?", true}, {"😀", "??", false},
	} {
		if got := domain.Match(c.pattern, c.text); got != c.want {
			t.Errorf("Match(%q, %q) = %v, want %v", c.pattern, c.text, got, c.want)
		}
	}
}

func TestWordsReadBackAsWritten(t *testing.T) {
	t.Parallel()
	for _, s := range []permission.Choice{permission.Once, permission.Always, permission.Reject} {
		var back permission.Choice
		if err := back.UnmarshalText([]byte(s.String())); err != nil || back != s {
			t.Errorf("scope %v reads back as %v, %v", s, back, err)
		}
	}
	for d := permission.ByRule; d <= permission.ByRecovery; d++ {
		var back permission.Authority
		if err := back.UnmarshalText([]byte(d.String())); err != nil || back != d {
			t.Errorf("decider %v reads back as %v, %v", d, back, err)
		}
	}
	var s permission.Choice
	if err := s.UnmarshalText([]byte("ever")); !errors.Is(err, permission.ErrInvalidValue) {
		t.Errorf("UnmarshalText(ever) = %v, want ErrBadWord", err)
	}
}

func FuzzParseRules(f *testing.F) {
	f.Add("allow read *\n# x\ndeny bash rm *")
	f.Add("ask\tedit ~/x\r\n")
	f.Add("deny")
	f.Fuzz(func(t *testing.T, text string) {
		rules, err := permission.ParseRules("f", strings.NewReader(text))
		if err != nil {
			if rules != nil || !errors.Is(err, permission.ErrBadRule) {
				t.Fatalf("ParseRules(%q) = %v, %v", text, rules, err)
			}
			return
		}
		var b strings.Builder
		for _, r := range rules {
			if r.Effect < domain.Allow || r.Effect > domain.Deny || r.Action == "" || r.Resource == "" {
				t.Fatalf("ParseRules(%q) gives %+v", text, r)
			}
			fmt.Fprintf(&b, "%s %s %s\n", r.Effect, r.Action, r.Resource)
		}
		again, err := permission.ParseRules("f", strings.NewReader(b.String()))
		if err != nil || len(again) != len(rules) {
			t.Fatalf("the rules of %q do not read back: %v, %v", text, again, err)
		}
		for i := range again {
			again[i].Source = rules[i].Source
		}
		if diff := cmp.Diff(rules, again); diff != "" {
			t.Fatalf("the rules of %q read back otherwise:\n%s", text, diff)
		}
	})
}
