package staleness

import (
	"github.com/settlement-ledger/ledger/domain"
	"github.com/settlement-ledger/ledger/projections/catalog"
)

// A Comparison compares the registration that a turn offered with the registration of
// the same name that is in effect now.
type Comparison struct {
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

// Compare compares an offered registration with the one in effect in layers, which
// are in rising precedence. The offer is stale in these cases: its registration was
// closed; its layer has a later registration of the name, even of the same tool; a
// higher layer now has the name; or its registration had hidden another one that is
// in effect again. Events of other names do not matter.
func Compare(s *catalog.State, layers []domain.LayerID, offered domain.Offered) Comparison {
	var c Comparison
	if e, ok := s.Effective(layers, offered.Name); ok {
		c.Effective = e.Offered
	}
	c.ChangedBy, c.Stale = s.Displaced(layers, offered)
	c.Agrees = !offered.Fingerprint.IsZero() && offered.Fingerprint == c.Effective.Fingerprint
	return c
}

// CompareAll returns the offered tools of a turn, each with the result of Compare.
func CompareAll(s *catalog.State, layers []domain.LayerID, tools []domain.Offered) []OfferedTool {
	var all []OfferedTool
	for _, offered := range tools {
		all = append(all, OfferedTool{offered, Compare(s, layers, offered)})
	}
	return all
}
