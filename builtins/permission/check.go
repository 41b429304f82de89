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
	// Ruled reports whether any rule of the agent is about the action. Where
	// none is, everything is Ask, and no rule sets one resource apart.
	Ruled bool
}

// Check returns what rules and approvals say about an ask. It asks nobody and
// records nothing: it is for a tool that must know what it may look at before
// it asks. It grants nothing either; only [Gate.Assert] does.
func (g *Gate) Check(inv domain.Invocation, ask Ask) Verdict {
	v := g.evaluate(inv, ask)
	return Verdict{
		Effect: v.effect, Rule: v.rule,
		Ruled: slices.ContainsFunc(g.config.Rules(inv.Agent), func(r domain.Rule) bool { return domain.Match(r.Action, ask.Action) }),
	}
}
