package staleness

import (
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// A Verdict compares what a turn offered for a name with what is in effect.
type Verdict struct {
	Effective domain.Offered // in effect; zero: nothing
	Stale     bool           // what is in effect is not what was offered
	Agrees    bool           // both definitions are known, and are the same
	// ChangedBy is the event since which the two differ without a gap: the
	// closing of what was offered, or of its layer, or the registration that
	// hid it. It is zero where they do not differ, and where what was offered
	// was never registered.
	ChangedBy domain.EventID
}

// Judge returns the verdict on what a turn offered, in layers in rising
// precedence. What was offered is stale if it was removed; if the name was
// registered again in its layer, with the same tool too; if a layer above has
// the name now; and if what hid another registration is gone, so that the
// other is in effect again. Nothing that happens to another name matters.
func Judge(s *catalog.State, layers []domain.LayerID, offered domain.Offered) Verdict {
	var verdict Verdict
	if e, ok := s.Effective(layers, offered.Name); ok {
		verdict.Effective = e.Offered
	}
	verdict.ChangedBy, verdict.Stale = s.Displaced(layers, offered)
	verdict.Agrees = !offered.Fingerprint.IsZero() && offered.Fingerprint == verdict.Effective.Fingerprint
	return verdict
}
