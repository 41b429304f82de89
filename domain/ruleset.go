package domain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
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

// A ruleText is the JSON of a rule in a text of rules: that of a [Rule], for any effect.
type ruleText struct {
	Action   string `json:"action"`
	Resource string `json:"resource"`
	Effect   string `json:"effect"`
	Source   string `json:"source,omitempty"`
}

// Text returns the rules with their sources as JSON: a list of the sets, each a list of
// rules in the form of [Rule]. It is valid UTF-8. A RuleSets that is decoded from the text has
// the Digest of s, if the texts of the rules are UTF-8. Without a set the text is empty.
func (s RuleSets) Text() string {
	if len(s) == 0 {
		return ""
	}
	sets := make([][]ruleText, len(s))
	for i, rules := range s {
		sets[i] = make([]ruleText, len(rules))
		for j, r := range rules {
			sets[i][j] = ruleText{r.Action, r.Resource, r.Effect.String(), r.Source}
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(sets) // encoding strings to a buffer never fails
	return strings.TrimSuffix(b.String(), "\n")
}
