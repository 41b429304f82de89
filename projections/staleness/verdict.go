package staleness

import (
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// A Verdict compares the registration that a turn offered with the one in
// effect.
type Verdict struct {
	// Effective is the registration in effect, or zero if the name is not in effect.
	Effective domain.Offered
	// Stale reports that another registration, or no registration, is in effect.
	Stale bool
	// Agrees reports that the fingerprints of both definitions are known and equal.
	Agrees bool
	// ChangedBy is the event since which the two differ without interruption:
	// the closing of the offered registration or of its layer, or the
	// registration that hid it. It is zero if they do not differ, or if the
	// offered registration never existed.
	ChangedBy domain.EventID
}

// Judge returns the verdict on an offered registration, in layers of rising
// precedence. The offer is stale if its registration was closed; if its layer
// has a later registration of the name, even of the same tool; if a higher
// layer has the name now; or if it hid another registration and that one is in
// effect again. Events of other names do not matter.
func Judge(s *catalog.State, layers []domain.LayerID, offered domain.Offered) Verdict {
	var verdict Verdict
	if e, ok := s.Effective(layers, offered.Name); ok {
		verdict.Effective = e.Offered
	}
	verdict.ChangedBy, verdict.Stale = s.Displaced(layers, offered)
	verdict.Agrees = !offered.Fingerprint.IsZero() && offered.Fingerprint == verdict.Effective.Fingerprint
	return verdict
}
