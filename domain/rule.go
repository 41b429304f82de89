package domain

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// An Effect is what a rule does. The zero Effect is not valid.
type Effect uint8

// The effects, in rising precedence where several resources are asked about.
const (
	Allow Effect = iota + 1
	Ask
	Deny
)

var effects = enumNames[Effect]{"", "allow", "ask", "deny"}

func (e Effect) String() string               { return effects.name(e) }
func (e Effect) MarshalText() ([]byte, error) { return effects.marshal(e) }

// UnmarshalText accepts what String gives; the empty text is zero.
func (e *Effect) UnmarshalText(text []byte) error { return effects.unmarshal(e, text) }

// A Rule gives the effect of actions on resources. Action and Resource are
// patterns of [Match].
type Rule struct {
	Action   string `json:"action"`
	Resource string `json:"resource"`
	Effect   Effect `json:"effect"`
	Source   string `json:"source,omitempty"` // where it was written, such as rules.toml:3; may be empty
}

// Rules are ordered: the last that matches decides.
type Rules []Rule

// Evaluate returns the last rule that matches action and resource, and
// whether there is one. Where there is none, the effect is [Ask].
func (rs Rules) Evaluate(action, resource string) (Rule, bool) {
	return rs.EvaluateSpelled(action, resource, nil)
}

// EvaluateSpelled is Evaluate for a resource that has further spellings, such
// as "rm x" for "/bin/rm x". A rule that asks or denies matches if it matches
// the resource or any spelling. A rule that allows matches only the resource,
// so that a spelling never widens what is allowed.
func (rs Rules) EvaluateSpelled(action, resource string, spellings []string) (Rule, bool) {
	for i := len(rs) - 1; i >= 0; i-- {
		if !Match(rs[i].Action, action) {
			continue
		}
		matches := func(text string) bool { return Match(rs[i].Resource, text) }
		if matches(resource) || rs[i].Effect != Allow && slices.ContainsFunc(spellings, matches) {
			return rs[i], true
		}
	}
	return Rule{Effect: Ask}, false
}

// Digest returns the SHA-256, in hexadecimal, over effect, action and resource
// of the rules in their order. Where a rule was written makes no difference.
func (rs Rules) Digest() string {
	h := sha256.New()
	for _, r := range rs {
		fmt.Fprintf(h, "%s %q %q\n", r.Effect, r.Action, r.Resource)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Hides returns the rule that hides tools of an action from a model, and
// whether there is one: the last rule whose action matches, if it denies the
// resource "*". Hiding is visibility, never authorization.
func (rs Rules) Hides(action string) (Rule, bool) {
	for i := len(rs) - 1; i >= 0; i-- {
		if Match(rs[i].Action, action) {
			return rs[i], rs[i].Resource == "*" && rs[i].Effect == Deny
		}
	}
	return Rule{}, false
}

// Match reports whether the whole of text fits pattern. In a pattern, * is any
// text, line ends and slashes included, and ? is one rune; there is nothing
// else, and no escape. A pattern that ends in a space and * fits also without
// them: "ls *" fits "ls" and "ls -la". A backslash counts as a slash on both
// sides. The case of letters matters.
func Match(pattern, text string) bool {
	pattern = strings.ReplaceAll(pattern, `\`, "/")
	text = strings.ReplaceAll(text, `\`, "/")
	if head, ok := strings.CutSuffix(pattern, " *"); ok && glob([]rune(head), []rune(text)) {
		return true
	}
	return glob([]rune(pattern), []rune(text))
}

// glob matches in time proportional to the product of the lengths, by going
// back to the last star only.
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
