package permission

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// An Evaluation is the result of rules and approvals for a request, before a person decides.
type Evaluation struct {
	// Effect is Allow, Deny or Ask. Ask means that an Approver must decide.
	Effect domain.Effect
	// Rule is the rule that denies if Effect is Deny, and otherwise zero.
	Rule domain.Rule
	// Specific is set only if Effect is Ask. It reports that a set of rules that asks
	// names the action or the resources in particular: an ask rule other than "ask * *"
	// matches a resource, or some allow rule of the set matches the action.
	Specific bool
}

// EvaluateRules evaluates a request against sets of rules alone. It evaluates the sets apart, as
// [domain.RuleSets] documents.
func EvaluateRules(sets domain.RuleSets, ask Ask) Evaluation {
	v := Evaluation{Effect: domain.Allow}
	for _, resource := range ask.Resources {
		rule, _ := sets.EvaluateSpelled(ask.Action, resource, ask.Spellings[resource])
		switch rule.Effect {
		case domain.Deny:
			return Evaluation{Effect: domain.Deny, Rule: rule}
		case domain.Ask:
			v.Effect = domain.Ask
			v.Specific = v.Specific || slices.ContainsFunc(sets, func(rules domain.Rules) bool { return specific(rules, ask, resource) })
		}
	}
	return v
}

// specific reports whether one set of rules asks about a resource on purpose and not by
// default: the rule that asks is narrower than "ask * *", or another rule allows the action
// on some resources.
func specific(rules domain.Rules, ask Ask, resource string) bool {
	rule, matched := rules.EvaluateSpelled(ask.Action, resource, ask.Spellings[resource])
	if rule.Effect != domain.Ask {
		return false
	}
	if matched && (rule.Action != "*" || rule.Resource != "*") {
		return true
	}
	return slices.ContainsFunc(rules, func(r domain.Rule) bool { return r.Effect == domain.Allow && domain.Match(r.Action, ask.Action) })
}

// Check evaluates a request against rules and approvals. It does not ask a person, record
// the request or grant the permission: only [Gate.Assert] grants it. A tool calls Check
// to learn which files it may read before it requests permission.
func (g *Gate) Check(inv domain.Invocation, ask Ask) Evaluation {
	v := EvaluateRules(g.config.Rules(inv), ask)
	if v.Effect == domain.Ask && g.evaluate(inv, ask).effect == domain.Allow { // by an approval
		return Evaluation{Effect: domain.Allow}
	}
	return v
}
