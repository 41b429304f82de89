package projections

import (
	"iter"

	"github.com/settlement-ledger/ledger/events"
)

// A Projection is a pure fold of events into a state of type S. Its checkpoints are
// stored under Name, which therefore never changes. A change of Apply's result or of
// the encoding of S increments Version, and views then ignore the checkpoints of
// earlier versions.
type Projection[S any] struct {
	Name    string
	Version int
	// Reads selects the events that Apply receives; the zero Filter selects
	// all. For any other event Apply returns the state unchanged. A View skips
	// such events in the store.
	Reads events.Filter
	// Init returns the state before the first event. Each call returns a
	// separate value.
	Init func() S
	// Apply returns the state after one more event. It may reuse the state it
	// is given, which the caller must not use afterwards. It reads only its
	// arguments, does not change the envelope and ignores events that it does
	// not need. A projection of one stream documents which stream; all others
	// take the whole log in the order of positions.
	Apply func(S, events.Envelope) S
}

// Fold applies p to the events of seq that p.Reads selects, and returns the state
// after the last event. It starts with the state s, which it may reuse and which the
// caller must not use afterwards. If seq yields an error, Fold returns this error
// with the state before it.
func Fold[S any](p Projection[S], s S, seq iter.Seq2[events.Envelope, error]) (S, error) {
	for v, err := range seq {
		if err != nil {
			return s, err
		}
		if p.reads(v) {
			s = p.Apply(s, v)
		}
	}
	return s, nil
}

// reads reports whether p.Reads selects an event.
func (p *Projection[S]) reads(v events.Envelope) bool {
	return p.Reads.IsZero() || p.Reads.Matches(events.Header{Kind: v.Event.Kind(), Time: v.Time, Stream: v.Stream})
}
