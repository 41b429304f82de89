package domain_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// Match gives the results of the table.
// Scenario 91.
func TestMatchKeepsItsTruthTable(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		text, pattern string
		want          bool
	}{
		{"ls", "ls *", true}, {"ls -la", "ls *", true}, {"ls ", "ls *", true}, {"lstmeval", "ls *", false}, {"lstmeval", "ls*", true},
		{"ls", "ls*", true}, {"ls -la", "ls*", true}, {"", "*", true}, {"", " *", true}, {"a/b/c", "a/*", true}, {"a", "a/*", false},
		{"src", "src/**", false}, {"a\nb", "a*b", true}, {"a\nb", "a?b", true}, {"dir/x.env", "*.env", true}, {"git push", "git * push", false},
		{`a\b`, "a/b", true}, {"a/b", `a\b`, true}, {"[x]", "[x]", true}, {"x", "[x]", false}, {"A", "a", false}, {"😀", "?", true},
		{"😀", "??", false}, {"é", "?", true}, {"", "?", false}, {"", "", true}, {"a", "", false}, {"abcab", "*ab", true}, {"abcabx", "*ab", false}, {"aaab", "*aab", true},
		{"a.b", "a.b", true}, {"axb", "a.b", false}, {"git *", "git *", true}, {"ab", "a*b*", true}, {"ba", "a*", false}, {"xa", "a", false},
	} {
		if got := domain.Match(row.pattern, row.text); got != row.want {
			t.Errorf("Match(%q, %q) = %t, want %t", row.pattern, row.text, got, row.want)
		}
	}
}

// Match takes no exponential time for a pattern with many stars.
func TestMatchIsNotSlowOnManyStars(t *testing.T) {
	t.Parallel()
	if domain.Match(strings.Repeat("*a", 200), strings.Repeat("a", 5000)+"b") {
		t.Error("a text that ends in b fits a pattern that ends in a")
	}
}

// fits is a slow Match without replacement of backslashes, written after the doc
// comment of Match.
func fits(pattern, text []rune) bool {
	switch {
	case len(pattern) == 0:
		return len(text) == 0
	case pattern[0] == '*':
		return fits(pattern[1:], text) || len(text) > 0 && fits(pattern, text[1:])
	}
	return len(text) > 0 && (pattern[0] == '?' || pattern[0] == text[0]) && fits(pattern[1:], text[1:])
}

// FuzzMatch compares Match with fits.
func FuzzMatch(f *testing.F) {
	for _, seed := range [][2]string{{"git *", "git"}, {"*a*b", "xaxb"}, {"?*?", "😀é"}, {`a\*`, "a/b"}, {"* *", "a b"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if strings.Count(pattern, "*") > 4 || len(text) > 40 {
			t.Skip("too much for the naive matcher")
		}
		slashed := strings.NewReplacer(`\`, "/")
		p, s := []rune(slashed.Replace(pattern)), []rune(slashed.Replace(text))
		want := fits(p, s)
		if head, ok := strings.CutSuffix(string(p), " *"); ok {
			want = want || fits([]rune(head), s)
		}
		if got := domain.Match(pattern, text); got != want {
			t.Fatalf("Match(%q, %q) = %t, want %t", pattern, text, got, want)
		}
	})
}

// The last rule that matches decides.
// Scenario 89.
func TestLastRuleThatMatchesDecides(t *testing.T) {
	t.Parallel()
	allow := domain.Rule{Action: "bash", Resource: "ls *", Effect: domain.Allow, Source: "rules.toml:1"}
	deny := domain.Rule{Action: "*", Resource: "*", Effect: domain.Deny, Source: "rules.toml:2"}
	mcp := domain.Rule{Action: "mcp_*", Resource: "*", Effect: domain.Allow}
	for _, row := range []struct {
		rules            domain.Rules
		action, resource string
		want             domain.Rule
		decided          bool
	}{
		{domain.Rules{allow, deny}, "bash", "ls -la", deny, true},
		{domain.Rules{deny, allow}, "bash", "ls -la", allow, true},
		{domain.Rules{deny, allow}, "bash", "rm", deny, true},
		{append(domain.Rules{deny}, domain.Rules{mcp}...), "mcp_search", "anything", mcp, true},
		{domain.Rules{mcp}, "bash", "ls", domain.Rule{Effect: domain.Ask}, false},
		{nil, "bash", "ls", domain.Rule{Effect: domain.Ask}, false},
	} {
		got, decided := row.rules.Evaluate(row.action, row.resource)
		if !reflect.DeepEqual(got, row.want) || decided != row.decided {
			t.Errorf("%v.Evaluate(%q, %q) = %v, %t, want %v, %t", row.rules, row.action, row.resource, got, decided, row.want, row.decided)
		}
	}
}

// Only a last rule that denies all resources of an action hides its tools.
func TestOnlyADenialOfEverythingHides(t *testing.T) {
	t.Parallel()
	rule := func(action, resource string, e domain.Effect) domain.Rule {
		return domain.Rule{Action: action, Resource: resource, Effect: e}
	}
	all := []string{"question", "bash", "edit", "edit", "edit"} // the actions of question, bash, edit, write and apply_patch
	for name, row := range map[string]struct {
		rules domain.Rules
		seen  []string
	}{
		// Scenario 31.
		"one action denied": {domain.Rules{rule("question", "*", domain.Deny)}, all[1:]},
		// Scenario 32.
		"all denied, then one allowed in part": {domain.Rules{rule("*", "*", domain.Deny), rule("question", "private", domain.Allow)}, all[:1]},
		"one allowed in part, then all denied": {domain.Rules{rule("question", "private", domain.Allow), rule("*", "*", domain.Deny)}, nil},
		// Scenario 34.
		"an action that several tools share":    {domain.Rules{rule("edit", "*", domain.Deny)}, all[:2]},
		"denied, then allowed in part":          {domain.Rules{rule("bash", "*", domain.Deny), rule("bash", "echo *", domain.Allow)}, all},
		"denied in part":                        {domain.Rules{rule("bash", "rm *", domain.Deny)}, all},
		"denied by a pattern that fits all too": {domain.Rules{rule("bash", "**", domain.Deny)}, all},
		"asked about":                           {domain.Rules{rule("*", "*", domain.Ask)}, all},
		"no rules":                              {nil, all},
	} {
		var seen []string
		for _, action := range all {
			by, hidden := row.rules.Hides(action)
			if !hidden {
				seen = append(seen, action)
			} else if by.Effect != domain.Deny || by.Resource != "*" || !domain.Match(by.Action, action) {
				t.Errorf("%s: %s is hidden by %v", name, action, by)
			}
		}
		if !slices.Equal(seen, row.seen) {
			t.Errorf("%s: seen %q, want %q", name, seen, row.seen)
		}
	}
}

// Other spellings of a resource match rules that ask or deny, and no rule that
// allows.
func TestSpellingsMatchOnlyAskAndDenyRules(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]domain.Effect{
		"allow *, deny rm *":             domain.Deny,
		"allow *, ask rm *":              domain.Ask,
		"deny rm *, allow *":             domain.Allow,
		"deny rm *, allow /bin/*":        domain.Allow,
		"allow /bin/*, deny rm *":        domain.Deny,
		"ask *, allow rm *":              domain.Ask,
		"deny *, allow rm *":             domain.Deny,
		"deny *, allow /bin/rm *":        domain.Allow,
		"allow /bin/*, deny unlink *":    domain.Allow,
		"deny *, allow /bin/*, ask rm x": domain.Ask,
	} {
		var rules domain.Rules
		for line := range strings.SplitSeq(text, ", ") {
			effect, resource, _ := strings.Cut(line, " ")
			rule := domain.Rule{Action: "bash", Resource: resource}
			if err := rule.Effect.UnmarshalText([]byte(effect)); err != nil {
				t.Fatal(err)
			}
			rules = append(rules, rule)
		}
		if rule, _ := rules.EvaluateSpelled("bash", "/bin/rm x", []string{"rm x"}); rule.Effect != want {
			t.Errorf("%q on /bin/rm x, spelled rm x too: %v, want %v", text, rule.Effect, want)
		}
	}
}

// A backslash in a resource matches a slash in rules that ask or deny, and in no rule that
// allows: on the supported systems it is part of the name of a file.
func TestBackslashAllowsNothingElse(t *testing.T) {
	t.Parallel()
	const name = `plans\..\main.go`
	for _, row := range []struct {
		pattern string
		effect  domain.Effect
		matched bool
	}{
		{"plans/*", domain.Allow, false}, {"plans/*", domain.Ask, true}, {"plans/*", domain.Deny, true},
		{`plans\*`, domain.Allow, true}, {"*", domain.Allow, true},
	} {
		rules := domain.Rules{{Action: "edit", Resource: row.pattern, Effect: row.effect}}
		if _, matched := rules.Evaluate("edit", name); matched != row.matched {
			t.Errorf("%s edit %s matches %s: %t, want %t", row.effect, row.pattern, name, matched, row.matched)
		}
	}
	if rule, matched := (domain.Rules{{Action: "edit", Resource: `plans\*`, Effect: domain.Allow}}).Evaluate("edit", "plans/a"); matched {
		t.Errorf("%v matches plans/a", rule)
	}
}

// The digest of rules does not depend on their source.
func TestRulesDigestIgnoresTheSource(t *testing.T) {
	t.Parallel()
	rules := domain.Rules{{Action: "bash", Resource: "rm *", Effect: domain.Deny, Source: "a:1"}, {Action: "*", Resource: "*", Effect: domain.Allow}}
	digest := rules.Digest()
	if len(digest) != 64 {
		t.Errorf("Digest = %q", digest)
	}
	for name, row := range map[string]struct {
		rules domain.Rules
		same  bool
	}{
		"another source":   {domain.Rules{{Action: "bash", Resource: "rm *", Effect: domain.Deny, Source: "b:7"}, rules[1]}, true},
		"another order":    {domain.Rules{rules[1], rules[0]}, false},
		"one less":         {rules[:1], false},
		"none":             {nil, false},
		"another effect":   {domain.Rules{{Action: "bash", Resource: "rm *", Effect: domain.Ask}, rules[1]}, false},
		"other words":      {domain.Rules{{Action: "bash rm", Resource: "*", Effect: domain.Deny}, rules[1]}, false},
		"quotes in a text": {domain.Rules{{Action: "bash\" \"rm *", Resource: "", Effect: domain.Deny}, rules[1]}, false},
	} {
		if got := row.rules.Digest(); (got == digest) != row.same {
			t.Errorf("%s: the digest is the same: %v, want %v", name, got == digest, row.same)
		}
	}
}
