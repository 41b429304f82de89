package projections

import (
	"iter"

	"github.com/settlement-ledger/ledger/events"
)

// A Projection is a pure fold of events into an answer of type S. Its Name
// names its checkpoints and never changes; its Version rises with every change
// of what Apply does or of how S is encoded.
type Projection[S any] struct {
	Name    string
	Version int
	// Reads says which events Apply is given; the zero Filter is all of them.
	// To others Apply returns the answer as it was: a View passes over them
	// where they lie.
	Reads events.Filter
	// Init returns the answer for no events: a value of its own each time.
	Init func() S
	// Apply returns the answer that follows from one more event. It may reuse
	// the answer that it is given, which is of no further use to the caller. It
	// reads nothing but its arguments, changes nothing that the envelope holds
	// and passes over events that it does not need. A projection of one stream
	// documents which; every other takes the whole log in the order of its
	// positions.
	Apply func(S, events.Envelope) S
}

// Fold applies p to every event of a sequence that it reads, beginning with s,
// which it may reuse. An error of the sequence ends it; the answer is then that of the
// events before the error.
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

// reads reports whether p reads an event.
func (p *Projection[S]) reads(v events.Envelope) bool {
	return p.Reads.IsZero() || p.Reads.Matches(events.Header{Kind: v.Event.Kind(), Time: v.Time, Stream: v.Stream})
}
