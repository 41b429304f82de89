package events

import "github.com/settlement-ledger/ledger/domain"

// A packedEvent is the encoded form of an event of a kind that leaves out fields which
// repeat others of the same event.
type packedEvent interface {
	// unpacked returns the event with all of its fields.
	unpacked() Event
}

// A packedCallStarted is the encoded form of a CallStarted.
type packedCallStarted struct {
	CallStarted
	// Same is true if Effective equals Offered, and is left out.
	Same bool `json:"same,omitempty"`
}

// packCallStarted returns the encoded form of an event.
func packCallStarted(e CallStarted) packedCallStarted {
	same := e.Effective == e.Offered && !e.Offered.IsZero()
	if same {
		e.Effective = domain.Offered{}
	}
	return packedCallStarted{e, same}
}

func (p packedCallStarted) unpacked() Event {
	if p.Same {
		p.Effective = p.Offered
	}
	return p.CallStarted
}

// A packedCallSettled is the encoded form of a CallSettled.
type packedCallSettled struct {
	CallSettled
	// Same is true if Effective equals Offered and Agrees reports whether their
	// fingerprint is known. Both are left out.
	Same bool `json:"same,omitempty"`
}

// packCallSettled returns the encoded form of an event.
func packCallSettled(e CallSettled) packedCallSettled {
	same := e.Effective == e.Offered && !e.Offered.IsZero() && e.Agrees == !e.Offered.Fingerprint.IsZero()
	if same {
		e.Effective, e.Agrees = domain.Offered{}, false
	}
	return packedCallSettled{e, same}
}

func (p packedCallSettled) unpacked() Event {
	if p.Same {
		p.Effective, p.Agrees = p.Offered, !p.Offered.Fingerprint.IsZero()
	}
	return p.CallSettled
}

// packedForm returns the value that encoding/json encodes for an event: its encoded
// form, or the event.
func packedForm(e Event) any {
	switch e := e.(type) {
	case CallStarted:
		return packCallStarted(e)
	case CallSettled:
		return packCallSettled(e)
	}
	return e
}
