package publish

import (
	"slices"

	"github.com/settlement-ledger/ledger/events"
)

// A Filter selects records. A record must match every field that is set, and matches
// a field by one of its values. The zero Filter selects all records.
type Filter struct {
	// Kinds are event kinds.
	Kinds []string `json:"kinds,omitempty" toml:"kinds"`
	// Categories are categories of streams, such as session.
	Categories []string `json:"categories,omitempty" toml:"categories"`
	// Streams are beginnings of stream names.
	Streams []string `json:"streams,omitempty" toml:"streams"`
	// Tools are values of the member tool in the data of a record.
	Tools []string `json:"tools,omitempty" toml:"tools"`
	// Agents are agents of the session to which a record belongs.
	Agents []string `json:"agents,omitempty" toml:"agents"`
}

// storeFilter returns the part of f that the store evaluates without decoding
// records: kinds, categories and streams.
func (f Filter) storeFilter() events.Filter {
	return events.Filter{Kinds: f.Kinds, Categories: f.Categories, Prefixes: f.Streams}
}

// accepts reports whether a record matches the rest of f: the tools and agents.
func (f Filter) accepts(p attributes) bool {
	return (len(f.Tools) == 0 || slices.Contains(f.Tools, p.tool)) &&
		(len(f.Agents) == 0 || slices.Contains(f.Agents, p.agent))
}

// equal reports whether f and other have equal fields, with their values in the same
// order.
func (f Filter) equal(other Filter) bool {
	return slices.Equal(f.Kinds, other.Kinds) && slices.Equal(f.Categories, other.Categories) &&
		slices.Equal(f.Streams, other.Streams) && slices.Equal(f.Tools, other.Tools) && slices.Equal(f.Agents, other.Agents)
}
