package publish

import (
	"context"
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// An agentCache caches the agent of each session, up to maxCachedAgents. It is
// not safe for concurrent use.
type agentCache struct {
	store  events.Store
	agents map[string]string
}

// maxCachedAgents bounds the cache. A full cache is cleared.
const maxCachedAgents = 10_000

// agentOf returns the agent of a session, as the first record of its stream
// names it. It returns "" if the session is unknown or has no agent. It reads
// the store if the agent is not cached.
func (a *agentCache) agentOf(ctx context.Context, session string) (string, error) {
	if session == "" {
		return "", nil
	}
	if agent, ok := a.agents[session]; ok {
		return agent, nil
	}
	var id domain.SessionID
	if id.UnmarshalText([]byte(session)) != nil {
		return "", nil
	}
	for e, err := range a.store.Read(ctx, events.SessionStream(id), 0) {
		if err != nil {
			return "", err
		}
		a.add(e, session)
		break
	}
	return a.agents[session], nil
}

// add caches the agent if e is the first record of a session's stream, so that
// agentOf does not have to read it.
func (a *agentCache) add(e events.Entry, session string) {
	if e.Revision != 1 || e.Stream.Category() != events.SessionCategory {
		return
	}
	if len(a.agents) >= maxCachedAgents {
		clear(a.agents)
	}
	a.agents[session] = agentIn(e)
}

// agentIn returns the agent that a SessionOpened record names, or "".
func agentIn(e events.Entry) (agent string) {
	var opened struct {
		Agent json.RawMessage `json:"agent"`
	}
	if e.Kind == (events.SessionOpened{}).Kind() && json.Unmarshal(e.Data, &opened) == nil {
		_ = json.Unmarshal(opened.Agent, &agent)
	}
	return agent
}
