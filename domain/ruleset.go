package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// RuleSets are sets of rules that are evaluated apart: the configured rules, the rules of
// an agent, and the rules of the agents above it. Each set has its own last matching rule.
// Deny beats ask, and ask beats allow, so no set allows what another set denies or asks
// about. Without a set the effect is [Ask].
type RuleSets []Rules

// Evaluate returns the strictest of the rules that the sets give for action and
// resource, and true if a rule matched.
func (s RuleSets) Evaluate(action, resource string) (Rule, bool) {
	return s.EvaluateSpelled(action, resource, nil)
}

// EvaluateSpelled is Evaluate for a resource with other spellings, as
// [Rules.EvaluateSpelled] describes. Of equally strict rules it returns the first.
func (s RuleSets) EvaluateSpelled(action, resource string, spellings []string) (strictest Rule, matched bool) {
	strictest.Effect = Ask
	for i, rules := range s {
		rule, ok := rules.EvaluateSpelled(action, resource, spellings)
		if i == 0 || rule.Effect > strictest.Effect {
			strictest, matched = rule, ok
		}
	}
	return strictest, matched
}

// Hides reports whether one of the sets hides the tools of an action from the model, as
// [Rules.Hides] describes, and returns the rule that hides them.
func (s RuleSets) Hides(action string) (Rule, bool) {
	for _, rules := range s {
		if rule, hidden := rules.Hides(action); hidden {
			return rule, true
		}
	}
	return Rule{}, false
}

// Digest returns the digest of the rules. For one set it is Rules.Digest. For several
// sets it is the SHA-256, in hexadecimal, of their digests in order, each followed by a
// line end. Without a set it is empty.
func (s RuleSets) Digest() string {
	switch len(s) {
	case 0:
		return ""
	case 1:
		return s[0].Digest()
	}
	h := sha256.New()
	for _, rules := range s {
		fmt.Fprintln(h, rules.Digest())
	}
	return hex.EncodeToString(h.Sum(nil))
}
