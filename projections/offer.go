package projections

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// MergeOffers joins the tools of two events that record parts of one turn's
// offer: all of tools, then the ones of more that tools does not have. The
// result shares memory with neither.
func MergeOffers(tools, more []domain.Offered) []domain.Offered {
	all := slices.Clone(tools)
	for _, t := range more {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// OfferKey returns a string that identifies an offer, so that a state can
// store equal offers once.
func OfferKey(tools []domain.Offered) string {
	var key []byte
	for _, t := range tools {
		registration, layer := t.Registration.Bytes(), t.Layer.Bytes()
		key = append(key, registration[:]...)
		key = append(key, layer[:]...)
		key = append(key, t.Fingerprint[:]...)
		key = append(key, t.Name...)
		key = append(key, 0)
	}
	return string(key)
}
