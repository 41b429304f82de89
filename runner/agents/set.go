package agents

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/settlement-ledger/ledger/domain"
)

// The errors of Set.Agent. Callers match them with errors.Is.
var (
	ErrUnknownAgent = errors.New("there is no such agent")
	ErrRefusedAgent = errors.New("the file of this agent is not valid")
)

// A Set has the agents of one Load. It is immutable and safe for concurrent use.
type Set struct {
	agents  map[domain.AgentID]Agent
	refused []RefusedFile
}

// A RefusedFile is an agent file, or a folder of agent files, that Load could not use.
type RefusedFile struct {
	// Name is the agent that the file would define. It is empty for a folder.
	Name   domain.AgentID `json:"name,omitempty"`
	Path   string         `json:"path"`
	Reason string         `json:"reason"` // begins with the path
}

// refuse adds a refused file.
func (s *Set) refuse(name domain.AgentID, path string, err error) {
	s.refused = append(s.refused, RefusedFile{name, path, err.Error()})
}

// Agent returns the agent of a name; an empty name is Build. It returns an
// ErrRefusedAgent with the reason if a file of this name was refused, and an
// ErrUnknownAgent with the known names if there is no such agent.
func (s *Set) Agent(name domain.AgentID) (Agent, error) {
	if name == "" {
		name = Build
	}
	if a, ok := s.agents[name]; ok {
		return a, nil
	}
	for _, r := range s.refused {
		if r.Name == name {
			return Agent{}, fmt.Errorf("agent %s: %w: %s", name, ErrRefusedAgent, r.Reason)
		}
	}
	var known []string
	for _, a := range s.All() {
		known = append(known, string(a.Name))
	}
	return Agent{}, fmt.Errorf("agent %q: %w: the agents are %s", name, ErrUnknownAgent, strings.Join(known, ", "))
}

// All returns all agents by name.
func (s *Set) All() []Agent {
	return slices.SortedFunc(maps.Values(s.agents), func(a, b Agent) int { return strings.Compare(string(a.Name), string(b.Name)) })
}

// Primary returns the agents that a person may choose, by name.
func (s *Set) Primary() []Agent {
	return slices.DeleteFunc(s.All(), func(a Agent) bool { return a.Mode == SubagentMode })
}

// Subagents returns the agents that a task may choose, by name.
func (s *Set) Subagents() []Agent {
	return slices.DeleteFunc(s.All(), func(a Agent) bool { return a.Mode == PrimaryMode })
}

// Refused returns the files and folders that Load could not use, in the order in which it
// read them.
func (s *Set) Refused() []RefusedFile { return slices.Clone(s.refused) }
