package publish

import (
	"slices"

	"github.com/settlement-ledger/ledger/events"
)

// A Filter selects records. Each field that is set narrows it; the zero Filter
// selects all records.
type Filter struct {
	Kinds      []string `json:"kinds,omitempty" toml:"kinds"`           // of one of these kinds
	Categories []string `json:"categories,omitempty" toml:"categories"` // in a stream of one of these categories
	Streams    []string `json:"streams,omitempty" toml:"streams"`       // in a stream whose name begins with one of these
	Tools      []string `json:"tools,omitempty" toml:"tools"`           // whose data name one of these tools
	Agents     []string `json:"agents,omitempty" toml:"agents"`         // that belong to a session of one of these agents
}

// storeFilter returns the part of f that the store evaluates.
func (f Filter) storeFilter() events.Filter {
	return events.Filter{Kinds: f.Kinds, Categories: f.Categories, Prefixes: f.Streams}
}

// accepts evaluates the rest of f, the tools and agents.
func (f Filter) accepts(p attributes) bool {
	return (len(f.Tools) == 0 || slices.Contains(f.Tools, p.tool)) &&
		(len(f.Agents) == 0 || slices.Contains(f.Agents, p.agent))
}

// equal reports whether f and other have equal fields.
func (f Filter) equal(other Filter) bool {
	return slices.Equal(f.Kinds, other.Kinds) && slices.Equal(f.Categories, other.Categories) &&
		slices.Equal(f.Streams, other.Streams) && slices.Equal(f.Tools, other.Tools) && slices.Equal(f.Agents, other.Agents)
}
