package projections

import (
	"slices"

	"github.com/settlement-ledger/ledger/domain"
)

// MergeOffers joins the tools of two events that record parts of one turn's offer. It
// returns all tools of the first, followed by the tools of the second that the first
// does not have. The result shares memory with neither argument.
func MergeOffers(tools, more []domain.Offered) []domain.Offered {
	all := slices.Clone(tools)
	for _, t := range more {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all
}

// OfferKey returns a string that is equal for equal offers and differs for all
// others, so that a state can store equal offers once. It consists of the
// registration, layer, fingerprint and name of each tool, with a zero byte after each
// name; it is not text.
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
