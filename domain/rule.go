package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// An Effect is the decision of a rule. The zero Effect is not valid.
type Effect uint8

// The effects, in rising precedence for a request with several resources.
const (
	// Allow permits the action without a question.
	Allow Effect = iota + 1
	// Ask leaves the decision to a person.
	Ask
	// Deny refuses the action without a question.
	Deny
)

var effects = enumNames[Effect]{"", "allow", "ask", "deny"}

// String returns the name of the constant, as events and the CLI write it;
// "?N" for a value N outside the set.
func (e Effect) String() string { return effects.name(e) }

// MarshalText returns the text of String, or an ErrBadWord for a value outside
// the set.
func (e Effect) MarshalText() ([]byte, error) { return effects.marshal(e) }

// UnmarshalText accepts the texts of String, and the empty text for zero. It
// returns an ErrBadWord for any other text.
func (e *Effect) UnmarshalText(text []byte) error { return effects.unmarshal(e, text) }

// A Rule assigns an effect to actions on resources. Action and Resource are
// patterns of [Match].
type Rule struct {
	Action   string `json:"action" codec:"intern"`
	Resource string `json:"resource"`
	Effect   Effect `json:"effect"`
	// Source is the file and the line of the rule, such as rules.toml:3. It may
	// be empty.
	Source string `json:"source,omitempty" codec:"intern"`
}

// Rules are ordered: the last matching rule decides. Without a matching rule the effect
// is [Ask].
type Rules []Rule

// Evaluate returns the last rule that matches action and resource, and true. If no rule
// matches, it returns a rule with the effect [Ask], and false.
func (rs Rules) Evaluate(action, resource string) (Rule, bool) {
	return rs.EvaluateSpelled(action, resource, nil)
}

// EvaluateSpelled is Evaluate for a resource with other spellings, such as "rm
// x" for "/bin/rm x". A rule that asks or denies matches the resource or any
// spelling, by [Match]. A rule that allows matches only the resource, by
// [MatchAsWritten], so neither a spelling nor a backslash in the name of a file
// allows more.
func (rs Rules) EvaluateSpelled(action, resource string, spellings []string) (Rule, bool) {
	for i := len(rs) - 1; i >= 0; i-- {
		if !Match(rs[i].Action, action) {
			continue
		}
		if rs[i].matches(resource, spellings) {
			return rs[i], true
		}
	}
	return Rule{Effect: Ask}, false
}

// matches reports whether the rule matches a resource with other spellings, as
// EvaluateSpelled describes.
func (r Rule) matches(resource string, spellings []string) bool {
	if r.Effect == Allow {
		return MatchAsWritten(r.Resource, resource)
	}
	return Match(r.Resource, resource) || slices.ContainsFunc(spellings, func(s string) bool { return Match(r.Resource, s) })
}

// Digest returns the SHA-256, in hexadecimal, of effect, action and resource
// of the rules in order. It does not cover Source.
func (rs Rules) Digest() string {
	h := sha256.New()
	for _, r := range rs {
		fmt.Fprintf(h, "%s %q %q\n", r.Effect, r.Action, r.Resource)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Hides reports whether the rules hide the tools of an action from the model: the last
// rule whose action matches denies the resource "*". Hides returns this rule and true.
// A hidden tool is not offered. Hiding is not a permission check.
func (rs Rules) Hides(action string) (Rule, bool) {
	for i := len(rs) - 1; i >= 0; i-- {
		if Match(rs[i].Action, action) {
			return rs[i], rs[i].Resource == "*" && rs[i].Effect == Deny
		}
	}
	return Rule{}, false
}

// Match reports whether pattern matches the whole of text. In a pattern, * matches any
// text including line ends and slashes, and ? matches one rune; there is no escape. A
// pattern that ends in a space and * also matches without that ending: "ls *" matches
// "ls" and "ls -la". Backslashes count as slashes in the pattern and the text. Matching
// is case-sensitive.
func Match(pattern, text string) bool {
	return MatchAsWritten(strings.ReplaceAll(pattern, `\`, "/"), strings.ReplaceAll(text, `\`, "/"))
}

// MatchAsWritten is Match with backslashes that match only themselves. On the systems
// that this module supports, a backslash is part of the name of a file.
func MatchAsWritten(pattern, text string) bool {
	if head, ok := strings.CutSuffix(pattern, " *"); ok && glob([]rune(head), []rune(text)) {
		return true
	}
	return glob([]rune(pattern), []rune(text))
}

// glob reports whether a pattern with * and ? matches the whole of text. It backtracks
// to the last star only, so its time is at most proportional to the product of the two
// lengths.
func glob(pattern, text []rune) bool {
	p, t, star, mark := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
