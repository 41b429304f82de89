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
	// Specific is set only if Effect is Ask. It reports that the rules name the action
	// or the resources in particular: an ask rule other than "ask * *" matches a
	// resource, or some allow rule matches the action.
	Specific bool
}

// EvaluateRules evaluates a request against rules alone.
func EvaluateRules(rules domain.Rules, ask Ask) Evaluation {
	v := Evaluation{Effect: domain.Allow}
	for _, resource := range ask.Resources {
		rule, _ := rules.EvaluateSpelled(ask.Action, resource, ask.Spellings[resource])
		switch rule.Effect {
		case domain.Deny:
			return Evaluation{Effect: domain.Deny, Rule: rule}
		case domain.Ask:
			v.Effect = domain.Ask
			v.Specific = v.Specific || specific(rules, rule, ask.Action)
		}
	}
	return v
}

// specific reports whether the rules ask about a request on purpose and not by default.
// rule is the ask rule that matched, or the zero Rule if no rule matched. specific
// returns true if rule is narrower than "ask * *", or if another rule allows the action
// on some resources.
func specific(rules domain.Rules, rule domain.Rule, action string) bool {
	if rule.Action != "" && (rule.Action != "*" || rule.Resource != "*") {
		return true
	}
	return slices.ContainsFunc(rules, func(r domain.Rule) bool { return r.Effect == domain.Allow && domain.Match(r.Action, action) })
}

// Check evaluates a request against rules and approvals. It does not ask a person, record
// the request or grant the permission: only [Gate.Assert] grants it. A tool calls Check
// to learn which files it may read before it requests permission.
func (g *Gate) Check(inv domain.Invocation, ask Ask) Evaluation {
	v := EvaluateRules(g.config.Rules(inv.Agent), ask)
	if v.Effect == domain.Ask && g.evaluate(inv, ask).effect == domain.Allow { // by an approval
		return Evaluation{Effect: domain.Allow}
	}
	return v
}
