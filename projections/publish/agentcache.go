package publish

import (
	"context"
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// An agentCache caches the agent of each session, up to maxCachedAgents, for filters
// and topics that use it. The goroutine that reads the log owns it.
type agentCache struct {
	store events.Store
	// agents has the agent by session ID, "" for a session without one.
	agents map[string]string
}

// maxCachedAgents bounds the cache. A full cache is cleared; a later record of a
// cleared session costs one read of the store.
const maxCachedAgents = 10_000

// agentOf returns the agent of a session, which the first record of its stream names.
// It returns "" if the session is unknown or has no agent. It reads that record from
// the store if the agent is not cached, and returns an error of that read.
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

// add caches the agent of a session if e is the first record of its stream. A run
// that reads the whole log thus seldom reads the store again for an agent.
func (a *agentCache) add(e events.Entry, session string) {
	if e.Revision != 1 || e.Stream.Category() != events.SessionCategory {
		return
	}
	if len(a.agents) >= maxCachedAgents {
		clear(a.agents)
	}
	a.agents[session] = agentIn(e)
}

// agentIn returns the agent that a SessionOpened record names, or "" for any other
// record and for damaged data.
func agentIn(e events.Entry) (agent string) {
	var opened struct {
		Agent json.RawMessage `json:"agent"`
	}
	if e.Kind == (events.SessionOpened{}).Kind() && json.Unmarshal(e.Data, &opened) == nil {
		_ = json.Unmarshal(opened.Agent, &agent)
	}
	return agent
}
