package publish

import (
	"context"
	"encoding/json"

	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/events"
)

// agentCache caches which agent a session is of. One goroutine uses it.
type agentCache struct {
	store  events.Store
	agents map[string]string
}

// maxCachedAgents bounds what is remembered of sessions.
const maxCachedAgents = 10_000

// of returns the agent of a session, which the first record of its stream
// names, and nothing where there is none.
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

// add takes in the first record of the stream of a session, which spares a
// server a request.
func (a *agentCache) add(e events.Entry, session string) {
	if e.Revision != 1 || e.Stream.Category() != events.SessionCategory {
		return
	}
	if len(a.agents) >= maxCachedAgents {
		clear(a.agents)
	}
	a.agents[session] = agentIn(e)
}

func agentIn(e events.Entry) (agent string) {
	var opened struct {
		Agent json.RawMessage `json:"agent"`
	}
	if e.Kind == (events.SessionOpened{}).Kind() && json.Unmarshal(e.Data, &opened) == nil {
		_ = json.Unmarshal(opened.Agent, &agent)
	}
	return agent
}
