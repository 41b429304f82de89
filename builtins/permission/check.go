package permission

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// A Verdict is what rules and approvals say about an ask, before anybody is
// asked.
type Verdict struct {
	// Effect is what [Gate.Assert] would begin with: Allow, Deny, or Ask.
	Effect domain.Effect
	// Rule is the rule that denies, with Deny. Else it is zero.
	Rule domain.Rule
	// Apart reports, with Ask, that the rules mean these resources in
	// particular: a rule about the action asks about one of them, or rules allow
	// the action on others. It is false where everything of the action is asked
	// about alike, by a rule for every action or for want of a rule.
	Apart bool
}

// VerdictOf returns what rules alone say about an ask.
func VerdictOf(rules domain.Rules, ask Ask) Verdict {
	v := Verdict{Effect: domain.Allow}
	for _, resource := range ask.Resources {
		rule, _ := rules.EvaluateSpelled(ask.Action, resource, ask.Spellings[resource])
		switch rule.Effect {
		case domain.Deny:
			return Verdict{Effect: domain.Deny, Rule: rule}
		case domain.Ask:
			v.Effect = domain.Ask
			v.Apart = v.Apart || apart(rules, rule, ask.Action)
		}
	}
	return v
}

// apart reports whether rules mean a resource in particular that the given rule,
// which is zero if no rule matches, leaves to ask.
func apart(rules domain.Rules, rule domain.Rule, action string) bool {
	if rule.Action != "" && (rule.Action != "*" || rule.Resource != "*") {
		return true
	}
	return slices.ContainsFunc(rules, func(r domain.Rule) bool { return r.Effect == domain.Allow && domain.Match(r.Action, action) })
}

// Check returns what rules and approvals say about an ask. It asks nobody and
// records nothing: it is for a tool that must know what it may look at before
// it asks. It grants nothing either; only [Gate.Assert] does.
func (g *Gate) Check(inv domain.Invocation, ask Ask) Verdict {
	v := VerdictOf(g.config.Rules(inv.Agent), ask)
	if v.Effect == domain.Ask && g.evaluate(inv, ask).effect == domain.Allow { // by an approval
		return Verdict{Effect: domain.Allow}
	}
	return v
}
