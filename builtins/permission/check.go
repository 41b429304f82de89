package permission

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// An Evaluation is the result of rules and approvals for a request, before a person decides.
type Evaluation struct {
	// Effect is Allow, Deny, or Ask: the outcome before an Approver decides.
	Effect domain.Effect
	// Rule is the rule that denies, with Deny. Else it is zero.
	Rule domain.Rule
	// Specific reports, with Ask, that the rules name these resources in
	// particular: an ask rule other than "ask * *" matches one of them, or an
	// allow rule matches the action. Otherwise it is false.
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

// specific reports whether a configuration treats an ask as deliberate: rule is more specific
// than a rule for everything, or some rule allows the action on other resources. rule is the
// zero Rule if no rule matched.
func specific(rules domain.Rules, rule domain.Rule, action string) bool {
	if rule.Action != "" && (rule.Action != "*" || rule.Resource != "*") {
		return true
	}
	return slices.ContainsFunc(rules, func(r domain.Rule) bool { return r.Effect == domain.Allow && domain.Match(r.Action, action) })
}

// Check evaluates a request against rules and approvals. It asks no person and records
// nothing, for a tool that must know which files it may read before it requests permission. It
// grants nothing; only [Gate.Assert] does.
func (g *Gate) Check(inv domain.Invocation, ask Ask) Evaluation {
	v := EvaluateRules(g.config.Rules(inv.Agent), ask)
	if v.Effect == domain.Ask && g.evaluate(inv, ask).effect == domain.Allow { // by an approval
		return Evaluation{Effect: domain.Allow}
	}
	return v
}
