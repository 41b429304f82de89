package domain

import (
	"fmt"
	"slices"
	"strings"
)

// TurnFacts are the facts of one turn that decide which tools it offers. A turn
// records them, so the offer can be computed again from the log.
type TurnFacts struct {
	// Agent is the agent of the turn. Ancestors are the agents of the sessions above
	// this one, the root first.
	Agent     AgentID
	Ancestors []AgentID
	// Model is the requested model and Provider the program that serves it. Client is
	// the program that runs the session. Each may be empty.
	Model, Provider, Client string
	// Flags are the names that the user set.
	Flags []string
	// Tools are the patterns of the tool names that the agent lists. Empty: all tools.
	Tools []string
	// Rules are the rules that bind the turn.
	Rules RuleSets
	// Has reports whether this machine has something that a tool needs, such as
	// "program:gopls" or "env:EXA_API_KEY". Nil: it has everything.
	Has func(need string) bool
}

// An Availability says in which turns a tool is offered: in a turn for which one of
// the alternatives holds. An empty Availability holds for every turn.
type Availability []AvailableWhere

// An AvailableWhere is one alternative of an Availability. It holds if each of its
// fields that is not empty holds.
//
// A list of patterns of [Match] holds for a value if the last pattern that matches the
// value does not begin with an exclamation mark. A list that begins with an exclamation
// mark holds for the values that no pattern matches.
type AvailableWhere struct {
	// Agents, Models, Providers and Clients are patterns.
	Agents    []string `json:"agents,omitempty"`
	Models    []string `json:"models,omitempty"`
	Providers []string `json:"providers,omitempty"`
	Clients   []string `json:"clients,omitempty"`
	// Flags must all be set; a flag with an exclamation mark before it must not be set.
	Flags []string `json:"flags,omitempty"`
	// Needs must all be met. A need is KIND:NAME, or KIND:NAME|NAME|… of which one must
	// be met.
	Needs []string `json:"needs,omitempty"`
}

// An UnmetCondition is a condition that hides a tool from a turn.
type UnmetCondition struct {
	// Kind is agent, model, provider, client, flag or machine.
	Kind string `json:"kind" codec:"intern"`
	// Wanted is the condition, as the tool declares it.
	Wanted string `json:"wanted" codec:"intern"`
	// Found is the value of the turn. It may be empty.
	Found string `json:"found,omitempty" codec:"intern"`
}

// String returns the condition as a phrase for a person.
func (c UnmetCondition) String() string {
	switch c.Kind {
	case "machine":
		return "this machine lacks " + c.Wanted
	case "flag":
		if name, not := strings.CutPrefix(c.Wanted, "!"); not {
			return "the flag " + name + " is set"
		}
		return "the flag " + c.Wanted + " is not set"
	}
	found := c.Found
	if found == "" {
		found = "not known"
	}
	return fmt.Sprintf("%s %s is not among %s", c.Kind, found, c.Wanted)
}

// Unmet returns nil if the turn may offer the tool, and otherwise the first unmet
// condition of each alternative.
func (a Availability) Unmet(f TurnFacts) []UnmetCondition {
	var unmet []UnmetCondition
	for _, where := range a {
		c, failed := where.unmet(f)
		if !failed {
			return nil
		}
		unmet = append(unmet, c)
	}
	return unmet
}

// unmet returns the first condition of the alternative that does not hold, and true.
// It returns false if all hold.
func (w AvailableWhere) unmet(f TurnFacts) (UnmetCondition, bool) {
	for _, c := range []struct {
		kind, value string
		patterns    []string
	}{{"agent", string(f.Agent), w.Agents}, {"model", f.Model, w.Models}, {"provider", f.Provider, w.Providers}, {"client", f.Client, w.Clients}} {
		if !MatchList(c.patterns, c.value) {
			return UnmetCondition{c.kind, strings.Join(c.patterns, ", "), c.value}, true
		}
	}
	for _, flag := range w.Flags {
		name, not := strings.CutPrefix(flag, "!")
		if slices.Contains(f.Flags, name) == not {
			return UnmetCondition{Kind: "flag", Wanted: flag}, true
		}
	}
	for _, need := range w.Needs {
		if !f.meets(need) {
			return UnmetCondition{Kind: "machine", Wanted: need}, true
		}
	}
	return UnmetCondition{}, false
}

// meets reports whether the machine has one of the alternatives of a need.
func (f TurnFacts) meets(need string) bool {
	if f.Has == nil {
		return true
	}
	kind, names, ok := strings.Cut(need, ":")
	if !ok {
		return f.Has(need)
	}
	for name := range strings.SplitSeq(names, "|") {
		if f.Has(kind + ":" + name) {
			return true
		}
	}
	return false
}

// Lists reports whether the agent of the turn lists a tool of this name. The unmet
// condition is the reason if it does not.
func (f TurnFacts) Lists(name Name) (UnmetCondition, bool) {
	if MatchList(f.Tools, string(name)) {
		return UnmetCondition{}, true
	}
	return UnmetCondition{Kind: "agent", Wanted: "agents that list " + string(name), Found: string(f.Agent)}, false
}

// MatchList reports whether a list of patterns holds for a value: the last pattern that
// matches the value has no exclamation mark before it. An empty list holds for every
// value, and a list whose first pattern has the mark holds for a value that no pattern
// matches.
func MatchList(patterns []string, value string) bool {
	holds := len(patterns) == 0 || strings.HasPrefix(patterns[0], "!")
	for _, p := range patterns {
		if name, not := strings.CutPrefix(p, "!"); Match(name, value) {
			holds = !not
		}
	}
	return holds
}
