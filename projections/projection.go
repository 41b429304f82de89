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

// Fold applies p to every event of a sequence, beginning with s, which it may
// reuse. An error of the sequence ends it; the answer is then that of the
// events before the error.
func Fold[S any](p Projection[S], s S, seq iter.Seq2[events.Envelope, error]) (S, error) {
	for v, err := range seq {
		if err != nil {
			return s, err
		}
		s = p.Apply(s, v)
	}
	return s, nil
}
