package publish

import (
	"slices"

	"github.com/settlement-ledger/ledger/events"
)

// An Only says which records are published. Each field that is set narrows it;
// the zero Only lets everything through.
type Only struct {
	Kinds      []string `json:"kinds,omitempty" toml:"kinds"`           // of one of these kinds
	Categories []string `json:"categories,omitempty" toml:"categories"` // in a stream of one of these categories
	Streams    []string `json:"streams,omitempty" toml:"streams"`       // in a stream whose name begins with one of these
	Tools      []string `json:"tools,omitempty" toml:"tools"`           // whose data name one of these tools
	Agents     []string `json:"agents,omitempty" toml:"agents"`         // that belong to a session of one of these agents
}

// filter returns the part of o that a store answers.
func (o Only) filter() events.Filter {
	return events.Filter{Kinds: o.Kinds, Categories: o.Categories, Prefixes: o.Streams}
}

// takes reports whether the part of o that a store does not answer lets a
// record through.
func (o Only) takes(p particulars) bool {
	return (len(o.Tools) == 0 || slices.Contains(o.Tools, p.tool)) &&
		(len(o.Agents) == 0 || slices.Contains(o.Agents, p.agent))
}

// equal reports whether o and other are the same, field by field.
func (o Only) equal(other Only) bool {
	return slices.Equal(o.Kinds, other.Kinds) && slices.Equal(o.Categories, other.Categories) &&
		slices.Equal(o.Streams, other.Streams) && slices.Equal(o.Tools, other.Tools) && slices.Equal(o.Agents, other.Agents)
}
