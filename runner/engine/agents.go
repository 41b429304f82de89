package engine

import (
	"context"
	"slices"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/conversation"
	"github.com/settlement-ledger/ledger/registry"
	"github.com/settlement-ledger/ledger/runner"
)

// A boundSession is a session that has run in a workspace. It is immutable.
type boundSession struct {
	// ancestors are the agents of the sessions above this one, the root first.
	ancestors []domain.AgentID
	// registry settles the calls of the session. It includes the layer of the root
	// session, if that has one.
	registry *registry.Registry
	// model is the model of the session. It may be empty.
	model string
}

// bind returns the boundSession of a state. At the first call for a root session it opens
// the layer of the session, if the workspace has plugins for sessions. A subsession gets
// the registry of its parent.
func (w *Workspace) bind(ctx context.Context, s *conversation.State) (*boundSession, error) {
	if known := w.session(s.Session); known != nil {
		return known, nil
	}
	b := &boundSession{ancestors: s.Ancestors, registry: w.Registry, model: s.Model}
	if parent := w.session(s.Parent); parent != nil {
		b.registry = parent.registry
	} else if w.config.SessionPlugins != nil {
		var err error
		if b.registry, err = w.openSessionLayer(ctx, s.Session); err != nil {
			return nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.sessions[s.Session] = b
	return b, nil
}

// session returns a bound session, or nil.
func (w *Workspace) session(id domain.SessionID) *boundSession {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.sessions[id]
}

// profile returns the profile of the agent of a session, for the next turn. Its rules are
// the configured rules, the rules of the agent and the rules of the agents above it.
func (w *Workspace) profile(ctx context.Context, s *conversation.State) (runner.Profile, error) {
	p, err := w.agent(s.Agent)
	if err != nil {
		return runner.Profile{}, err
	}
	b, err := w.bind(ctx, s)
	if err != nil {
		return runner.Profile{}, err
	}
	p.Rules, p.Registry = w.ruleSets(s.Agent, s.Ancestors), b.registry
	return p, nil
}

// agent returns the profile of an agent.
func (w *Workspace) agent(name domain.AgentID) (runner.Profile, error) {
	if w.config.Agents == nil {
		return runner.Profile{}, nil
	}
	return w.config.Agents(name)
}

// rulesOf returns the rules that bind a call. A session that has not run in this workspace
// is denied everything, because the agents above it are not known.
func (w *Workspace) rulesOf(inv domain.Invocation) domain.RuleSets {
	b := w.session(inv.Session)
	if b == nil {
		return denyAll("session that does not run here")
	}
	return w.ruleSets(inv.Agent, b.ancestors)
}

// denyAll returns rules that deny everything, with the given source.
func denyAll(source string) domain.RuleSets {
	return domain.RuleSets{{{Action: "*", Resource: "*", Effect: domain.Deny, Source: source}}}
}

// ruleSets returns the configured rules, the rules of an agent and the rules of the agents
// above it. For an unknown agent it returns rules that deny everything.
func (w *Workspace) ruleSets(agent domain.AgentID, ancestors []domain.AgentID) domain.RuleSets {
	var sets domain.RuleSets
	if w.config.Rules != nil {
		sets = append(sets, w.config.Rules)
	}
	for _, name := range slices.Concat(ancestors, []domain.AgentID{agent}) {
		p, err := w.agent(name)
		if err != nil {
			return denyAll("unknown agent " + string(name))
		}
		sets = append(sets, p.Rules...)
	}
	return sets
}
