package domain_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/settlement-ledger/ledger/domain"
)

// The words of random rules and requests.
var (
	ruleActions   = []string{"bash", "edit", "*", "b*"}
	ruleResources = []string{"*", "a", "b", "a/*", "?"}
)

// randomRules returns up to n random rules.
func randomRules(r *rand.Rand, n int) domain.Rules {
	var rules domain.Rules
	for range r.IntN(n + 1) {
		rules = append(rules, domain.Rule{
			Action: ruleActions[r.IntN(len(ruleActions))], Resource: ruleResources[r.IntN(len(ruleResources))], Effect: domain.Effect(1 + r.IntN(3)),
		})
	}
	return rules
}

// strictest is the model of RuleSets: the strictest of the effects that each set gives
// alone, and ask without a set.
func strictest(sets domain.RuleSets, action, resource string, spellings []string) domain.Effect {
	deny, ask := false, len(sets) == 0
	for _, rules := range sets {
		rule, _ := rules.EvaluateSpelled(action, resource, spellings)
		deny = deny || rule.Effect == domain.Deny
		ask = ask || rule.Effect == domain.Ask
	}
	switch {
	case deny:
		return domain.Deny
	case ask:
		return domain.Ask
	}
	return domain.Allow
}

// Several sets give the strictest of the effects that each gives alone, with a rule of the
// first such set, and hide what one of them hides. A further set never allows more.
func TestRuleSetsGiveTheStrictestOfTheirEffects(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(21, 1))
	for range 5000 {
		var sets domain.RuleSets
		for range r.IntN(4) {
			sets = append(sets, randomRules(r, 4))
		}
		action, resource := []string{"bash", "edit", "read"}[r.IntN(3)], []string{"a", "b", "a/b"}[r.IntN(3)]
		spellings := [][]string{nil, {"b"}, {"a", "c"}}[r.IntN(3)]
		got, matched := sets.EvaluateSpelled(action, resource, spellings)
		want := strictest(sets, action, resource, spellings)
		if got.Effect != want {
			t.Fatalf("%v give %s to %s %s spelled %q, want %s", sets, got.Effect, action, resource, spellings, want)
		}
		for _, rules := range sets {
			if alone, ok := rules.EvaluateSpelled(action, resource, spellings); alone.Effect == want {
				if got != alone || matched != ok {
					t.Fatalf("%v give %+v %t, want %+v %t of the first set that is as strict", sets, got, matched, alone, ok)
				}
				break
			}
		}
		if plain, ok := sets.Evaluate(action, resource); plain.Effect != strictest(sets, action, resource, nil) || ok && !domain.Match(plain.Action, action) {
			t.Fatalf("Evaluate of %v = %v %t for %s %s", sets, plain, ok, action, resource)
		}
		more := append(sets[:len(sets):len(sets)], randomRules(r, 4))
		if further, _ := more.EvaluateSpelled(action, resource, spellings); len(sets) > 0 && further.Effect < want {
			t.Fatalf("%v allow more than without their last set: %s instead of %s", more, further.Effect, want)
		}
		hides := false
		for _, rules := range sets {
			_, is := rules.Hides(action)
			hides = hides || is
		}
		if rule, hidden := sets.Hides(action); hidden != hides || hidden && (rule.Effect != domain.Deny || rule.Resource != "*") {
			t.Fatalf("Hides(%s) of %v = %v %t, want %t", action, sets, rule, hidden, hides)
		}
	}
}

// The text of rules has every rule in order with its source, and decodes to rules of the same
// digest.
func TestTheTextOfRuleSetsGivesTheRulesBack(t *testing.T) {
	t.Parallel()
	if text := (domain.RuleSets{}).Text(); text != "" {
		t.Errorf("text of no set = %q, want none", text)
	}
	r := rand.New(rand.NewPCG(24, 1))
	for range 500 {
		sets := domain.RuleSets{{{Action: "bash", Resource: "<é> && \"x\" \u2028", Effect: domain.Ask, Source: "/home/u/rules:3"}}}
		for range r.IntN(3) {
			rules := randomRules(r, 4)
			for i := range rules {
				rules[i].Source = []string{"", "rules:1", "b:2"}[r.IntN(3)]
			}
			sets = append(sets, rules)
		}
		var decoded domain.RuleSets
		text := sets.Text()
		if err := json.Unmarshal([]byte(text), &decoded); err != nil || decoded.Digest() != sets.Digest() || len(decoded) != len(sets) {
			t.Fatalf("text %s of %+v decodes to %+v, %v", text, sets, decoded, err)
		}
		for i := range sets {
			if !slices.Equal(decoded[i], sets[i]) {
				t.Fatalf("text %s has the set %+v, want %+v", text, decoded[i], sets[i])
			}
		}
	}
}

// The digest of one set is that of its rules. Sets that differ, in their order or in where
// one ends too, have different digests.
func TestTheDigestOfRuleSetsTellsTheSetsApart(t *testing.T) {
	t.Parallel()
	a, b := domain.Rule{Action: "a", Resource: "*", Effect: domain.Allow}, domain.Rule{Action: "b", Resource: "*", Effect: domain.Deny}
	if got := (domain.RuleSets{}).Digest(); got != "" {
		t.Errorf("Digest of no set = %q, want it empty", got)
	}
	seen := map[string]int{}
	for i, sets := range []domain.RuleSets{{{a, b}}, {{b, a}}, {{a}, {b}}, {{b}, {a}}, {{a, b}, {}}, {{}, {a, b}}, {{}}, {{}, {}}, {{a}}, {{a}, {a}}} {
		digest := sets.Digest()
		if other, again := seen[digest]; again || len(digest) != 64 {
			t.Errorf("sets %d and %d have the digest %q", i, other, digest)
		}
		seen[digest] = i
		if len(sets) == 1 && digest != sets[0].Digest() {
			t.Errorf("Digest of one set = %q, want that of its rules %q", digest, sets[0].Digest())
		}
		sourced := domain.Rule{Action: "a", Resource: "*", Effect: domain.Allow, Source: "rules:1"}
		if (domain.RuleSets{{a}, {b}}).Digest() != (domain.RuleSets{{sourced}, {b}}).Digest() {
			t.Error("the digest depends on the source of a rule")
		}
	}
}
